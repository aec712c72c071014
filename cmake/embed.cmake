# Texts that the program carries along: cmake -DIN=page.js -DNAME=ls_page_script -DOUT=X.c -P this
if(CMAKE_SCRIPT_MODE_FILE)
  file(READ ${IN} bytes HEX)
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
  string(REPLACE "0x0a," "0x0a,\n" bytes "${bytes}")
  file(WRITE ${OUT} "/* Generated. */\n#include \"report/page.h\"\n\nconst char ${NAME}[] = {\n${bytes}0x00};\n")
  return()
endif()

set(EMBEDDED_SOURCES "")
foreach(pair page.css=ls_page_style page.js=ls_page_script)
  string(REPLACE "=" ";" pair ${pair})
  list(GET pair 0 file)
  list(GET pair 1 name)
  set(source ${CMAKE_BINARY_DIR}/generated/${name}.c)
  add_custom_command(OUTPUT ${source}
    COMMAND ${CMAKE_COMMAND} -DIN=${CMAKE_SOURCE_DIR}/src/report/${file} -DNAME=${name}
      -DOUT=${source} -P ${CMAKE_SOURCE_DIR}/cmake/embed.cmake
    DEPENDS src/report/${file} cmake/embed.cmake VERBATIM)
  list(APPEND EMBEDDED_SOURCES ${source})
endforeach()
