// SPDX-License-Identifier: Apache-2.0
// The ordinary memory that stands in for shared memory when no server maps it.
#include "client/shared_memory.h"

#include "client/tensor.h"
#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"

namespace phasor {

absl::StatusOr<SharedMemory> SharedMemory::Ordinary(int64_t size) {
  if (size < 0) return Invalid("bytes: ", size, "; must be at least 0");
  PHASOR_ASSIGN_OR_RETURN(Bytes bytes, Bytes::Allocate(size));
  auto owner = std::make_shared<Bytes>(std::move(bytes));
  std::byte* const data = owner->data();
  return SharedMemory(std::move(owner), data, size, false);
}

}  // namespace phasor
