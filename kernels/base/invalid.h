// SPDX-License-Identifier: Apache-2.0
// INVALID_ARGUMENT. Messages begin with the path of the field. Threads: pure functions.
#ifndef PHASOR_KERNELS_BASE_INVALID_H_
#define PHASOR_KERNELS_BASE_INVALID_H_

#include <string_view>

#include "absl/status/status.h"
#include "kernels/base/text.h"

namespace phasor {

// The pieces of a message, which begins with its path.
template <typename... T>
absl::Status Invalid(const T&... message) {
  return absl::InvalidArgumentError(StrCat(message...));
}

// "path: message".
template <typename... T>
absl::Status InvalidAt(std::string_view path, const T&... message) {
  return Invalid(path, ": ", message...);
}

}  // namespace phasor

#endif  // PHASOR_KERNELS_BASE_INVALID_H_
