# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` puts where: the client's headers and libraries, found again by find_package(phasor) and by
# pkg-config. No installed file names a folder of this machine, so what is installed may be moved.
include(CMakePackageConfigHelpers)
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/phasor)
file(RELATIVE_PATH PHASOR_PC_UP /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)

# phasor_install_libraries(EXPORT NAME ...): libraries of one component, in phasor-EXPORT-targets.cmake.
function(phasor_install_libraries export)
  install(TARGETS ${ARGN} EXPORT phasor_${export}
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT phasor_development)
  install(EXPORT phasor_${export} FILE phasor-${export}-targets.cmake NAMESPACE phasor::
    DESTINATION ${package} COMPONENT phasor_development)
endfunction()

# phasor_install_pc(FILE DESCRIPTION LIBS ... REQUIRES ...): FILE.pc. LIBS: what needs first, what is needed last.
function(phasor_install_pc PHASOR_PC_NAME PHASOR_PC_DESCRIPTION)
  cmake_parse_arguments(PHASOR_PC "" "" "LIBS;REQUIRES" ${ARGN})
  list(TRANSFORM PHASOR_PC_LIBS PREPEND -l)
  list(JOIN PHASOR_PC_LIBS " " PHASOR_PC_LIBS)
  list(JOIN PHASOR_PC_REQUIRES " " PHASOR_PC_REQUIRES)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/phasor.pc.in ${PROJECT_BINARY_DIR}/${PHASOR_PC_NAME}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${PHASOR_PC_NAME}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
    COMPONENT phasor_development)
endfunction()

install(DIRECTORY ${PROJECT_BINARY_DIR}/include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT phasor_development)

set(core phasor_client_core phasor_kernels phasor_kernels_core)
set(core_requires absl_any_invocable absl_flat_hash_map absl_hash absl_status absl_statusor absl_str_format absl_strings
    absl_synchronization absl_time)
set(system_libraries)
if(PHASOR_HAS_CUDA)
  set(system_libraries dl rt)
endif()
set(PHASOR_COMPONENTS inproc)
phasor_install_libraries(inproc phasor_inproc ${core})
phasor_install_pc(phasor-inproc "in this process" LIBS phasor_inproc ${core} ${system_libraries} REQUIRES ${core_requires})
if(PHASOR_BUILD_RPC)
  list(PREPEND PHASOR_COMPONENTS client)
  phasor_install_libraries(client phasor_client phasor_proto_convert phasor_proto)
  phasor_install_pc(phasor "the C++ client"
    LIBS phasor_client phasor_client_core phasor_proto_convert phasor_proto phasor_kernels phasor_kernels_core ${system_libraries}
    REQUIRES grpc++ protobuf ${core_requires})
endif()

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/phasorConfig.cmake.in
  ${PROJECT_BINARY_DIR}/phasorConfig.cmake INSTALL_DESTINATION ${package})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/phasorConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/phasorConfig.cmake ${PROJECT_BINARY_DIR}/phasorConfigVersion.cmake
  DESTINATION ${package} COMPONENT phasor_development)
