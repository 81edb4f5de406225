# SPDX-License-Identifier: Apache-2.0
# Debian packages, made by CPack: `phasor` (server with its systemd unit, and the command line) and
# `libphasor-dev` (client library and headers). deploy/package.sh makes them, and a tarball.
set(systemd ${CMAKE_CURRENT_SOURCE_DIR}/systemd)
set(debian ${CMAKE_CURRENT_SOURCE_DIR}/debian)

# Only in Debian packages: `cmake --install` leaves the system's folders alone.
install(FILES ${systemd}/phasor.service DESTINATION lib/systemd/system
  COMPONENT phasor_service EXCLUDE_FROM_ALL)
install(FILES ${systemd}/phasor.txtpb DESTINATION /etc/phasor COMPONENT phasor_service EXCLUDE_FROM_ALL)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION share/doc/phasor RENAME copyright
  COMPONENT phasor_service EXCLUDE_FROM_ALL)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION share/doc/libphasor-dev RENAME copyright
  COMPONENT phasor_development_licence EXCLUDE_FROM_ALL)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME phasor)
set(CPACK_PACKAGE_VENDOR phasor)
set(CPACK_PACKAGE_CONTACT "The Phasor authors <phasor@users.noreply.github.com>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_PACKAGE_DIRECTORY ${PROJECT_BINARY_DIR}/package)
set(CPACK_SET_DESTDIR ON)  # because /etc is not below the prefix, which is then:
set(CPACK_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL phasor_programs phasor_service phasor_development phasor_development_licence)
set(CPACK_COMPONENTS_GROUPING ONE_PER_GROUP)
foreach(component IN ITEMS PROGRAMS SERVICE)
  set(CPACK_COMPONENT_PHASOR_${component}_GROUP programs)
endforeach()
foreach(component IN ITEMS DEVELOPMENT DEVELOPMENT_LICENCE)
  set(CPACK_COMPONENT_PHASOR_${component}_GROUP development)
endforeach()
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)

set(CPACK_DEBIAN_PROGRAMS_PACKAGE_NAME phasor)
set(CPACK_DEBIAN_PROGRAMS_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PROGRAMS_PACKAGE_CONTROL_EXTRA
  ${debian}/postinst ${debian}/prerm ${debian}/postrm ${debian}/conffiles)
set(CPACK_DEBIAN_PROGRAMS_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_COMPONENT_GROUP_PROGRAMS_DESCRIPTION
  "The server with its systemd unit, and the phasor command.")

# What a program that links the archives needs.
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libphasor-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "libabsl-dev, libgrpc++-dev, libprotobuf-dev")
set(CPACK_COMPONENT_GROUP_DEVELOPMENT_DESCRIPTION
  "The C++ client: headers, static libraries, find_package(phasor) and phasor.pc.")
include(CPack)
