// SPDX-License-Identifier: Apache-2.0
// Memory that the host fills and a device reads. Put returns the address that a value will have on
// the device.
#ifndef PHASOR_KERNELS_CUDA_ARENA_H_
#define PHASOR_KERNELS_CUDA_ARENA_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <type_traits>

#include "absl/types/span.h"

namespace phasor::cuda {

inline constexpr int64_t kArenaAlignment = 16;

constexpr int64_t AlignUp(int64_t bytes, int64_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

// Appends values to memory that it borrows. Aborts if they do not fit, so the caller must count the
// bytes first. Threads: one thread at a time.
class Arena {
 public:
  // Only counts bytes and stores nothing. The pointers that it returns must not be used.
  Arena() = default;
  // `host` and `device` must be aligned to kArenaAlignment and hold `capacity` bytes. They may be
  // the same memory.
  Arena(std::byte* host, std::byte* device, int64_t capacity)
      : host_(host), device_(device), capacity_(capacity) {}

  // Copies values and returns their address on the device.
  template <typename T>
  const T* Put(absl::Span<const T> values) {
    static_assert(std::is_trivially_copyable_v<T>);
    return reinterpret_cast<const T*>(
        PutBytes(values.data(), static_cast<int64_t>(values.size() * sizeof(T))));
  }

  // The same for `bytes` bytes at any alignment.
  const std::byte* PutBytes(const void* from, int64_t bytes) {
    const int64_t at = Reserve(bytes);
    if (host_ == nullptr) return nullptr;
    if (bytes > 0) std::memcpy(host_ + at, from, static_cast<size_t>(bytes));
    return device_ + at;
  }

  int64_t used() const { return used_; }

 private:
  int64_t Reserve(int64_t bytes) {
    const int64_t at = used_;
    used_ = AlignUp(used_ + bytes, kArenaAlignment);
    if (host_ != nullptr && used_ > capacity_) std::abort();
    return at;
  }

  std::byte* host_ = nullptr;
  std::byte* device_ = nullptr;
  int64_t capacity_ = 0;
  int64_t used_ = 0;
};

}  // namespace phasor::cuda

#endif  // PHASOR_KERNELS_CUDA_ARENA_H_
