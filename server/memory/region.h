// SPDX-License-Identifier: Apache-2.0
// Region: POSIX shared memory of a client, which is computed on where it lies.
//
// The client may shrink it at any time. Reads then return zeros and writes are lost, until whoever
// used the memory asks CheckWhole.
#ifndef PHASOR_SERVER_MEMORY_REGION_H_
#define PHASOR_SERVER_MEMORY_REGION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/base/file_descriptor.h"
#include "server/memory/guarded_mapping.h"

namespace phasor::memory {

// The place of a region: bytes [offset, offset + bytes) of the shared memory `key`.
struct RegionPlace {
  std::string key = {};
  int64_t offset = 0;
  int64_t bytes = 0;
  bool read_only = false;  // never written
};

// An open region. Owns a descriptor and a mapping. The client may change its bytes at any time.
// Threads: any.
class Region {
 public:
  // Opens a region without blocking. If this process may not write the memory, opens it for reading
  // only. `paths` are the names of the fields in the request.
  // INVALID_ARGUMENT: the key is not a name, or the memory ends before the region. NOT_FOUND: no
  // such memory. PERMISSION_DENIED: it may not be opened. RESOURCE_EXHAUSTED: no descriptor, or no
  // room for the mapping.
  struct Paths {
    std::string_view key = "key";
    std::string_view bytes = "byte_size";
    std::string_view name = "name";  // RegionStore::Register reads it
  };
  static absl::StatusOr<std::shared_ptr<const Region>> Open(RegionPlace place, const Paths& paths);
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  const RegionPlace& place() const { return place_; }

  // The address of bytes [offset, offset + bytes). INVALID_ARGUMENT "<path>: ...": they are not all
  // inside.
  absl::StatusOr<std::byte*> At(int64_t offset, int64_t bytes, const std::string& path) const;

  // PERMISSION_DENIED: the region may not be written.
  absl::Status CheckWritable(const std::string& path) const;

  // Whether all memory was there so far. INVALID_ARGUMENT: the client has shrunk it.
  // RESOURCE_EXHAUSTED: the system had no pages for parts that the client never wrote. If somebody
  // had touched what was missing, the region stays unusable.
  absl::Status CheckWhole(const std::string& path) const;

 private:
  Region(RegionPlace place, FileDescriptor fd, bool writable,
         std::unique_ptr<const GuardedMapping> mapping)
      : place_(std::move(place)),
        fd_(std::move(fd)),
        writable_(writable),
        mapping_(std::move(mapping)) {}

  const RegionPlace place_;
  const FileDescriptor fd_;
  const bool writable_;
  const std::unique_ptr<const GuardedMapping> mapping_;
};

}  // namespace phasor::memory

#endif  // PHASOR_SERVER_MEMORY_REGION_H_
