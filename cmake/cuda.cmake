# The CUDA plug-in, where nvcc is found. An operation's kernels are in src/tensor/op/NAME/NAME_cuda.cu,
# which defines one table, ls__cuda_NAME, and is found by its place; other .cu files there are parts of
# it. src/tensor/cuda is what kernels share. The program opens the plug-in at run time, so nothing else
# depends on CUDA.
option(LONGSHOT_CUDA "Build the CUDA plug-in where nvcc is found" ON)
if(NOT LONGSHOT_CUDA OR LONGSHOT_SANITIZE)
  return()
endif()
include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  message(STATUS "nvcc is not installed: the CUDA plug-in is left out")
  return()
endif()
# Kernels are compiled for the devices of this machine alone; without one, for those of data centres:
# 9.0, and intermediate code for 8.0 and all others, which the driver compiles at their first use and
# keeps. What is packed for other machines has 8.0's compiled too.
option(LONGSHOT_CUDA_BINARIES "Compile the kernels for 8.0 too, where no device is present" OFF)
function(find_architectures out)
  set(found "")
  find_program(NVIDIA_SMI nvidia-smi)
  if(NVIDIA_SMI)
    execute_process(COMMAND ${NVIDIA_SMI} --query-gpu=compute_cap --format=csv,noheader
      OUTPUT_VARIABLE said RESULT_VARIABLE code ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(code EQUAL 0)
      string(REGEX MATCHALL "[0-9]+\\.[0-9]+" capabilities "${said}")
      foreach(capability IN LISTS capabilities)
        string(REPLACE "." "" capability ${capability})
        if(capability STREQUAL "90")
          set(capability 90a) # its own instructions for products
        endif()
        list(APPEND found ${capability}-real)
      endforeach()
    endif()
  endif()
  list(REMOVE_DUPLICATES found)
  if(found STREQUAL "" AND LONGSHOT_CUDA_BINARIES)
    set(found 80 90a-real)
  elseif(found STREQUAL "")
    set(found 80-virtual 90a-real)
  endif()
  set(${out} "${found}" PARENT_SCOPE)
endfunction()
if(NOT CMAKE_CUDA_ARCHITECTURES)
  find_architectures(CMAKE_CUDA_ARCHITECTURES)
endif()
message(STATUS "CUDA kernels for ${CMAKE_CUDA_ARCHITECTURES} (-DCMAKE_CUDA_ARCHITECTURES names others)")
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)
file(GLOB CUDA_OP_SOURCES CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/tensor/op/*/*.cu)
file(GLOB CUDA_SHARED_SOURCES CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/tensor/cuda/*.cu)
set(declarations "")
set(entries "")
foreach(source IN LISTS CUDA_OP_SOURCES)
  if(source MATCHES "/op/([a-z0-9_]+)/([a-z0-9_]+)_cuda\\.cu$" AND CMAKE_MATCH_1 STREQUAL CMAKE_MATCH_2)
    string(APPEND declarations "extern const ls_kernel ls__cuda_${CMAKE_MATCH_1}[];\n")
    string(APPEND entries "    ls__cuda_${CMAKE_MATCH_1},\n")
  endif()
endforeach()
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/kernels_cuda.c CONTENT
"/* Generated from the names of the folders in src/tensor/op. */
#include \"tensor/engine/kernel.h\"

${declarations}
extern const ls_kernel *const ls__cuda_kernels[];
const ls_kernel *const ls__cuda_kernels[] = {
${entries}    NULL,
};
" @ONLY)
# What a device of capability 9.0 runs is made of the intermediate code for 8.0 where that is the same
# for both, which saves a third of the time. It is not where a kernel begins early or has Hopper's
# products or codes of fp8: who includes one of these headers, directly or not.
set(OWN_CODE "^tensor/cuda/(follow|fp8|hopper)\\.cuh$")
function(find_own_code file out)
  set(${out} FALSE PARENT_SCOPE)
  get_property(visited GLOBAL PROPERTY CUDA_VISITED)
  if(file IN_LIST visited)
    return()
  endif()
  set_property(GLOBAL APPEND PROPERTY CUDA_VISITED ${file})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  file(STRINGS ${file} lines REGEX "^#include [<\"].*\\.cuh[>\"]")
  foreach(line IN LISTS lines)
    string(REGEX REPLACE "^#include [<\"](.*)[>\"].*" "\\1" included "${line}")
    set(inner FALSE)
    if(NOT included MATCHES "${OWN_CODE}" AND EXISTS ${CMAKE_SOURCE_DIR}/src/${included})
      find_own_code(${CMAKE_SOURCE_DIR}/src/${included} inner)
    endif()
    if(inner OR included MATCHES "${OWN_CODE}")
      set(${out} TRUE PARENT_SCOPE)
      return()
    endif()
  endforeach()
endfunction()
set(CUDA_SOURCES ${CUDA_OP_SOURCES} ${CUDA_SHARED_SOURCES})
set(CUDA_COMMON_SOURCES "")
set(COMMON_CODE "")
if("${CMAKE_CUDA_ARCHITECTURES}" STREQUAL "80;90a-real")
  set(COMMON_CODE "compute_80,sm_80,sm_90")
elseif("${CMAKE_CUDA_ARCHITECTURES}" STREQUAL "80-virtual;90a-real")
  set(COMMON_CODE "compute_80,sm_90")
endif()
if(COMMON_CODE)
  foreach(source IN LISTS CUDA_SOURCES)
    set_property(GLOBAL PROPERTY CUDA_VISITED "")
    find_own_code(${source} own)
    if(NOT own)
      list(APPEND CUDA_COMMON_SOURCES ${source})
    endif()
  endforeach()
  list(REMOVE_ITEM CUDA_SOURCES ${CUDA_COMMON_SOURCES})
endif()
# The plug-in has its own copy of the pure functions on programs and tensors: it needs nothing of the
# program that opens it.
add_library(longshot-cuda MODULE ${CUDA_SOURCES} ${CMAKE_BINARY_DIR}/generated/kernels_cuda.c)
set(CUDA_TARGETS longshot-cuda)
if(CUDA_COMMON_SOURCES)
  add_library(longshot-cuda-common OBJECT ${CUDA_COMMON_SOURCES})
  set_target_properties(longshot-cuda-common PROPERTIES CUDA_ARCHITECTURES OFF)
  target_compile_options(longshot-cuda-common PRIVATE "--generate-code=arch=compute_80,code=[${COMMON_CODE}]")
  target_sources(longshot-cuda PRIVATE $<TARGET_OBJECTS:longshot-cuda-common>)
  list(APPEND CUDA_TARGETS longshot-cuda-common)
endif()
set_target_properties(longshot-cuda PROPERTIES CUDA_RUNTIME_LIBRARY Static
  LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib # where the program and the tests look
  INSTALL_RPATH "$ORIGIN;/usr/local/cuda/lib64;/usr/local/cuda/lib")
foreach(target IN LISTS CUDA_TARGETS)
  set_target_properties(${target} PROPERTIES CUDA_STANDARD 17 CUDA_VISIBILITY_PRESET hidden C_VISIBILITY_PRESET hidden)
  target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/src)
  target_compile_definitions(${target} PRIVATE _GNU_SOURCE)
  target_compile_options(${target} PRIVATE
    $<$<COMPILE_LANGUAGE:CUDA>:-O3 --expt-relaxed-constexpr -Xcompiler=-ffile-prefix-map=${CMAKE_SOURCE_DIR}/=,-ffile-prefix-map=${CMAKE_BINARY_DIR}/=build/ -Xcompiler=-Wall,-Wextra,-Wno-unused-parameter,-Wno-missing-field-initializers -Werror=all-warnings --diag-suppress=177>)
endforeach()
target_link_libraries(longshot-cuda PRIVATE $<LINK_ONLY:longshot_library> CUDA::cublasLt ${CMAKE_DL_LIBS})
target_link_options(longshot-cuda PRIVATE -Wl,--as-needed -Wl,--exclude-libs,ALL)
install(TARGETS longshot-cuda LIBRARY DESTINATION lib) # beside bin/, where the program looks
