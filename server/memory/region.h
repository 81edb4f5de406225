// SPDX-License-Identifier: Apache-2.0
// Region: POSIX shared memory of a client, which is read and written by copying.
//
// It is never mapped: if a client shrank mapped memory, accessing it would end this process
// (SIGBUS). Reads and writes through a descriptor come back short instead.
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

// The place of a region: bytes [offset, offset + bytes) of the shared memory `key`.
struct RegionPlace {
  std::string key = {};
  int64_t offset = 0;
  int64_t bytes = 0;
  bool read_only = false;  // never written
};

// An open region. Owns a descriptor. The client may change its bytes at any time. Threads: any.
class Region {
 public:
  // Opens a region without blocking. If this process may not write the memory, opens it for reading
  // only. `paths` are the names of the fields in the request.
  // INVALID_ARGUMENT: the key is not a name, or the memory ends before the region. NOT_FOUND: no
  // such memory. PERMISSION_DENIED: it may not be opened.
  struct Paths {
    std::string_view key = "key";
    std::string_view bytes = "byte_size";
  };
  static absl::StatusOr<std::shared_ptr<const Region>> Open(RegionPlace place, const Paths& paths);
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  const RegionPlace& place() const { return place_; }

  // INVALID_ARGUMENT: bytes [offset, offset + bytes) are not inside the region.
  absl::Status CheckRange(int64_t offset, int64_t bytes, const std::string& path) const;

  // PERMISSION_DENIED: the region may not be written.
  absl::Status CheckWritable(const std::string& path) const;

  // Copy from or to a range that CheckRange accepted. INVALID_ARGUMENT: the client has shrunk its
  // memory. PERMISSION_DENIED: it is read-only. RESOURCE_EXHAUSTED: the system has no pages for
  // parts that the client never wrote. INTERNAL: another error of the system.
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
