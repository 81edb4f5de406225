# SPDX-License-Identifier: Apache-2.0
# phasor_library(NAME SRCS ... DEPS ...), phasor_test(NAME SRCS ... DEPS ... LABELS ...),
# phasor_benchmark(NAME SRCS ... DEPS ...): every target gets the same warnings and rules.
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
  # GCC's warning is wrong about every std::optional that a sanitizer looks at.
  target_compile_options(phasor_build_options INTERFACE
    -fsanitize=${PHASOR_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all -g1
    -Wno-maybe-uninitialized)
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

function(phasor_binary name)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SRCS})
  target_link_libraries(${name} PRIVATE phasor_build_options ${ARG_DEPS})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
endfunction()

# Test sources are compiled for compile time, which they cost most of: the libraries that they check
# are optimised and checked in full. Under -fsanitize, undefined behaviour is looked for in the
# libraries only.
set(PHASOR_TEST_SOURCE_OPTIONS -O1)
if(PHASOR_SANITIZE)
  set(PHASOR_TEST_SOURCE_OPTIONS -O0 -fno-sanitize=undefined)
endif()

# LABELS default to "unit". TIMEOUT in seconds, 300 unless given: ten times what an idle machine
# needs. OPTIMIZED: the test computes much itself and is compiled like a library.
function(phasor_test name)
  cmake_parse_arguments(ARG "OPTIMIZED" "TIMEOUT" "SRCS;DEPS;LABELS" ${ARGN})
  if(NOT PHASOR_BUILD_TESTS)
    return()
  endif()
  if(NOT ARG_OPTIMIZED)
    set_source_files_properties(${ARG_SRCS} PROPERTIES COMPILE_OPTIONS "${PHASOR_TEST_SOURCE_OPTIONS}")
  endif()
  phasor_binary(${name} SRCS ${ARG_SRCS} DEPS ${ARG_DEPS} GTest::gmock GTest::gtest_main)
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  # A prefix tells the builds apart when `./dev test` runs several of them in one CTest run.
  add_test(NAME ${PHASOR_TEST_PREFIX}${name} COMMAND ${name})
  set_tests_properties(${PHASOR_TEST_PREFIX}${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT})
endfunction()

function(phasor_benchmark name)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS" ${ARGN})
  if(NOT PHASOR_BUILD_BENCHMARKS)
    return()
  endif()
  phasor_binary(${name} SRCS ${ARG_SRCS} DEPS ${ARG_DEPS})
endfunction()
