// SPDX-License-Identifier: Apache-2.0
// Joins and shortens text. absl::StrCat for std::string_view too: Debian 12 builds Abseil with a
// string_view of its own. Threads: pure functions.
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

// The pieces (text and numbers) one after another.
template <typename... T>
std::string StrCat(const T&... pieces) {
  return absl::StrCat(TextPiece(pieces)...);
}

// The text, or as much of it as fits into `max_bytes` >= 3 with "..." after it. What a caller sent
// stands in errors so: it may be megabytes. Cuts between the characters of UTF-8.
inline std::string Shown(std::string_view text, size_t max_bytes = 64) {
  constexpr std::string_view kEllipsis = "...";
  if (text.size() <= max_bytes) return std::string(text);
  size_t end = max_bytes - kEllipsis.size();
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return std::string(text.substr(0, end)).append(kEllipsis);
}

}  // namespace phasor

#endif  // PHASOR_KERNELS_BASE_TEXT_H_
