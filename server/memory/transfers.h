// SPDX-License-Identifier: Apache-2.0
// Copies between a call and memory that it is not computed in. That is named regions of the host,
// which are never mapped because their owners may truncate them, and tensors on a device that the
// backend cannot use there.
#ifndef PHASOR_SERVER_MEMORY_TRANSFERS_H_
#define PHASOR_SERVER_MEMORY_TRANSFERS_H_

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

// A checked range of one region.
struct RegionPart {
  std::shared_ptr<const Region> host;    // set for a region of the host
  std::shared_ptr<DeviceRegion> device;  // set for a region of a device
  int64_t offset = 0;
  int64_t bytes = 0;
  std::string path;  // begins the errors of a copy
};

// The copies of one call. They are planned when the call is checked; they take memory when it is
// admitted. Threads: one at a time.
class Transfers {
 public:
  // Plans to read input `slot` of item `item` from `part`.
  void AddInput(size_t item, size_t slot, RegionPart part);
  // Plans to write output `slot` of item `item` to `part`.
  void AddOutput(size_t item, size_t slot, RegionPart part);
  // Notes that item `item` changes an input of its caller in place, in memory of any kind.
  void NoteInPlace(size_t item) { in_place_.push_back(item); }

  bool empty() const { return inputs_.empty() && outputs_.empty(); }
  // Memory that the copies need.
  int64_t bytes() const { return bytes_; }

  // Reads the inputs and points the items at the copies, which live until Release. If an input
  // cannot be read, the error of Region::Read or DeviceRegion::Read becomes the item's status.
  // UNAVAILABLE: no memory.
  absl::Status Fetch(engine::BufferPool& pool, absl::Span<engine::Item> items);
  void Release() { copies_.clear(); }

  // Writes the outputs of the items that succeeded; of a pool of keys, only what the move wrote. If
  // an output cannot be written, its item fails with the error of Write, or with ABORTED if an
  // input of its caller may have been changed.
  void Store(absl::Span<const engine::Item> items, engine::Result& result) const;

 private:
  struct Transfer {
    size_t item;
    size_t slot;
    RegionPart part;
  };

  std::vector<Transfer> inputs_;
  std::vector<Transfer> outputs_;
  std::vector<size_t> in_place_;
  std::vector<engine::BufferRef> copies_;
  int64_t bytes_ = 0;
};

}  // namespace phasor::memory

#endif  // PHASOR_SERVER_MEMORY_TRANSFERS_H_
