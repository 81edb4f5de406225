// SPDX-License-Identifier: Apache-2.0
// Makes INVALID_ARGUMENT statuses. Each message begins with the path of the field.
// Threads: pure functions.
#ifndef PHASOR_KERNELS_BASE_INVALID_H_
#define PHASOR_KERNELS_BASE_INVALID_H_

#include <string_view>

#include "absl/status/status.h"
#include "kernels/base/text.h"

namespace phasor {

// INVALID_ARGUMENT with the pieces joined. The first piece is, or begins with, the field's path.
template <typename... T>
absl::Status Invalid(const T&... message) {
  return absl::InvalidArgumentError(StrCat(message...));
}

// INVALID_ARGUMENT "path: message".
template <typename... T>
absl::Status InvalidAt(std::string_view path, const T&... message) {
  return Invalid(path, ": ", message...);
}

}  // namespace phasor

#endif  // PHASOR_KERNELS_BASE_INVALID_H_
