# SPDX-License-Identifier: Apache-2.0
# phasor_embed_text(TARGET FILE SYMBOL): compiles the text of FILE into TARGET as `extern const
# std::string_view SYMBOL` in namespace phasor. Run as a script, this file writes that source.
if(CMAKE_SCRIPT_MODE_FILE)
  file(READ ${INPUT} text)
  if(text MATCHES "\\)embedded\"")
    message(FATAL_ERROR "${INPUT}: contains the end of a raw string literal")
  endif()
  file(WRITE ${OUTPUT} "// Generated from ${INPUT}.
#include <string_view>
namespace phasor {
extern const std::string_view ${SYMBOL};
const std::string_view ${SYMBOL} = R\"embedded(${text})embedded\";
}  // namespace phasor
")
  return()
endif()
include_guard(GLOBAL)
set(PHASOR_EMBED_SCRIPT ${CMAKE_CURRENT_LIST_FILE})

function(phasor_embed_text target file symbol)
  set(input ${CMAKE_CURRENT_SOURCE_DIR}/${file})
  set(output ${CMAKE_CURRENT_BINARY_DIR}/${symbol}.cc)
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -DINPUT=${input} -DOUTPUT=${output} -DSYMBOL=${symbol}
            -P ${PHASOR_EMBED_SCRIPT}
    DEPENDS ${input} ${PHASOR_EMBED_SCRIPT} VERBATIM)
  target_sources(${target} PRIVATE ${output})
endfunction()
