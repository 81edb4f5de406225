// SPDX-License-Identifier: Apache-2.0
// What a call does before and after its computation because of memory that clients share: it copies
// tensors on a device that the backend cannot use there, and it checks that the named regions it
// used are still whole.
#ifndef PHASOR_SERVER_MEMORY_TRANSFERS_H_
#define PHASOR_SERVER_MEMORY_TRANSFERS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "server/engine/buffer.h"
#include "server/engine/call.h"
#include "server/memory/device_region.h"
#include "server/memory/region.h"

namespace phasor::memory {

// A checked range of one region of a device.
struct DevicePart {
  std::shared_ptr<DeviceRegion> region;
  int64_t offset = 0;
  int64_t bytes = 0;
};

// The transfers of one call. They are planned when the call is checked; copies take memory when it
// is admitted. Threads: one at a time.
class Transfers {
 public:
  // Plans to read input `slot` of item `item` from `part`.
  void AddInput(size_t item, size_t slot, DevicePart part);
  // Plans to write output `slot` of item `item` to `part`.
  void AddOutput(size_t item, size_t slot, DevicePart part);
  // Keeps a named region open that item `item` uses. `path` begins its errors.
  void AddRegion(size_t item, std::shared_ptr<const Region> region, std::string path);
  // Notes that item `item` changes an input of its caller in place, in memory of any kind. `dirty`:
  // set if the item fails then; nullptr: not needed.
  void NoteInPlace(size_t item, std::atomic<bool>* dirty) { in_place_.push_back({item, dirty}); }

  // Memory that the copies need.
  int64_t bytes() const { return bytes_; }

  // Reads the inputs and points the items at the copies, which live until Release. The error of
  // Region::CheckWhole or DeviceRegion::Read becomes the item's status. UNAVAILABLE: no memory.
  absl::Status Fetch(engine::BufferPool& pool, absl::Span<engine::Item> items);
  void Release() { copies_.clear(); }

  // Writes the outputs of the items that succeeded. An item fails with the error of
  // Region::CheckWhole or DeviceRegion::Write, or with ABORTED if an input of its caller may have
  // been changed.
  void Store(engine::Result& result) const;

 private:
  struct Copy {
    size_t item;
    size_t slot;
    DevicePart part;
  };
  struct Use {
    size_t item;
    std::shared_ptr<const Region> region;
    std::string path;
  };

  struct InPlace {
    size_t item;
    std::atomic<bool>* dirty;
  };

  void Fail(size_t item, const absl::Status& why, engine::Result& result) const;

  std::vector<Copy> inputs_;
  std::vector<Copy> outputs_;
  std::vector<Use> regions_;
  std::vector<InPlace> in_place_;
  std::vector<engine::BufferRef> copies_;
  int64_t bytes_ = 0;
};

}  // namespace phasor::memory

#endif  // PHASOR_SERVER_MEMORY_TRANSFERS_H_
