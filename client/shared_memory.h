// SPDX-License-Identifier: Apache-2.0
// SharedMemory: memory that a client and its server on the same host both map.
#ifndef PHASOR_CLIENT_SHARED_MEMORY_H_
#define PHASOR_CLIENT_SHARED_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace phasor {

// A piece of memory from Client::AllocateShared. Owns the memory and its lease.
// Threads: any, as with ordinary memory; moving it needs exclusive access.
class SharedMemory {
 public:
  SharedMemory() = default;
  // For connections. Destroying `owner` frees the memory.
  SharedMemory(std::shared_ptr<void> owner, std::byte* data, int64_t size, bool shared)
      : owner_(std::move(owner)), data_(data), size_(size), shared_(shared) {}
  // Ordinary memory of this process. RESOURCE_EXHAUSTED: it cannot be allocated. INVALID_ARGUMENT:
  // size < 0.
  static absl::StatusOr<SharedMemory> Ordinary(int64_t size);

  SharedMemory(SharedMemory&&) = default;
  SharedMemory& operator=(SharedMemory&&) = default;

  // 64-byte aligned. Zeros if it is shared, otherwise uninitialised.
  std::byte* data() const { return data_; }
  int64_t size() const { return size_; }
  // Whether a server maps the memory. If that server ends, calls send the bytes instead.
  bool shared() const { return shared_; }
  // The whole memory as elements of type T.
  template <typename T>
  absl::Span<T> span() const {
    return {reinterpret_cast<T*>(data_), static_cast<size_t>(size_) / sizeof(T)};
  }

 private:
  std::shared_ptr<void> owner_;
  std::byte* data_ = nullptr;
  int64_t size_ = 0;
  bool shared_ = false;
};

}  // namespace phasor

#endif  // PHASOR_CLIENT_SHARED_MEMORY_H_
