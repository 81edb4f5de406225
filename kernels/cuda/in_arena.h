// SPDX-License-Identifier: Apache-2.0
// A reference to values in an arena (kernels/cuda/arena.h), as kernels read it.
#ifndef PHASOR_KERNELS_CUDA_IN_ARENA_H_
#define PHASOR_KERNELS_CUDA_IN_ARENA_H_

#include <cstddef>
#include <cstdint>

#include "kernels/base/host_device.h"

namespace phasor::cuda {

// An array in an arena, or nothing. Threads: a plain value.
template <typename T>
struct InArena {
  int64_t at = -1;  // bytes from the arena's begin

  PHASOR_HD bool empty() const { return at < 0; }
  // Needs !empty().
  PHASOR_HD const T* In(const std::byte* arena) const {
    return reinterpret_cast<const T*>(arena + at);
  }
};

}  // namespace phasor::cuda

#endif  // PHASOR_KERNELS_CUDA_IN_ARENA_H_
