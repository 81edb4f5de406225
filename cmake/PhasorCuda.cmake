# SPDX-License-Identifier: Apache-2.0
# PHASOR_CUDA=AUTO|ON|OFF, resolved once: PHASOR_HAS_CUDA says what came of it.
# phasor_cuda_object(SOURCE RESULT): compiles a .cu file with nvcc; RESULT becomes the object file's path. The folder
# RESULT.kept gets the machine code, for tests.
# phasor_cuda_bundle(LIBRARY OBJECTS ...): adds object files and the CUDA runtime to a library as one object file.
#
# nvcc sees plain headers only, so it is run for those files alone and CMake's own CUDA language,
# with its checks at configure time and flags for every target, is not needed.
include_guard(GLOBAL)

set(PHASOR_CUDA AUTO CACHE STRING "CUDA backend: ON, OFF, or AUTO, where nvcc is found")
set_property(CACHE PHASOR_CUDA PROPERTY STRINGS AUTO ON OFF)
set(PHASOR_CUDA_ARCHITECTURES "80;90" CACHE STRING "GPU architectures to compile for, as in sm_90")

set(PHASOR_HAS_CUDA OFF)
if(NOT PHASOR_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "PHASOR_CUDA is ${PHASOR_CUDA}, accepted are AUTO, ON and OFF")
elseif(NOT PHASOR_CUDA STREQUAL "OFF")
  find_program(PHASOR_NVCC nvcc PATHS /usr/local/cuda/bin)
  if(PHASOR_NVCC)
    # What is on the path may be a link or a script that calls nvcc, which knows where its folders are.
    execute_process(COMMAND "${PHASOR_NVCC}" --dryrun -c none.cu ERROR_VARIABLE said OUTPUT_QUIET)
    set(toolkit)
    if(said MATCHES "TOP=([^\r\n]+)")
      file(REAL_PATH "${CMAKE_MATCH_1}" toolkit)
    endif()
    find_path(PHASOR_CUDA_INCLUDE cuda_runtime_api.h
      PATHS "${toolkit}/include" "${toolkit}/targets/x86_64-linux/include" NO_DEFAULT_PATH)
    find_library(PHASOR_CUDART cudart_static
      PATHS "${toolkit}/lib64" "${toolkit}/lib" "${toolkit}/targets/x86_64-linux/lib" NO_DEFAULT_PATH)
  endif()
  set(version 0)
  if(PHASOR_NVCC AND PHASOR_CUDA_INCLUDE AND PHASOR_CUDART)
    execute_process(COMMAND "${PHASOR_NVCC}" --version OUTPUT_VARIABLE said)
    if(said MATCHES "release ([0-9.]+)")
      set(version ${CMAKE_MATCH_1})
    endif()
  endif()
  if(version VERSION_GREATER_EQUAL 12.0)  # C++20
    set(PHASOR_HAS_CUDA ON)
    # Machine code is unpacked once, when it is loaded; unpacked it would be a third of the binary.
    set(PHASOR_NVCC_COMPRESS -Xfatbin -compress-all)
    if(version VERSION_GREATER_EQUAL 12.8)
      set(PHASOR_NVCC_COMPRESS --compress-mode=size)
    endif()
  elseif(PHASOR_CUDA STREQUAL "ON")
    message(FATAL_ERROR "PHASOR_CUDA is ON but nvcc 12.0 or later, its headers or libcudart_static.a are missing: "
      "nvcc ${PHASOR_NVCC} (${version}), headers ${PHASOR_CUDA_INCLUDE}, library ${PHASOR_CUDART}")
  elseif(PHASOR_NVCC)
    message(WARNING "No CUDA backend: nvcc 12.0 or later is needed, with its headers and libcudart_static.a. Found: "
      "nvcc ${PHASOR_NVCC} (${version}), headers ${PHASOR_CUDA_INCLUDE}, library ${PHASOR_CUDART}")
  endif()
endif()
message(STATUS "CUDA backend: ${PHASOR_HAS_CUDA} (PHASOR_CUDA=${PHASOR_CUDA})")

# No contraction and no flushing: docs/numerics.md depends on it. Device code that calls a function of the host would
# compile with a warning and compute something else. So that warning is an error.
set(PHASOR_NVCC_FLAGS -std=c++20 -O3 -fmad=false -ftz=false -prec-div=true -prec-sqrt=true -diag-error=20011,20012,20013,20014,20015
  "-I${PROJECT_SOURCE_DIR}" "-Xcompiler=-fPIC,-ffp-contract=off,-fno-fast-math")

# One PTX for the newest architecture beside machine code for each, for GPUs that come later.
function(phasor_cuda_object source result)
  set(flags ${PHASOR_NVCC_FLAGS} ${PHASOR_NVCC_COMPRESS})
  set(launcher)
  if(PHASOR_CCACHE AND PROJECT_IS_TOP_LEVEL)
    set(launcher ${PHASOR_CCACHE})
  endif()
  foreach(architecture IN LISTS PHASOR_CUDA_ARCHITECTURES)
    list(APPEND flags -gencode "arch=compute_${architecture},code=sm_${architecture}")
    set(newest ${architecture})
  endforeach()
  list(APPEND flags -gencode "arch=compute_${newest},code=compute_${newest}")
  set(object "${CMAKE_CURRENT_BINARY_DIR}/${source}.o")
  get_filename_component(folder "${object}" DIRECTORY)
  file(MAKE_DIRECTORY "${folder}")
  add_custom_command(OUTPUT "${object}"
    COMMAND "${PROJECT_SOURCE_DIR}/cmake/nvcc.sh" "${object}.kept" ${launcher} "${PHASOR_NVCC}" ${flags} -MD -MF "${object}.d"
            -c "${CMAKE_CURRENT_SOURCE_DIR}/${source}" -o "${object}"
    DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/${source}" "${PROJECT_SOURCE_DIR}/cmake/nvcc.sh" DEPFILE "${object}.d" VERBATIM
    COMMENT "Building CUDA object ${source}.o for ${PHASOR_CUDA_ARCHITECTURES}")
  set(${result} "${object}" PARENT_SCOPE)
endfunction()

# The object files and the static CUDA runtime become one object file. It hides the runtime's names: a program that links
# LIBRARY needs no CUDA toolkit, and may link another CUDA runtime. The runtime's own names are hidden first, and its
# groups dissolved: the linker keeps one group of each name, and would take this one for that of the other runtime.
function(phasor_cuda_bundle library)
  set(runtime "${CMAKE_CURRENT_BINARY_DIR}/${library}_cudart.o")
  set(object "${CMAKE_CURRENT_BINARY_DIR}/${library}_cuda.o")
  add_custom_command(OUTPUT "${object}"
    COMMAND "${CMAKE_LINKER}" -r --force-group-allocation -o "${runtime}" --whole-archive "${PHASOR_CUDART}"
    COMMAND "${CMAKE_OBJCOPY}" --wildcard --localize-symbol=libcudart_static_* "${runtime}"
    COMMAND "${CMAKE_LINKER}" -r -o "${object}" ${ARGN} "${runtime}"
    COMMAND "${CMAKE_OBJCOPY}" --wildcard --localize-symbol=cuda* --localize-symbol=_cuda* --localize-symbol=__cuda*
            "${object}"
    DEPENDS ${ARGN} "${PHASOR_CUDART}" BYPRODUCTS "${runtime}" COMMAND_EXPAND_LISTS VERBATIM
    COMMENT "Linking the CUDA runtime into ${library}")
  target_sources(${library} PRIVATE "${object}")
  set_source_files_properties("${object}" PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
  target_link_libraries(${library} PRIVATE ${CMAKE_DL_LIBS} rt)
endfunction()
