// SPDX-License-Identifier: Apache-2.0
// Binds tensors that a request has in shared memory, leased or named, or on the device, to the
// slots of its items: finds the memory, checks its bounds, and keeps outputs from overlapping.
// Knows no protocol: errors name the fields that the caller gives.
#ifndef PHASOR_SERVER_MEMORY_BINDING_H_
#define PHASOR_SERVER_MEMORY_BINDING_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/tensor/tensor_desc.h"
#include "server/engine/call.h"
#include "server/memory/device_region_store.h"
#include "server/memory/lease_store.h"
#include "server/memory/region_store.h"
#include "server/memory/transfers.h"

namespace phasor::memory {

// The shared memory of a server. All pointers outlive its calls.
struct Stores {
  const LeaseStore* leases = nullptr;    // nullptr: no leases
  RegionStore* regions = nullptr;        // nullptr: no named regions
  DeviceRegionStore* devices = nullptr;  // nullptr: no device memory

  bool has_regions() const { return regions != nullptr && regions->enabled(); }
  bool has_devices() const { return devices != nullptr && devices->enabled(); }
};

// The part of it that one caller may use.
struct CallerMemory {
  Stores stores = {};
  RegionCaller caller = {};
};

// What a request says of a tensor that is not in its message.
struct SharedTensor {
  bool on_device = false;
  std::string name;  // of a lease or a region
  int64_t offset = 0;
  int64_t reserved_bytes = 0;  // that the caller has set aside there; 0: what the tensor needs
  Dtype dtype = Dtype::kFloat32;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;  // in elements; none: dense
  // What errors call the tensor, its memory's name and its offset.
  std::string path;
  std::string name_path;
  std::string offset_path;
};

// What a call has bound.
struct Bound {
  std::vector<std::shared_ptr<const void>> held = {};  // memory that the items use
  std::unique_ptr<Transfers> transfers = nullptr;      // nullptr: nothing is copied
  int64_t shared_bytes = 0;                            // read and written in shared memory
  // Of the call's own memory.
  int64_t copied_bytes() const { return transfers == nullptr ? 0 : transfers->bytes(); }
};

// Binds the tensors of one message, item after item. Threads: one.
class Binding {
 public:
  // `memory` must outlive it.
  explicit Binding(const CallerMemory& memory) : memory_(memory) {}

  // All return FAILED_PRECONDITION: shared memory is off, or the region is dirty; NOT_FOUND: no
  // such lease or name; INVALID_ARGUMENT: not all inside; PERMISSION_DENIED: it may only be read.

  // Gives input `slot` of `item` its bytes: where they lie, or by a transfer.
  absl::Status Input(const SharedTensor& tensor, size_t slot, engine::Item* item);

  // Says where output `slot` goes. `input`: the tensor that it is computed from, if that is shared
  // memory too, whose place the output may take. INVALID_ARGUMENT also: strides that are neither
  // none nor the input's, or in memory that is copied; an
  // offset between elements of leased or device memory.
  absl::Status Output(const SharedTensor& tensor, const SharedTensor* input, size_t slot,
                      engine::Item* item);

  // The same of a cache, which is written in part. UNIMPLEMENTED also: a named region.
  absl::Status Cache(const SharedTensor& tensor, size_t slot, engine::Item* item);

  // What is bound from here on is the next item's. INVALID_ARGUMENT: an output of the item overlaps
  // another of its tensors, but for those in place. Strided tensors may interleave, as queries and
  // keys in rows of a fused buffer do. `status` is the item's own: an item that failed uses
  // nothing, and its error is returned.
  absl::Status EndItem(absl::Status status = absl::OkStatus());

  // After the last item. INVALID_ARGUMENT: an output overlaps a tensor of another item.
  absl::StatusOr<Bound> Finish();

 private:
  // Where a tensor lies: at an address, in leased or device memory, or in a named region.
  struct Place {
    std::shared_ptr<const SealedMemory> leased;
    std::shared_ptr<const Region> named;
    std::shared_ptr<DeviceRegion> device;
    std::byte* data = nullptr;  // of leased or device memory
  };
  // The bytes that a tensor spans, in one space of addresses.
  struct Range {
    const void* space;  // nullptr: addresses; else the named region that offsets are in
    int64_t begin;
    int64_t end;
    bool output;
    size_t item;
    std::string path;
    int64_t element_bytes;
    // Extent and bytes of each dimension that is stepped over; none: dense.
    std::vector<std::pair<int64_t, int64_t>> steps;
  };

  absl::StatusOr<Place> Find(const SharedTensor& tensor, int64_t bytes, bool write) const;
  absl::StatusOr<Place> FindOnHost(const SharedTensor& tensor, int64_t bytes, bool write) const;
  absl::StatusOr<Place> FindOutput(const SharedTensor& tensor, int64_t bytes) const;
  void Hold(const Place& place);
  Range RangeOf(const SharedTensor& tensor, const Place& place, int64_t bytes, bool output) const;
  void Add(Range range);
  absl::Status CheckItem() const;
  absl::Status CheckItems();
  static bool Interleave(const Range& a, const Range& b);
  static absl::Status Overlap(const Range& a, const Range& b);
  Transfers& transfers();

  const CallerMemory& memory_;
  std::vector<Range> ranges_;
  size_t items_ = 0;       // that have ended
  size_t item_begin_ = 0;  // first range of the item
  std::vector<size_t> in_place_;
  Bound bound_;
};

}  // namespace phasor::memory

#endif  // PHASOR_SERVER_MEMORY_BINDING_H_
