// SPDX-License-Identifier: Apache-2.0
// Binds tensors in shared memory (leased, named or on a device) to the slots of a request's items.
// Finds the memory, checks bounds, and refuses outputs that overlap other tensors. Knows no
// protocol: errors use the field names that the caller passes.
#ifndef PHASOR_SERVER_MEMORY_BINDING_H_
#define PHASOR_SERVER_MEMORY_BINDING_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/tensor/span.h"
#include "kernels/tensor/tensor_desc.h"
#include "server/engine/call.h"
#include "server/memory/device_region_store.h"
#include "server/memory/lease_store.h"
#include "server/memory/region_store.h"
#include "server/memory/transfers.h"

namespace phasor::memory {

// The shared memory of a server. All pointers must outlive its calls.
struct Stores {
  const LeaseStore* leases = nullptr;    // nullptr: leases are off
  RegionStore* regions = nullptr;        // nullptr: named regions are off
  DeviceRegionStore* devices = nullptr;  // nullptr: device memory is off

  bool has_regions() const { return regions != nullptr && regions->enabled(); }
  bool has_devices() const { return devices != nullptr && devices->enabled(); }
};

// The part of the shared memory that one caller may use.
struct CallerMemory {
  Stores stores = {};
  RegionCaller caller = {};
};

// A tensor of a request that is not in its message.
struct SharedTensor {
  bool on_device = false;
  std::string name;  // of a lease or a region
  int64_t offset = 0;
  int64_t reserved_bytes = 0;  // that the caller set aside there; 0: what the tensor needs
  Dtype dtype = Dtype::kFloat32;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;  // in elements; empty: dense
  // Names for errors: the tensor, the name of its memory, and its offset.
  std::string path;
  std::string name_path;
  std::string offset_path;
};

// What the tensors of a call need.
struct Bound {
  std::vector<std::shared_ptr<const void>> held = {};  // memory that the items use
  std::unique_ptr<Transfers> transfers = nullptr;      // nullptr: nothing to do
  int64_t shared_bytes = 0;  // read and written in shared memory, without kInPart inputs
  // Bytes of the server's memory that the copies need.
  int64_t copied_bytes() const { return transfers == nullptr ? 0 : transfers->bytes(); }
};

// Binds the tensors of one message, item after item. Threads: one.
class Binding {
 public:
  // `memory` must outlive it.
  explicit Binding(const CallerMemory& memory) : memory_(memory) {}

  // Errors of the three functions below. FAILED_PRECONDITION: shared memory is off, or the region
  // is dirty. NOT_FOUND: no such lease or name. INVALID_ARGUMENT: the tensor extends beyond its
  // memory, or it is on another device than an earlier tensor of its item. PERMISSION_DENIED: the
  // memory is read-only.

  // Gives input `slot` of `item` its bytes: where they are, or by a transfer.
  absl::Status Input(const SharedTensor& tensor, size_t slot, engine::Item* item);

  // Sets the place of output `slot`. `input`: the tensor that it is computed from, if that is in
  // shared memory too; the output may have the same place. INVALID_ARGUMENT also: strides that are
  // neither empty nor those of the input, strides in memory that is copied, or a place that is no
  // multiple of the element's size.
  absl::Status Output(const SharedTensor& tensor, const SharedTensor* input, size_t slot,
                      engine::Item* item);

  // The same for a cache or a pool, of which only parts are written.
  absl::Status Cache(const SharedTensor& tensor, size_t slot, engine::Item* item);

  // Ends an item; what is bound next belongs to the next item. INVALID_ARGUMENT: an output of the
  // item overlaps another of its tensors and is not in place. Strided tensors may interleave, as
  // queries and keys in rows of a fused buffer do. `status` is the item's own status: if it is an
  // error, the item's tensors are dropped and the error is returned.
  absl::Status EndItem(absl::Status status = absl::OkStatus());

  // Call it after the last item. INVALID_ARGUMENT: an output overlaps a tensor of another item.
  absl::StatusOr<Bound> Finish();

 private:
  // The place of a tensor: leased memory, a named region or device memory.
  struct Place {
    std::shared_ptr<const SealedMemory> leased;
    std::shared_ptr<const Region> named;
    std::shared_ptr<DeviceRegion> device;
    std::byte* data = nullptr;
  };
  // The addresses that a tensor spans.
  struct Range {
    ByteSpan span;
    bool output;
    size_t item;
    std::string path;
  };

  absl::StatusOr<Place> Find(const SharedTensor& tensor, int64_t bytes, bool write) const;
  absl::StatusOr<Place> FindOnHost(const SharedTensor& tensor, int64_t bytes, bool write) const;
  absl::StatusOr<Place> FindOutput(const SharedTensor& tensor, int64_t bytes) const;
  // Keeps memory that is used where it lies.
  absl::Status Hold(const SharedTensor& tensor, const Place& place);
  Range RangeOf(const SharedTensor& tensor, const Place& place, int64_t bytes, bool output) const;
  void Add(Range range);
  absl::Status CheckItem() const;
  absl::Status CheckItems();
  static absl::Status Overlap(const Range& a, const Range& b);
  Transfers& transfers();

  const CallerMemory& memory_;
  std::vector<Range> ranges_;
  size_t items_ = 0;       // items that have ended
  size_t item_begin_ = 0;  // the first range of the item
  // The device of the item, and the first of its tensors there.
  const DevicePort* item_device_ = nullptr;
  std::string on_device_path_;
  std::vector<std::pair<size_t, std::atomic<bool>*>> in_place_;  // items and their dirty flags
  Bound bound_;
};

}  // namespace phasor::memory

#endif  // PHASOR_SERVER_MEMORY_BINDING_H_
