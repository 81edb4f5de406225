// SPDX-License-Identifier: Apache-2.0
// Joins text. absl::StrCat for std::string_view too: Debian 12 builds Abseil with a string_view of
// its own. Threads: pure functions.
#ifndef PHASOR_KERNELS_TEXT_H_
#define PHASOR_KERNELS_TEXT_H_

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

}  // namespace phasor

#endif  // PHASOR_KERNELS_TEXT_H_
