// SPDX-License-Identifier: Apache-2.0
// SealedMemory: a client's memory, shared as a sealed memfd and mapped.
//
// If an owner shrinks mapped memory, whoever touches it gets SIGBUS (see guarded_mapping.h). A
// memfd sealed with F_SEAL_SHRINK cannot shrink, so it needs no guard; other memory is refused.
// Memory that is mapped for writing is also sealed with F_SEAL_FUTURE_WRITE, so that its pages
// stay: existing mappings can still write, but new ones cannot. The bytes may change at any time,
// so numbers that are checked must be copied first.
#ifndef PHASOR_SERVER_MEMORY_SEALED_MEMORY_H_
#define PHASOR_SERVER_MEMORY_SEALED_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace phasor::memory {

// The mapped memory. Owns the mapping. Threads: any.
class SealedMemory {
 public:
  // Maps the memory of `fd`, which the caller keeps: for reading, and also for writing unless it is
  // sealed against that. INVALID_ARGUMENT: not a memfd, not sealed, empty, not fully allocated, or
  // it does not accept the seal that keeps its pages. RESOURCE_EXHAUSTED: it cannot be mapped.
  static absl::StatusOr<std::shared_ptr<const SealedMemory>> Map(int fd);
  // The size of the memory of `fd`, if Map would accept it. Otherwise Map's error.
  static absl::StatusOr<int64_t> SizeOf(int fd);
  ~SealedMemory();
  SealedMemory(const SealedMemory&) = delete;
  SealedMemory& operator=(const SealedMemory&) = delete;

  int64_t bytes() const { return bytes_; }
  bool writable() const { return writable_; }

  // The address of bytes [offset, offset + bytes). INVALID_ARGUMENT "<path>: ...": they are not all
  // inside.
  absl::StatusOr<const std::byte*> Read(int64_t offset, int64_t bytes,
                                        const std::string& path) const;
  // The address for writing. PERMISSION_DENIED: the memory is sealed against writing.
  absl::StatusOr<std::byte*> Write(int64_t offset, int64_t bytes, const std::string& path) const;

 private:
  SealedMemory(std::byte* data, int64_t bytes, bool writable)
      : data_(data), bytes_(bytes), writable_(writable) {}

  std::byte* const data_;
  const int64_t bytes_;
  const bool writable_;
};

}  // namespace phasor::memory

#endif  // PHASOR_SERVER_MEMORY_SEALED_MEMORY_H_
