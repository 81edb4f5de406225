// SPDX-License-Identifier: Apache-2.0
// Memory that a client shares as a sealed memfd, mapped.
//
// Mapped memory that its owner shrinks ends the process that touches it (SIGBUS). A memfd sealed
// with F_SEAL_SHRINK cannot shrink, whatever its owner does, so this is safe; other memory is
// refused. Memory that is mapped to be written is sealed with F_SEAL_FUTURE_WRITE too, so that its
// pages stay: mappings that are there can be written as before, new ones cannot. The bytes may
// change at any time: numbers that are checked must be copied first.
#ifndef PHASOR_SERVER_MEMORY_SEALED_MEMORY_H_
#define PHASOR_SERVER_MEMORY_SEALED_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace phasor::memory {

// Threads: any. Owns a mapping.
class SealedMemory {
 public:
  // Maps all of the memory behind `fd`, which stays the caller's, to be read and, unless it is
  // sealed against writing, to be written. INVALID_ARGUMENT: no memfd, not sealed, empty, not all
  // of it allocated, or it takes no seal that keeps its pages; RESOURCE_EXHAUSTED: it cannot be
  // mapped.
  static absl::StatusOr<std::shared_ptr<const SealedMemory>> Map(int fd);
  // Size of the memory behind `fd` if Map would take it, with its errors.
  static absl::StatusOr<int64_t> SizeOf(int fd);
  ~SealedMemory();
  SealedMemory(const SealedMemory&) = delete;
  SealedMemory& operator=(const SealedMemory&) = delete;

  int64_t bytes() const { return bytes_; }
  bool writable() const { return writable_; }

  // Bytes [offset, offset + bytes). INVALID_ARGUMENT: not all inside; messages begin with `path`.
  absl::StatusOr<const std::byte*> Read(int64_t offset, int64_t bytes,
                                        const std::string& path) const;
  // The same to write. PERMISSION_DENIED: the memory is sealed against writing.
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
