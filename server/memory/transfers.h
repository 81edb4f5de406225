// SPDX-License-Identifier: Apache-2.0
// Copies between a call and memory that it is not computed in: named regions of the host, which are
// never mapped because their owners may cut them short, and tensors on a device that the backend
// does not take there.
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

// A part of one region, which was checked.
struct RegionPart {
  std::shared_ptr<const Region> host;    // or
  std::shared_ptr<DeviceRegion> device;  // the other is nullptr
  int64_t offset = 0;
  int64_t bytes = 0;
  std::string path;  // errors of a copy begin with it
};

// The copies of one call: planned when it is checked, memory is taken when it is admitted.
// Threads: one at a time.
class Transfers {
 public:
  // Input `slot` of item `item` is to be read from `part`.
  void AddInput(size_t item, size_t slot, RegionPart part);
  // Output `slot` is to be written to `part`.
  void AddOutput(size_t item, size_t slot, RegionPart part);
  // Item `item` changes an input of its caller, wherever that lies.
  void NoteInPlace(size_t item) { in_place_.push_back(item); }

  bool empty() const { return inputs_.empty() && outputs_.empty(); }
  // Memory that they take.
  int64_t bytes() const { return bytes_; }

  // Reads the inputs and points the items at them, until Release. An item that cannot be read
  // becomes its error: Region::Read's, DeviceRegion::Read's. UNAVAILABLE: no memory.
  absl::Status Fetch(engine::BufferPool& pool, absl::Span<engine::Item> items);
  void Release() { copies_.clear(); }

  // Writes the outputs of the items that succeeded. An item that cannot be written fails with
  // Write's error; with ABORTED where an input of its caller may be changed already.
  void Store(engine::Result& result) const;

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
