# The libraries we stand on. All that are missing are named together, in one line, with the Debian packages that have
# them; tests/build/packages_test.sh holds scripts/bootstrap.sh to that list.
set(QUINTET_MISSING "")

# quintet_package(NAME DEBIAN-PACKAGE [COMPONENTS ...]): a library that brings its own CMake package.
macro(quintet_package name debian)
  find_package(${name} QUIET ${ARGN})
  if(NOT ${name}_FOUND)
    list(APPEND QUINTET_MISSING "${name} (${debian})")
  endif()
endmacro()

# quintet_system_library(NAME DEBIAN-PACKAGE HEADER [FOLDERS...]): one that does not. Makes system::NAME.
function(quintet_system_library name debian header)
  find_library(library ${name} PATH_SUFFIXES ${ARGN} NO_CACHE)
  find_path(include ${header} PATH_SUFFIXES ${ARGN} NO_CACHE)
  if(NOT library OR NOT include)
    list(APPEND QUINTET_MISSING "${name} (${debian})")
    set(QUINTET_MISSING "${QUINTET_MISSING}" PARENT_SCOPE)
    return()
  endif()
  add_library(system::${name} INTERFACE IMPORTED)
  target_link_libraries(system::${name} INTERFACE ${library})
  target_include_directories(system::${name} INTERFACE ${include})  # as of any imported target: no warnings from there
endfunction()

set(MPI_CXX_SKIP_MPICXX ON)  # the C interface is all we use
quintet_package(OpenMP "g++; libomp-dev for clang")
quintet_package(Threads g++)
quintet_package(MPI libopenmpi-dev COMPONENTS CXX)
quintet_package(fmt libfmt-dev)
quintet_package(nlohmann_json nlohmann-json3-dev)
quintet_package(CLI11 libcli11-dev)
quintet_package(Eigen3 libeigen3-dev)
quintet_package(SQLite3 libsqlite3-dev)
# OpenBLAS in its OpenMP build, so that it shares our threads; Debian keeps it beside the others.
quintet_system_library(openblas libopenblas-openmp-dev cblas.h
  openblas-openmp ${CMAKE_LIBRARY_ARCHITECTURE}/openblas-openmp)
quintet_system_library(sentencepiece libsentencepiece-dev sentencepiece_processor.h)
quintet_system_library(sentencepiece_train libsentencepiece-dev sentencepiece_trainer.h)
quintet_system_library(simdjson libsimdjson-dev simdjson.h)
quintet_system_library(sqlite3 libsqlite3-dev sqlite3.h)
quintet_system_library(xxhash libxxhash-dev xxhash.h)
quintet_system_library(z zlib1g-dev zlib.h)
quintet_system_library(lzma liblzma-dev lzma.h)
quintet_system_library(bz2 libbz2-dev bzlib.h)
quintet_system_library(lz4 liblz4-dev lz4.h)
quintet_system_library(snappy libsnappy-dev snappy.h)
quintet_system_library(zstd libzstd-dev zstd.h)

set(QUINTET_HAS_TESTS OFF)
if(NOT QUINTET_TESTS STREQUAL "OFF")
  find_package(GTest QUIET)
  if(TARGET GTest::gtest AND TARGET GTest::gmock)
    set(QUINTET_HAS_TESTS ON)
  elseif(QUINTET_TESTS STREQUAL "AUTO")
    message(STATUS "quintet: no GoogleTest found, tests left out")
  else()
    list(APPEND QUINTET_MISSING "GTest (libgtest-dev)" "gmock (libgmock-dev)")
  endif()
endif()

if(QUINTET_MISSING)
  list(JOIN QUINTET_MISSING ", " missing)
  # (A line that begins with a space is not broken into several.)
  message(FATAL_ERROR " quintet: missing libraries, by Debian package: ${missing}; install them (scripts/bootstrap.sh "
    "does on Debian and Ubuntu) or name their folders in CMAKE_PREFIX_PATH")
endif()
