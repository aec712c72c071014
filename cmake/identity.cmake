# What a program is made of, in one number: ranks of other sources do not share work. The same for the
# same sources wherever and with whatever they are compiled. cmake -DFROM=src -DOUT=identity.c -P this
if(CMAKE_SCRIPT_MODE_FILE)
  file(GLOB_RECURSE files RELATIVE ${FROM} ${FROM}/*.c ${FROM}/*.h ${FROM}/*.cu ${FROM}/*.cuh)
  list(SORT files)
  set(all "")
  foreach(file IN LISTS files)
    file(SHA256 ${FROM}/${file} hash)
    string(APPEND all "${file} ${hash}\n")
  endforeach()
  string(SHA256 identity "${all}")
  file(WRITE ${OUT} "/* Generated. */\n#include \"base/identity.h\"\n\nconst char ls_identity[] = \"${identity}\";\n")
  return()
endif()

set(IDENTITY_SOURCE ${CMAKE_BINARY_DIR}/generated/identity.c)
file(GLOB_RECURSE sources CONFIGURE_DEPENDS src/*.c src/*.h src/*.cu src/*.cuh)
add_custom_command(OUTPUT ${IDENTITY_SOURCE}
  COMMAND ${CMAKE_COMMAND} -DFROM=${CMAKE_SOURCE_DIR}/src -DOUT=${IDENTITY_SOURCE}
    -P ${CMAKE_SOURCE_DIR}/cmake/identity.cmake
  DEPENDS ${sources} cmake/identity.cmake VERBATIM)
