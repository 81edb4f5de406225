// SPDX-License-Identifier: Apache-2.0
// A part of shared memory that a client named, read and written by copy.
//
// Never mapped: a client that shrinks its memory while it is mapped here would end the process
// (SIGBUS). Reads and writes of a descriptor come back short instead.
#ifndef PHASOR_SERVER_MEMORY_REGION_H_
#define PHASOR_SERVER_MEMORY_REGION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace phasor::memory {

// Where a region is: bytes [offset, offset + bytes) of the shared memory called `key`.
struct RegionPlace {
  std::string key = {};
  int64_t offset = 0;
  int64_t bytes = 0;
  bool read_only = false;  // nothing is ever written there
};

// Threads: any; the client may change the bytes at any time. Owns a descriptor.
class Region {
 public:
  // Opens it, without waiting for anybody: for reading only where writing is not allowed. `paths`
  // are what the request calls its fields.
  // INVALID_ARGUMENT: the key is no name, or the memory ends before the region does;
  // NOT_FOUND: no such memory; PERMISSION_DENIED: it may not be opened.
  struct Paths {
    std::string_view key = "key";
    std::string_view bytes = "byte_size";
  };
  static absl::StatusOr<std::shared_ptr<const Region>> Open(RegionPlace place, const Paths& paths);
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  const RegionPlace& place() const { return place_; }

  // That bytes [offset, offset + bytes) are inside. INVALID_ARGUMENT.
  absl::Status CheckRange(int64_t offset, int64_t bytes, const std::string& path) const;

  // That it may be written. PERMISSION_DENIED.
  absl::Status CheckWritable(const std::string& path) const;

  // Both take a range that CheckRange accepted. INVALID_ARGUMENT: the client has shrunk its memory;
  // PERMISSION_DENIED: it may only be read; RESOURCE_EXHAUSTED: the system has no pages for what
  // the client left empty; INTERNAL: the system's error.
  absl::Status Read(int64_t offset, int64_t bytes, std::byte* out, const std::string& path) const;
  absl::Status Write(int64_t offset, int64_t bytes, const std::byte* in,
                     const std::string& path) const;

 private:
  Region(RegionPlace place, int fd, bool writable)
      : place_(std::move(place)), fd_(fd), writable_(writable) {}

  const RegionPlace place_;
  const int fd_;
  const bool writable_;
};

}  // namespace phasor::memory

#endif  // PHASOR_SERVER_MEMORY_REGION_H_
