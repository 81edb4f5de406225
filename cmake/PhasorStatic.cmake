# SPDX-License-Identifier: Apache-2.0
# phasor_prefer_static_libraries(): makes each imported library of this directory link its archive
# instead of its shared object, if there is one beside it. Debian's CMake packages of gRPC and
# Abseil name only shared objects, but their dependency lists are complete, so static linking works.
include_guard(GLOBAL)

set(PHASOR_PIC_LIBRARIES "" CACHE PATH
  "Archives that replace those of the system, of deploy/pic-libraries.sh: the Python module then needs no shared gRPC")

function(phasor_prefer_static_libraries)
  get_property(imported DIRECTORY ${PROJECT_SOURCE_DIR} PROPERTY IMPORTED_TARGETS)
  foreach(target IN LISTS imported)
    get_target_property(type ${target} TYPE)
    if(NOT type MATCHES "SHARED_LIBRARY|UNKNOWN_LIBRARY|INTERFACE_LIBRARY")
      continue()
    endif()
    foreach(property IN ITEMS IMPORTED_LOCATION IMPORTED_LOCATION_NONE IMPORTED_LOCATION_RELEASE
                              INTERFACE_LINK_LIBRARIES)
      get_target_property(value ${target} ${property})
      if(value)
        phasor_archives_of("${value}" archives)
        set_target_properties(${target} PROPERTIES ${property} "${archives}")
      endif()
    endforeach()
  endforeach()
endfunction()

# Replaces /path/libx.so* by /path/libx.a, and -lx by libx.a, if the archive exists, or by that of
# PHASOR_PIC_LIBRARIES. Leaves the C library.
function(phasor_archives_of libraries result)
  set(archives)
  foreach(library IN LISTS libraries)
    string(REGEX REPLACE "\\.so[.0-9]*$" ".a" archive "${library}")
    if(library MATCHES "^-l" AND NOT library MATCHES "^-l(atomic|dl|m|pthread|rt)$")
      string(SUBSTRING ${library} 2 -1 name)
      find_library(PHASOR_ARCHIVE_${name} lib${name}.a)
      mark_as_advanced(PHASOR_ARCHIVE_${name})
      set(archive "${PHASOR_ARCHIVE_${name}}")
    endif()
    get_filename_component(file "${archive}" NAME)
    if(PHASOR_PIC_LIBRARIES AND file MATCHES "\\.a$" AND EXISTS "${PHASOR_PIC_LIBRARIES}/${file}")
      set(archive "${PHASOR_PIC_LIBRARIES}/${file}")
    endif()
    if(IS_ABSOLUTE "${archive}" AND EXISTS "${archive}")
      set(library "${archive}")
    endif()
    list(APPEND archives "${library}")
  endforeach()
  set(${result} "${archives}" PARENT_SCOPE)
endfunction()
