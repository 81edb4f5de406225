# SPDX-License-Identifier: Apache-2.0
# phasor_library(NAME SRCS ... DEPS ...), phasor_test(NAME SRCS ... DEPS ... LABELS ...),
# phasor_benchmark(NAME SRCS ... DEPS ...): make targets, all with the same warnings and rules.
include_guard(GLOBAL)

add_library(phasor_build_options INTERFACE)
target_compile_features(phasor_build_options INTERFACE cxx_std_20)
# No contraction: a*b+c is rounded twice unless the source says fma. docs/numerics.md depends on it.
target_compile_options(phasor_build_options INTERFACE
  -ffp-contract=off -fno-fast-math -Wall -Wextra -Wshadow -Wno-missing-field-initializers
  -Werror=return-type -Werror=switch -Werror=unused-result)
if(PHASOR_WERROR)
  target_compile_options(phasor_build_options INTERFACE -Werror)
endif()
if(PHASOR_SANITIZE)
  # GCC's warning is wrong about every std::optional in code with sanitizers. The vptr check opens a
  # pipe to test whether memory is readable, so it reports false errors once a test has used up all
  # file descriptors. In a unity build, GCC sees every class as one of an included file.
  target_compile_options(phasor_build_options INTERFACE
    -fsanitize=${PHASOR_SANITIZE} -fno-sanitize=vptr -fno-omit-frame-pointer
    -fno-sanitize-recover=all -g1 -Wno-maybe-uninitialized -Wno-subobject-linkage)
  target_link_options(phasor_build_options INTERFACE -fsanitize=${PHASOR_SANITIZE})
endif()

function(phasor_library name)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS;PRIVATE_DEPS" ${ARGN})
  add_library(${name} STATIC ${ARG_SRCS})
  add_library(phasor::${name} ALIAS ${name})
  target_include_directories(${name} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:include/phasor>)
  target_compile_features(${name} PUBLIC cxx_std_20)
  target_link_libraries(${name} PUBLIC ${ARG_DEPS}
    PRIVATE $<BUILD_INTERFACE:phasor_build_options> ${ARG_PRIVATE_DEPS})
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
endfunction()

# Compiles a library for size: the image carries it, and no tensor passes through it.
function(phasor_optimise_for_size name)
  target_compile_options(${name} PRIVATE
    $<$<CONFIG:Release>:-Os -ffunction-sections -fdata-sections>)
endfunction()

function(phasor_binary name)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SRCS})
  target_link_libraries(${name} PRIVATE phasor_build_options ${ARG_DEPS})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
endfunction()

# Test sources are compiled for short compile times, because compiling is their main cost. The
# libraries under test are optimised and fully checked. With -fsanitize, only the libraries are
# checked for undefined behaviour.
add_library(phasor_test_options INTERFACE)
if(PHASOR_SANITIZE)
  target_compile_options(phasor_test_options INTERFACE -O0 -fno-sanitize=undefined)
else()
  target_compile_options(phasor_test_options INTERFACE -O1)
endif()

# Makes a test program. LABELS default to "unit". TIMEOUT is in seconds, by default 300: ten times
# what an idle machine needs. CTest runs the program as one test with its name. With BY_SOURCE it
# runs the suites of each source separately; the test of X_test.cc is called PREFIX + X_test.
function(phasor_test name)
  cmake_parse_arguments(ARG "BY_SOURCE" "TIMEOUT;PREFIX" "SRCS;DEPS;LABELS" ${ARGN})
  if(NOT PHASOR_BUILD_TESTS OR NOT ARG_SRCS)
    return()
  endif()
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  phasor_binary(${name} SRCS ${ARG_SRCS} DEPS GTest::gmock GTest::gtest_main ${ARG_DEPS} phasor_test_options)
  set_target_properties(${name} PROPERTIES UNITY_BUILD ${PHASOR_UNITY_TESTS})
  # The prefix distinguishes builds when `./dev test` runs several in one CTest run.
  if(NOT ARG_BY_SOURCE)
    add_test(NAME ${PHASOR_TEST_PREFIX}${name} COMMAND ${name})
    set_tests_properties(${PHASOR_TEST_PREFIX}${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT})
    return()
  endif()
  foreach(source IN LISTS ARG_SRCS)
    phasor_suites_of(${source} filter)
    get_filename_component(test ${source} NAME_WE)
    set(test ${PHASOR_TEST_PREFIX}${ARG_PREFIX}${test})
    add_test(NAME ${test} COMMAND ${name} --gtest_filter=${filter})
    set_tests_properties(${test} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT}
      FAIL_REGULAR_EXPRESSION "Running 0 tests from")
  endforeach()
endfunction()

# The GoogleTest filter for the suites that a source defines.
function(phasor_suites_of source filter)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
  file(STRINGS ${source} lines REGEX "^(TEST|TEST_F|TEST_P|TYPED_TEST)\\(")
  list(TRANSFORM lines REPLACE "^[A-Z_]+\\( *([A-Za-z0-9_]+).*" "\\1")
  list(REMOVE_DUPLICATES lines)
  if(NOT lines)
    message(FATAL_ERROR "${source} has no tests")
  endif()
  list(TRANSFORM lines REPLACE "(.+)" "\\1.*:\\1/*:*/\\1.*")
  list(JOIN lines ":" joined)
  set(${filter} "${joined}" PARENT_SCOPE)
endfunction()

function(phasor_benchmark name)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS" ${ARGN})
  if(NOT PHASOR_BUILD_BENCHMARKS)
    return()
  endif()
  phasor_binary(${name} SRCS ${ARG_SRCS} DEPS ${ARG_DEPS})
endfunction()
