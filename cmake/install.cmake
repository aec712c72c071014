# What others get: program, shared library, header, pkg-config and CMake packages, manual, completion.
include(CMakePackageConfigHelpers)

add_library(longshot_shared SHARED ${KERNEL_OBJECTS} $<TARGET_OBJECTS:longshot_objects>)
set_target_properties(longshot_shared PROPERTIES OUTPUT_NAME longshot EXPORT_NAME longshot
  VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
target_link_libraries(longshot_shared PRIVATE $<BUILD_INTERFACE:longshot_flags>)
target_include_directories(longshot_shared INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)

# The program writes its own manual and completion.
add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/longshot.1 ${CMAKE_BINARY_DIR}/longshot.bash
  COMMAND longshot help --man > ${CMAKE_BINARY_DIR}/longshot.1
  COMMAND longshot help --completion > ${CMAKE_BINARY_DIR}/longshot.bash
  DEPENDS longshot VERBATIM)
add_custom_target(longshot_manual ALL DEPENDS ${CMAKE_BINARY_DIR}/longshot.1 ${CMAKE_BINARY_DIR}/longshot.bash)

# paths relative to the file itself, so that the tree can be moved
file(RELATIVE_PATH PC_TO_PREFIX ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
configure_file(${CMAKE_SOURCE_DIR}/cmake/longshot.pc.in ${CMAKE_BINARY_DIR}/longshot.pc @ONLY)
configure_package_config_file(${CMAKE_SOURCE_DIR}/cmake/longshotConfig.cmake.in
  ${CMAKE_BINARY_DIR}/longshotConfig.cmake INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/longshot)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/longshotConfigVersion.cmake
  COMPATIBILITY SameMajorVersion)

install(TARGETS longshot RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS longshot_shared EXPORT longshot LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT longshot NAMESPACE longshot:: FILE longshotTargets.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/longshot)
install(FILES ${CMAKE_BINARY_DIR}/longshotConfig.cmake ${CMAKE_BINARY_DIR}/longshotConfigVersion.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/longshot)
install(FILES ${CMAKE_SOURCE_DIR}/include/longshot/longshot.h
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/longshot)
install(FILES ${CMAKE_BINARY_DIR}/longshot.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES ${CMAKE_BINARY_DIR}/longshot.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${CMAKE_BINARY_DIR}/longshot.bash RENAME longshot
  DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/bench/peers DESTINATION ${CMAKE_INSTALL_DATADIR}/longshot
  FILES_MATCHING PATTERN "*.py")

# A wheel carries the library with the program and plug-ins beside it; it has no links.
add_custom_target(longshot_plugins)
if(TARGET longshot-cuda)
  add_dependencies(longshot_plugins longshot-cuda)
endif()
if(SKBUILD)
  install(PROGRAMS $<TARGET_FILE:longshot> DESTINATION longshot/lib COMPONENT python)
  install(FILES $<TARGET_FILE:longshot_shared> DESTINATION longshot/lib COMPONENT python RENAME liblongshot.so)
  if(TARGET longshot-cuda)
    install(FILES $<TARGET_FILE:longshot-cuda> DESTINATION longshot/lib COMPONENT python)
  endif()
endif()
