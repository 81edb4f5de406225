// SPDX-License-Identifier: Apache-2.0
// Joins and shortens text. StrCat is absl::StrCat that also takes std::string_view: the Abseil of
// Debian 12 is built with its own string_view. Threads: pure functions.
#ifndef PHASOR_KERNELS_BASE_TEXT_H_
#define PHASOR_KERNELS_BASE_TEXT_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace phasor {

template <typename T>
decltype(auto) TextPiece(const T& piece) {
  if constexpr (std::is_same_v<T, std::string_view>) {
    return absl::string_view(piece.data(), piece.size());
  } else {
    return (piece);
  }
}

// Joins the pieces (text and numbers).
template <typename... T>
std::string StrCat(const T&... pieces) {
  return absl::StrCat(TextPiece(pieces)...);
}

// The text; if it is longer than `max_bytes` (>= 3), its beginning and "...", at most `max_bytes`
// in all. Error messages show a caller's text this way, because it may be megabytes long. Never
// cuts inside a UTF-8 character.
inline std::string Shown(std::string_view text, size_t max_bytes = 64) {
  constexpr std::string_view kEllipsis = "...";
  if (text.size() <= max_bytes) return std::string(text);
  size_t end = max_bytes - kEllipsis.size();
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return std::string(text.substr(0, end)).append(kEllipsis);
}

}  // namespace phasor

#endif  // PHASOR_KERNELS_BASE_TEXT_H_
