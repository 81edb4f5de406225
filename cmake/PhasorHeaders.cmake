# SPDX-License-Identifier: Apache-2.0
# phasor_public_headers(FOLDER): writes the public headers to FOLDER/phasor, as users include them.
#
# Public is every header in client/ itself and in client/testing/, and every header that one of those
# includes. client/x.h becomes <phasor/x.h>, and kernels/room/x.h becomes <phasor/kernels/room/x.h>. Include guards
# stay as they are, so that a source that includes both a header and its copy sees one definition. docs/adr/0022 says why.
include_guard(GLOBAL)

function(phasor_public_headers folder)
  file(GLOB waiting RELATIVE ${PROJECT_SOURCE_DIR} CONFIGURE_DEPENDS
    ${PROJECT_SOURCE_DIR}/client/*.h ${PROJECT_SOURCE_DIR}/client/testing/*.h)
  set(public ${waiting})
  while(waiting)
    list(POP_FRONT waiting header)
    phasor_includes_of(${header} included)
    list(REMOVE_ITEM included ${public})
    list(APPEND waiting ${included})
    list(APPEND public ${included})
  endwhile()
  set(written)
  foreach(header IN LISTS public)
    phasor_write_public_header(${header} ${folder} copy)
    list(APPEND written ${copy})
  endforeach()
  # A header that is no longer public must not stay.
  file(GLOB_RECURSE old ${folder}/*)
  list(REMOVE_ITEM old ${written})
  if(old)
    file(REMOVE ${old})
  endif()
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${public})
endfunction()

# The headers of this project that a public header includes, by their paths from the root.
function(phasor_includes_of header result)
  file(STRINGS ${PROJECT_SOURCE_DIR}/${header} lines REGEX "^#include \"(client|kernels|proto|server)/")
  list(TRANSFORM lines REPLACE "^#include \"([^\"]+)\".*" "\\1")
  foreach(included IN LISTS lines)
    if(NOT EXISTS ${PROJECT_SOURCE_DIR}/${included})
      message(FATAL_ERROR "${header} includes ${included}, which does not exist")
    elseif(NOT included MATCHES "^(client/[^/]+\\.h$|client/testing/|kernels/)")
      message(FATAL_ERROR "${header} is public and includes ${included}, which is not: public are client/*.h, "
        "client/testing/*.h and what they need of kernels/")
    endif()
  endforeach()
  list(REMOVE_DUPLICATES lines)
  set(${result} "${lines}" PARENT_SCOPE)
endfunction()

# Writes only what has changed: a new time on an old header would compile its users again.
function(phasor_write_public_header header folder result)
  file(READ ${PROJECT_SOURCE_DIR}/${header} text)
  string(REPLACE "\n#include \"client/" "\n#include \"phasor/" text "${text}")
  string(REPLACE "\n#include \"kernels/" "\n#include \"phasor/kernels/" text "${text}")
  string(REGEX REPLACE "^client/" "" name ${header})
  set(copy ${folder}/phasor/${name})
  set(before)
  if(EXISTS ${copy})
    file(READ ${copy} before)
  endif()
  if(NOT text STREQUAL before)
    file(WRITE ${copy} "${text}")
  endif()
  set(${result} ${copy} PARENT_SCOPE)
endfunction()
