// SPDX-License-Identifier: Apache-2.0
// Memory that a client shares with its server.
#ifndef PHASOR_CLIENT_SHARED_MEMORY_H_
#define PHASOR_CLIENT_SHARED_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace phasor {

// Threads: as the memory. Owns it, and its lease.
class SharedMemory {
 public:
  SharedMemory() = default;
  // For connections. `owner` frees the memory.
  SharedMemory(std::shared_ptr<void> owner, std::byte* data, int64_t size, bool shared)
      : owner_(std::move(owner)), data_(data), size_(size), shared_(shared) {}
  // Memory of this process. RESOURCE_EXHAUSTED: there is none; INVALID_ARGUMENT: size < 0.
  static absl::StatusOr<SharedMemory> Ordinary(int64_t size);

  SharedMemory(SharedMemory&&) = default;
  SharedMemory& operator=(SharedMemory&&) = default;

  // 64-byte aligned. Zeros if it is shared, else not initialised.
  std::byte* data() const { return data_; }
  int64_t size() const { return size_; }
  // Whether a server maps it. If that server ends, calls send the bytes instead.
  bool shared() const { return shared_; }
  // All of it as elements.
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
