// SPDX-License-Identifier: Apache-2.0
// Checks of ranges in memory of clients, and the errors that stores of such memory share.
#ifndef PHASOR_SERVER_MEMORY_RANGE_H_
#define PHASOR_SERVER_MEMORY_RANGE_H_

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "kernels/base/invalid.h"
#include "kernels/base/text.h"

namespace phasor::memory {

// INVALID_ARGUMENT: `bytes` bytes from `offset` do not lie within the `size` bytes of `whole`.
inline absl::Status CheckRange(int64_t offset, int64_t bytes, int64_t size, std::string_view whole,
                               std::string_view path) {
  // `offset + bytes` could overflow, the difference cannot.
  const bool inside = offset >= 0 && bytes >= 0 && offset <= size && bytes <= size - offset;
  if (inside) return absl::OkStatus();
  return InvalidAt(path, bytes, " bytes from ", offset, "; must be within the ", size, " bytes of ",
                   whole);
}

// CheckRange for what a client registers. It must have at least 1 byte.
inline absl::Status CheckPlace(int64_t offset, int64_t bytes, int64_t size, std::string_view whole,
                               std::string_view path) {
  if (offset >= 0 && bytes > 0) return CheckRange(offset, bytes, size, whole, path);
  return InvalidAt(path, bytes, " bytes from ", offset,
                   "; must be at least 1 byte from 0 or later");
}

inline absl::Status NotRegistered(std::string_view name, std::string_view path) {
  return absl::NotFoundError(
      StrCat(path, ": region '", Shown(name), "' is not registered; must be registered before"));
}

}  // namespace phasor::memory

#endif  // PHASOR_SERVER_MEMORY_RANGE_H_
