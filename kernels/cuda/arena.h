// SPDX-License-Identifier: Apache-2.0
// Memory that the host fills and kernels read: items, and the numbers that they refer to. Values
// refer to one another by their distance from the arena's begin, so the arena may be copied to any
// place, also into the arguments of a kernel.
#ifndef PHASOR_KERNELS_CUDA_ARENA_H_
#define PHASOR_KERNELS_CUDA_ARENA_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <type_traits>

#include "absl/types/span.h"
#include "kernels/cuda/in_arena.h"

namespace phasor::cuda {

inline constexpr int64_t kArenaAlignment = 16;

constexpr int64_t AlignUp(int64_t bytes, int64_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

// Appends values to memory that it borrows. Aborts if they do not fit, so the caller must count the
// bytes first. Threads: one thread at a time.
class Arena {
 public:
  // Only counts bytes and stores nothing.
  Arena() = default;
  // `host` must be aligned to kArenaAlignment and hold `capacity` bytes.
  Arena(std::byte* host, int64_t capacity) : host_(host), capacity_(capacity) {}

  // Copies values.
  template <typename T>
  InArena<T> Put(absl::Span<const T> values) {
    static_assert(std::is_trivially_copyable_v<T>);
    return {PutBytes(values.data(), static_cast<int64_t>(values.size() * sizeof(T))).at};
  }

  // The same for `bytes` bytes at any alignment.
  InArena<std::byte> PutBytes(const void* from, int64_t bytes) {
    const int64_t at = used_;
    used_ = AlignUp(used_ + bytes, kArenaAlignment);
    if (host_ == nullptr) return {at};
    if (used_ > capacity_) std::abort();
    if (bytes > 0) std::memcpy(host_ + at, from, static_cast<size_t>(bytes));
    return {at};
  }

  const std::byte* host() const { return host_; }
  int64_t used() const { return used_; }

 private:
  std::byte* host_ = nullptr;
  int64_t capacity_ = 0;
  int64_t used_ = 0;
};

}  // namespace phasor::cuda

#endif  // PHASOR_KERNELS_CUDA_ARENA_H_
