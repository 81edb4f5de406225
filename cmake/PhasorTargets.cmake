# SPDX-License-Identifier: Apache-2.0
# phasor_library(NAME SRCS ... DEPS ...), phasor_test(NAME SRCS ... DEPS ... LABELS ...),
# phasor_benchmark(NAME SRCS ... DEPS ...): every target gets the same warnings and rules.
#
# A library's target is phasor_NAME, because a project that adds this one with add_subdirectory may have
# a target `client` or `server` of its own. DEPS take NAME.
include_guard(GLOBAL)

add_library(phasor_build_options INTERFACE)
target_compile_features(phasor_build_options INTERFACE cxx_std_20)
# No contraction: a*b+c is rounded twice unless the source says fma. docs/numerics.md depends on it.
target_compile_options(phasor_build_options INTERFACE
  -ffp-contract=off -fno-fast-math -Wall -Wextra -Wshadow -Wno-missing-field-initializers
  -Werror=return-type -Werror=switch -Werror=unused-result)
if(CMAKE_UNITY_BUILD)
  # In a unit every class is in an included file, as far as GCC can see.
  target_compile_options(phasor_build_options INTERFACE -Wno-subobject-linkage)
endif()
if(PHASOR_SANITIZE)
  # GCC's warning is wrong about every std::optional that a sanitizer looks at. The vptr check opens a
  # pipe to see whether memory can be read: it reports errors that are none once a test has used up
  # all file descriptors.
  target_compile_options(phasor_build_options INTERFACE
    -fsanitize=${PHASOR_SANITIZE} -fno-sanitize=vptr -fno-omit-frame-pointer
    -fno-sanitize-recover=all -g1 -Wno-maybe-uninitialized)
  target_link_options(phasor_build_options INTERFACE -fsanitize=${PHASOR_SANITIZE})
endif()

# Replaces each name of a library of ours by its target. It must have been defined before.
function(phasor_targets_of names result)
  set(targets)
  foreach(name IN LISTS names)
    if(TARGET phasor_${name})
      string(PREPEND name phasor_)
    endif()
    list(APPEND targets ${name})
  endforeach()
  set(${result} ${targets} PARENT_SCOPE)
endfunction()

# Sources include from the root of the repository. Only our own targets see that folder: users of a library get
# the headers of cmake/PhasorHeaders.cmake.
function(phasor_library name)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS;PRIVATE_DEPS" ${ARGN})
  phasor_targets_of("${ARG_DEPS}" deps)
  phasor_targets_of("${ARG_PRIVATE_DEPS}" private_deps)
  add_library(phasor_${name} STATIC ${ARG_SRCS})
  add_library(phasor::${name} ALIAS phasor_${name})
  target_include_directories(phasor_${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_features(phasor_${name} PUBLIC cxx_std_20)
  # A status of a later Abseil has the name of the source that made it. What is installed must not
  # name the folder that it was compiled in.
  if(absl_VERSION VERSION_GREATER 20220623)
    target_compile_options(phasor_${name} PRIVATE -fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=)
  endif()
  target_link_libraries(phasor_${name} PUBLIC ${deps}
    PRIVATE $<BUILD_INTERFACE:phasor_build_options> ${private_deps})
  set_target_properties(phasor_${name} PROPERTIES EXPORT_NAME ${name} POSITION_INDEPENDENT_CODE ON UNITY_BUILD_BATCH_SIZE 100)
endfunction()

# Compiles for size, or in a debug build without optimisation, both of which take less time: no tensor
# passes through it. The linker drops the functions that nothing calls.
function(phasor_optimise_for_size name)
  phasor_targets_of(${name} target)
  target_compile_options(${target} PRIVATE
    $<$<CONFIG:Release>:-Os -ffunction-sections -fdata-sections> $<$<CONFIG:Debug>:-O0>)
endfunction()

function(phasor_binary name)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS" ${ARGN})
  phasor_targets_of("${ARG_DEPS}" deps)
  add_executable(${name} ${ARG_SRCS})
  target_link_libraries(${name} PRIVATE phasor_build_options ${deps})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
endfunction()

# Test sources are compiled for compile time, which they cost most of: the libraries that they check
# are optimised and checked in full. Under -fsanitize, undefined behaviour is looked for in the
# libraries only.
add_library(phasor_test_options INTERFACE)
target_compile_options(phasor_test_options INTERFACE -O0)
if(PHASOR_SANITIZE)
  target_compile_options(phasor_test_options INTERFACE -fno-sanitize=undefined)
endif()

# A test's program. LABELS default to "unit". CTest runs it under its name; or, with BY_SOURCE, the
# suites of each source by themselves, named PREFIX and the source: X_test.cc is PREFIX + X_test.
function(phasor_test name)
  cmake_parse_arguments(ARG "BY_SOURCE" "PREFIX" "SRCS;DEPS;LABELS" ${ARGN})
  if(NOT PHASOR_BUILD_TESTS OR NOT ARG_SRCS)
    return()
  endif()
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  phasor_binary(${name} SRCS ${ARG_SRCS} DEPS GTest::gmock GTest::gtest_main ${ARG_DEPS} phasor_test_options)
  set_target_properties(${name} PROPERTIES UNITY_BUILD ${PHASOR_UNITY_TESTS} UNITY_BUILD_BATCH_SIZE 100)
  # A prefix tells the builds apart when `./dev test` runs several of them in one CTest run.
  if(NOT ARG_BY_SOURCE)
    add_test(NAME ${PHASOR_TEST_PREFIX}${name} COMMAND ${name})
    set_tests_properties(${PHASOR_TEST_PREFIX}${name} PROPERTIES LABELS "${ARG_LABELS}")
    return()
  endif()
  foreach(source IN LISTS ARG_SRCS)
    phasor_suites_of(${source} filter)
    get_filename_component(test ${source} NAME_WE)
    set(test ${PHASOR_TEST_PREFIX}${ARG_PREFIX}${test})
    add_test(NAME ${test} COMMAND ${name} --gtest_filter=${filter})
    set_tests_properties(${test} PROPERTIES LABELS "${ARG_LABELS}"
      FAIL_REGULAR_EXPRESSION "Running 0 tests from")
  endforeach()
endfunction()

# The GoogleTest filter of the suites that a source defines.
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
