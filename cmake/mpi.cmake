# The MPI plug-in, where MPI's headers are found. src/ranks/plugin is all of it. The program opens it
# at run time, so nothing else depends on MPI.
option(LONGSHOT_MPI "Build the MPI plug-in where MPI is found" ON)
if(NOT LONGSHOT_MPI OR LONGSHOT_SANITIZE)
  return()
endif()
find_package(MPI QUIET COMPONENTS C)
if(NOT MPI_C_FOUND)
  message(STATUS "MPI is not installed: the MPI plug-in is left out")
  return()
endif()
add_library(longshot-mpi MODULE ${CMAKE_SOURCE_DIR}/src/ranks/plugin/mpi_transport.c)
set_target_properties(longshot-mpi PROPERTIES C_VISIBILITY_PRESET hidden
  LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib) # where the program and the tests look
target_include_directories(longshot-mpi PRIVATE ${CMAKE_SOURCE_DIR}/src)
target_compile_definitions(longshot-mpi PRIVATE _GNU_SOURCE)
target_compile_options(longshot-mpi PRIVATE -O2 -Wall -Wextra -Werror
  -ffile-prefix-map=${CMAKE_SOURCE_DIR}/= -ffile-prefix-map=${CMAKE_BINARY_DIR}/=build/)
target_link_libraries(longshot-mpi PRIVATE MPI::MPI_C)
install(TARGETS longshot-mpi LIBRARY DESTINATION lib) # beside bin/, where the program looks
