# Processor kernels are compiled once per instruction set; the program picks at run time. An operation's
# are in src/tensor/op/NAME/NAME_cpu.c, which defines one table, LS_CPU_TABLE(NAME), and is found by
# its place; other files there that end in _cpu.c are parts of it. src/tensor/cpu is what kernels share.
file(GLOB CPU_OP_SOURCES CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/tensor/op/*/*_cpu.c)
file(GLOB CPU_SHARED_SOURCES CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/tensor/cpu/*.c)
set(CPU_OPS "")
foreach(source IN LISTS CPU_OP_SOURCES)
  if(source MATCHES "/op/([a-z0-9_]+)/([a-z0-9_]+)_cpu\\.c$" AND CMAKE_MATCH_1 STREQUAL CMAKE_MATCH_2)
    list(APPEND CPU_OPS ${CMAKE_MATCH_1})
  endif()
endforeach()
set(KERNEL_ISAS base)
set(ISA_FLAGS_base "")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND KERNEL_ISAS avx2 avx512)
  set(ISA_FLAGS_avx2 -march=x86-64-v3)
  set(ISA_FLAGS_avx512 -march=x86-64-v4 -mprefer-vector-width=512) # AMX and bf16: LS_WITH_AMX
endif()
if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64") # base has NEON; what is newer is asked for at run time
  foreach(name gemm_bfmmla matrix_unit)
    set_source_files_properties(${CMAKE_SOURCE_DIR}/src/tensor/cpu/${name}.c PROPERTIES COMPILE_OPTIONS -march=armv8.2-a+bf16)
  endforeach()
endif()
set(KERNEL_OBJECTS "")
# -O3 takes twice as long to compile its walks along time, and they are no faster
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/tensor/op/state_space/state_space_cpu.c PROPERTIES COMPILE_OPTIONS -O2)
foreach(isa IN LISTS KERNEL_ISAS)
  set(declarations "")
  set(entries "")
  foreach(name IN LISTS CPU_OPS)
    string(APPEND declarations "extern const ls_kernel ls__cpu_${name}_${isa}[];\n")
    string(APPEND entries "    ls__cpu_${name}_${isa},\n")
  endforeach()
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/kernels_${isa}.c CONTENT
"/* Generated from the names of the folders in src/tensor/op. */
#include \"tensor/engine/kernel.h\"

${declarations}
extern const ls_kernel *const ls__cpu_kernels_${isa}[];
const ls_kernel *const ls__cpu_kernels_${isa}[] = {
${entries}    NULL,
};
" @ONLY)
  add_library(kernels_${isa} OBJECT ${CPU_OP_SOURCES} ${CPU_SHARED_SOURCES} ${CMAKE_BINARY_DIR}/generated/kernels_${isa}.c)
  set_target_properties(kernels_${isa} PROPERTIES LONGSHOT_KERNELS ON)
  target_link_libraries(kernels_${isa} PRIVATE longshot_flags)
  # vectors wider than the machine's never cross a call: all that use them is inlined
  target_compile_options(kernels_${isa} PRIVATE ${ISA_FLAGS_${isa}} -ffp-contract=$<IF:$<C_COMPILER_ID:Clang>,on,fast> -Wno-psabi
    $<$<C_COMPILER_ID:Clang>:-Wno-pass-failed>) # with sanitizers clang leaves some loops as they are, and says so
  target_compile_definitions(kernels_${isa} PRIVATE LS_ISA=${isa} LS_ISA_${isa}=1)
  list(APPEND KERNEL_OBJECTS $<TARGET_OBJECTS:kernels_${isa}>)
endforeach()
