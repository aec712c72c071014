# Registries: a folder or file in the right place is registered by its name; nothing central is edited.
#   src/mixer/<name>/            must define  const ls_mixer_type ls_mixer_<name>
#   src/position/<name>.c        must define  const ls_position_type ls_position_<name>
#   src/position/extend_<name>.c must define  const ls_extension_type ls_extension_<name>
#   src/task/<name>.c            must define  const ls_task_type ls_task_<name>
#   src/model/wrap/<name>.c      must define  const ls_wrap_type ls_wrap_<name>
#   src/model/head/<name>.c      must define  const ls_head_type ls_head_<name>
#   src/model/family/<name>.c    must define  const ls_family_type ls_family_<name>
#   src/suite/<name>.c           must define  const ls_suite_type ls_suite_<name>
#   src/cli/verb_<name>.c        must define  const ls_verb ls_verb_<name>
function(write_registry header kind type names)
  set(declarations "")
  set(entries "")
  foreach(name IN LISTS names)
    string(APPEND declarations "extern const ${type} ls_${kind}_${name};\n")
    string(APPEND entries "    &ls_${kind}_${name},\n")
  endforeach()
  list(LENGTH names count)
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/registry_${kind}.c CONTENT
"/* Generated from the names of files. */
#include \"${header}.h\"

${declarations}
const ${type} *const ls_${kind}_types[] = {
${entries}    NULL,
};
const size_t ls_${kind}_count = ${count};
" @ONLY)
endfunction()

file(GLOB mixer_folders CONFIGURE_DEPENDS LIST_DIRECTORIES true ${CMAKE_SOURCE_DIR}/src/mixer/*)
set(MIXERS "")
foreach(folder IN LISTS mixer_folders)
  if(IS_DIRECTORY ${folder})
    get_filename_component(name ${folder} NAME)
    list(APPEND MIXERS ${name})
  endif()
endforeach()
file(GLOB position_files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/position/*.c)
set(POSITIONS "")
set(EXTENSIONS "")
foreach(file IN LISTS position_files)
  get_filename_component(name ${file} NAME_WE)
  if(name MATCHES "^extend_(.*)$")
    list(APPEND EXTENSIONS ${CMAKE_MATCH_1})
  elseif(NOT name STREQUAL "position")
    list(APPEND POSITIONS ${name})
  endif()
endforeach()
file(GLOB task_files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/task/*.c)
set(TASKS "")
foreach(file IN LISTS task_files)
  get_filename_component(name ${file} NAME_WE)
  if(NOT name STREQUAL "task")
    list(APPEND TASKS ${name})
  endif()
endforeach()
file(GLOB verb_files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/cli/verb_*.c)
set(VERBS "")
foreach(file IN LISTS verb_files)
  get_filename_component(name ${file} NAME_WE)
  string(REPLACE "verb_" "" name ${name})
  list(APPEND VERBS ${name})
endforeach()
write_registry(mixer/mixer mixer ls_mixer_type "${MIXERS}")
write_registry(position/position position ls_position_type "${POSITIONS}")
write_registry(position/position extension ls_extension_type "${EXTENSIONS}")
write_registry(task/task task ls_task_type "${TASKS}")
write_registry(cli/cli verb ls_verb "${VERBS}") # part of the program, not of the library
set(REGISTRY_SOURCES ${CMAKE_BINARY_DIR}/generated/registry_mixer.c
  ${CMAKE_BINARY_DIR}/generated/registry_position.c ${CMAKE_BINARY_DIR}/generated/registry_extension.c
  ${CMAKE_BINARY_DIR}/generated/registry_task.c)
file(GLOB suite_files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/suite/*.c)
set(SUITES "")
foreach(file IN LISTS suite_files)
  get_filename_component(name ${file} NAME_WE)
  list(APPEND SUITES ${name})
endforeach()
write_registry(suite/suite suite ls_suite_type "${SUITES}")
list(APPEND REGISTRY_SOURCES ${CMAKE_BINARY_DIR}/generated/registry_suite.c)
foreach(kind wrap head family)
  file(GLOB files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/model/${kind}/*.c)
  set(names "")
  foreach(file IN LISTS files)
    get_filename_component(name ${file} NAME_WE)
    list(APPEND names ${name})
  endforeach()
  write_registry(model/${kind} ${kind} ls_${kind}_type "${names}")
  list(APPEND REGISTRY_SOURCES ${CMAKE_BINARY_DIR}/generated/registry_${kind}.c)
endforeach()

# src/tensor/op/NAME/NAME.h declares an operation; tensor/ops.h is all of them.
file(GLOB op_headers CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/src/tensor/op/*/*.h)
set(op_includes "")
foreach(header IN LISTS op_headers)
  if(header MATCHES "/op/([a-z0-9_]+)/([a-z0-9_]+)\\.h$" AND CMAKE_MATCH_1 STREQUAL CMAKE_MATCH_2)
    string(APPEND op_includes "#include \"${header}\"\n")
  endif()
endforeach()
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/tensor/ops.h CONTENT
"/* The operations: generated from the folders in src/tensor/op. */
#ifndef LS_TENSOR_OPS_H
#define LS_TENSOR_OPS_H

${op_includes}
#endif
" @ONLY)
