// SPDX-License-Identifier: Apache-2.0
// The parts of named regions that a message uses, as memory of the server's own: named regions are
// never mapped, because their owners may cut them short.
#ifndef PHASOR_SERVER_MEMORY_REGION_COPIES_H_
#define PHASOR_SERVER_MEMORY_REGION_COPIES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/engine/call.h"
#include "server/memory/region.h"

namespace phasor::memory {

// Takes addresses when a message is checked, and memory only when its call is admitted: that of
// bytes that are fetched or computed. Parts of one region keep their distances, so what overlaps
// there overlaps here. Threads: one at a time.
class RegionCopies {
 public:
  RegionCopies() = default;
  ~RegionCopies();
  RegionCopies(const RegionCopies&) = delete;
  RegionCopies& operator=(const RegionCopies&) = delete;

  // Where the copy of bytes [offset, offset + bytes) will be, a range of `region` that was checked.
  // `item`: its place in the call. Errors of the copy will begin with `path`. UNAVAILABLE: no
  // addresses.
  absl::StatusOr<const std::byte*> Input(std::shared_ptr<const memory::Region> region,
                                         int64_t offset, int64_t bytes, size_t item,
                                         const std::string& path);
  // The same of an output. `in_place`: instead of an input, which was named before.
  absl::StatusOr<std::byte*> Output(std::shared_ptr<const memory::Region> region, int64_t offset,
                                    int64_t bytes, size_t item, bool in_place,
                                    const std::string& path);

  // Tells that `item` has an output in place, in memory that may be no copy.
  void NoteInPlace(size_t item) { in_place_.push_back(item); }

  // Memory that the copies take.
  int64_t bytes() const { return bytes_; }

  // Reads all inputs. An item whose memory cannot be read becomes its error, Region::Read's.
  void Fetch(absl::Span<engine::Item> items) const;
  // Writes the outputs of the items that succeeded. An item whose memory cannot be written fails
  // with Region::Write's error; one in place with ABORTED, because some of it may be written.
  void Store(absl::Span<engine::ItemResult> results) const;

 private:
  struct Copy {
    std::shared_ptr<const memory::Region> region;
    std::byte* begin;  // of the whole region
  };
  struct Transfer {
    size_t copy;
    int64_t offset;
    int64_t bytes;
    size_t item;
    std::string path;
  };

  // The place of `region` among the copies.
  absl::StatusOr<size_t> Find(std::shared_ptr<const memory::Region> region);
  absl::StatusOr<std::byte*> Add(std::shared_ptr<const memory::Region> region, int64_t offset,
                                 int64_t bytes, size_t item, const std::string& path,
                                 std::vector<Transfer>* transfers);

  std::vector<Copy> copies_;
  std::vector<Transfer> inputs_;
  std::vector<Transfer> outputs_;
  std::vector<size_t> in_place_;  // items that have outputs in place
  int64_t bytes_ = 0;
};

}  // namespace phasor::memory

#endif  // PHASOR_SERVER_MEMORY_REGION_COPIES_H_
