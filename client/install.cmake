# SPDX-License-Identifier: Apache-2.0
# Installs the client's libraries and the headers that client/client.h needs, so that
# find_package(phasor) and pkg-config find them.
include(CMakePackageConfigHelpers)

set(libraries client client_core kernels kernels_core)  # dependents before their dependencies
set(PHASOR_PC_REQUIRES absl_any_invocable absl_flat_hash_map absl_hash absl_status absl_statusor
    absl_str_format absl_strings absl_synchronization absl_time)
if(PHASOR_BUILD_RPC)
  list(INSERT libraries 2 proto_convert phasor_proto)
  list(PREPEND PHASOR_PC_REQUIRES grpc++ protobuf)
endif()

set(PHASOR_PC_LIBS)
foreach(library IN LISTS libraries)
  string(REGEX REPLACE "^phasor_" "" file ${library})
  string(PREPEND file phasor_)
  set_target_properties(${library} PROPERTIES OUTPUT_NAME ${file})
  list(APPEND PHASOR_PC_LIBS -l${file})
endforeach()
if(PHASOR_HAS_CUDA)
  list(APPEND PHASOR_PC_LIBS ${PHASOR_CUDART} -ldl -lrt)
endif()
install(TARGETS ${libraries} EXPORT phasorTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})

set(headers ${CMAKE_INSTALL_INCLUDEDIR}/phasor)
install(FILES client.h connection.h device_memory.h options.h position_list.h shared_memory.h stream.h tensor.h
  DESTINATION ${headers}/client)
install(FILES testing/mock_connection.h DESTINATION ${headers}/client/testing)
set(kernel_headers
    backend/batch base/dtype base/host_device math/fixed_position math/log_buckets math/phase math/sincos math/xpos
    ops/bias_rule ops/pairing ops/phase_table ops/row_layout plan/bias_rule plan/parity/tables plan/parity_difference
    plan/parity_report plan/phase_table plan/plan plan/plan_details plan/row_layout request/request spec/presets spec/spec
    tensor/pieces tensor/positions tensor/table tensor/tensor_desc)
foreach(header IN LISTS kernel_headers)
  get_filename_component(folder ${header} DIRECTORY)
  install(FILES ${PROJECT_SOURCE_DIR}/kernels/${header}.h DESTINATION ${headers}/kernels/${folder})
endforeach()

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/phasor)
install(EXPORT phasorTargets NAMESPACE phasor:: DESTINATION ${package})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/phasorConfig.cmake.in
  ${PROJECT_BINARY_DIR}/phasorConfig.cmake INSTALL_DESTINATION ${package})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/phasorConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/phasorConfig.cmake
  ${PROJECT_BINARY_DIR}/phasorConfigVersion.cmake DESTINATION ${package})

list(JOIN PHASOR_PC_LIBS " " PHASOR_PC_LIBS)
list(JOIN PHASOR_PC_REQUIRES " " PHASOR_PC_REQUIRES)
file(RELATIVE_PATH PHASOR_PC_UP /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(${PROJECT_SOURCE_DIR}/cmake/phasor.pc.in ${PROJECT_BINARY_DIR}/phasor.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/phasor.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
