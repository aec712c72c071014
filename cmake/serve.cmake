# The part of `longshot serve` that needs a network, with libmicrohttpd where it is installed. The
# library does without.
option(LONGSHOT_HTTP "Serve over HTTP where libmicrohttpd is found" ON)
if(LONGSHOT_HTTP)
  pkg_check_modules(MICROHTTPD IMPORTED_TARGET libmicrohttpd)
endif()
if(MICROHTTPD_FOUND)
  target_compile_definitions(longshot_verbs PRIVATE LS_HAVE_MICROHTTPD=1)
  target_link_libraries(longshot_verbs PUBLIC PkgConfig::MICROHTTPD)
else()
  message(STATUS "libmicrohttpd is not installed: `longshot serve` is left out")
endif()
