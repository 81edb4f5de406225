# SPDX-License-Identifier: Apache-2.0
# phasor_proto_library(NAME PROTOS ...): makes one library of generated messages and gRPC stubs.
# Works with CMake packages of gRPC and protobuf (newer releases) and without (Debian 12).
include_guard(GLOBAL)
find_package(gRPC REQUIRED)  # first: where protobuf has a CMake package, gRPC's includes it
find_package(Protobuf REQUIRED)
if(TARGET gRPC::grpc_cpp_plugin)
  set(PHASOR_GRPC_CPP_PLUGIN $<TARGET_FILE:gRPC::grpc_cpp_plugin>)
else()
  find_program(PHASOR_GRPC_CPP_PLUGIN grpc_cpp_plugin REQUIRED)
endif()

function(phasor_proto_library name)
  cmake_parse_arguments(ARG "" "" "PROTOS" ${ARGN})
  set(out ${PROJECT_BINARY_DIR}/generated)
  file(MAKE_DIRECTORY ${out})
  set(srcs)
  set(deps)
  foreach(proto ${ARG_PROTOS})
    string(REGEX REPLACE "\\.proto$" "" stem ${proto})
    list(APPEND srcs ${out}/${stem}.pb.cc ${out}/${stem}.grpc.pb.cc)
    list(APPEND deps ${PROJECT_SOURCE_DIR}/proto/${proto})
    add_custom_command(
      OUTPUT ${out}/${stem}.pb.cc ${out}/${stem}.pb.h ${out}/${stem}.grpc.pb.cc ${out}/${stem}.grpc.pb.h
      COMMAND protobuf::protoc --cpp_out=${out} --grpc_out=${out}
              --plugin=protoc-gen-grpc=${PHASOR_GRPC_CPP_PLUGIN}
              -I ${PROJECT_SOURCE_DIR}/proto ${PROJECT_SOURCE_DIR}/proto/${proto}
      DEPENDS ${PROJECT_SOURCE_DIR}/proto/${proto} VERBATIM)
  endforeach()
  add_library(${name} STATIC ${srcs})
  add_library(phasor::${name} ALIAS ${name})
  target_include_directories(${name} PUBLIC $<BUILD_INTERFACE:${out}>)
  target_link_libraries(${name} PUBLIC protobuf::libprotobuf gRPC::grpc++
                        PRIVATE $<BUILD_INTERFACE:phasor_build_options>)
  phasor_optimise_for_size(${name})
  if(PHASOR_SANITIZE)
    # Of what protoc wrote, only the use of memory is looked at.
    target_compile_options(${name} PRIVATE -fno-sanitize=undefined)
  endif()
  # All files are one unit, which reads the headers once. Each has two variables of the same names.
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON UNITY_BUILD_BATCH_SIZE 100
    UNITY_BUILD_UNIQUE_ID PHASOR_FILE
    UNITY_BUILD_CODE_BEFORE_INCLUDE "#include <google/protobuf/generated_message_reflection.h>
#define PHASOR_JOIN(name, file) name##file
#define PHASOR_NAME(name, file) PHASOR_JOIN(name, file)
#define schemas PHASOR_NAME(schemas_, PHASOR_FILE)
#define file_default_instances PHASOR_NAME(instances_, PHASOR_FILE)"
    UNITY_BUILD_CODE_AFTER_INCLUDE "#undef schemas\n#undef file_default_instances")
endfunction()
