// SPDX-License-Identifier: Apache-2.0
// Tensors of a message that lie in shared memory, leased or named, or on the device: found,
// checked, and kept from overlapping.
#ifndef PHASOR_SERVER_API_SHARED_TENSORS_H_
#define PHASOR_SERVER_API_SHARED_TENSORS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "phasor/v1/tensor.pb.h"
#include "server/engine/call.h"
#include "server/memory/device_region_store.h"
#include "server/memory/lease_store.h"
#include "server/memory/region_copies.h"
#include "server/memory/region_store.h"

namespace phasor::rpc {

// Where a caller's shared memory is looked for.
struct SharedSources {
  const memory::LeaseStore* leases = nullptr;  // nullptr: there are none
  memory::CallerRegions regions = {};
  memory::CallerDevices devices = {};
};

// Of one message. Threads: one.
class SharedTensors {
 public:
  explicit SharedTensors(const SharedSources& sources) : sources_(sources) {}

  // The `bytes` that `tensor`, which is in a region or on the device, spans: those of a lease, or
  // where a copy of those of a named region will be, or the device's, which are for the backend
  // only. FAILED_PRECONDITION: shared memory is off, or a dirty region; NOT_FOUND: no such lease or
  // name; INVALID_ARGUMENT: not all inside; UNAVAILABLE: no addresses. All messages begin with
  // `path`, the tensor's.
  absl::StatusOr<absl::Span<const std::byte>> Input(const v1::TensorSpec& tensor, int64_t bytes,
                                                    const std::string& path);

  // Where `output` goes: `wanted` says so, and must be a region and of the type and shape of
  // `output`; strides are none or those of `input`, the tensor that it is computed from, if there
  // is one, which may be at the same place. As Input; INVALID_ARGUMENT also for all this, and
  // strides in a named region; PERMISSION_DENIED: the memory may only be read.
  struct Computed {
    const v1::TensorSpec* input = nullptr;
    int64_t strided_bytes = 0;  // what it spans with the strides of the input
    int64_t output_bytes = 0;   // dense
  };
  absl::StatusOr<engine::Destination> Output(const v1::TensorSpec& wanted,
                                             const v1::TensorSpec& output, const Computed& computed,
                                             const std::string& path);

  // A cache in a region, which spans `bytes` and of which `written` are written. As Output;
  // UNIMPLEMENTED: a named region.
  absl::StatusOr<engine::Destination> Cache(const v1::TensorSpec& cache, int64_t bytes,
                                            int64_t written, const std::string& path);

  // What comes from here on is the next item's. INVALID_ARGUMENT: an output of the item before
  // overlaps another of its tensors, but for those in place. Strided tensors may interleave, as
  // queries and keys in rows of a fused buffer do.
  // `status` is the item's own: one that failed uses nothing, and its error is returned.
  absl::Status EndItem(absl::Status status = absl::OkStatus());
  // The same of tensors of different items, which must not interleave either. After the last.
  absl::Status CheckItems();

  // Leased memory that the message uses. Once.
  std::vector<std::shared_ptr<const void>> TakeHeld() { return std::move(held_); }
  // Copies of named regions, to be fetched and stored; nullptr: it uses none. Once.
  std::unique_ptr<memory::RegionCopies> TakeCopies();
  // Bytes that are read and written.
  int64_t bytes() const { return bytes_; }

 private:
  // What a tensor spans.
  struct Range {
    const std::byte* begin;
    const std::byte* end;
    bool output;
    size_t item;
    std::string path;
    int64_t element_bytes;
    std::vector<std::pair<int64_t, int64_t>>
        steps;  // extent and bytes of each dimension; dense: none
  };

  absl::Status CheckItem() const;
  static bool Interleave(const Range& a, const Range& b);
  static absl::Status Overlap(const Range& a, const Range& b);
  // What `region` names: one of the two.
  struct Memory {
    std::shared_ptr<const memory::SealedMemory> leased;
    std::shared_ptr<const memory::Region> named;
  };
  absl::StatusOr<Memory> Find(const v1::RegionRef& region, const std::string& path) const;
  absl::StatusOr<const std::byte*> Read(const v1::RegionRef& region, int64_t bytes,
                                        const std::string& path);
  // Where a destination in `region` begins.
  absl::StatusOr<engine::Destination> Write(const v1::RegionRef& region, int64_t bytes,
                                            bool in_place, const std::string& path);
  // The same of the device. `write`: as an output.
  absl::StatusOr<engine::Destination> FindOnDevice(const v1::DeviceRef& device, int64_t bytes,
                                                   bool write, const std::string& path);
  // Where a tensor that spans `bytes` is to be written, on the host or the device.
  absl::StatusOr<engine::Destination> FindOutput(const v1::TensorSpec& tensor, int64_t bytes,
                                                 bool in_place, const std::string& path);
  memory::RegionCopies& copies();
  void Add(const std::byte* begin, int64_t bytes, bool output, const v1::TensorSpec& tensor,
           const std::string& path);

  const SharedSources& sources_;
  std::vector<Range> ranges_;
  size_t items_ = 0;       // that have ended
  size_t item_begin_ = 0;  // first range of the item
  std::vector<std::shared_ptr<const void>> held_;
  std::unique_ptr<memory::RegionCopies> copies_;  // made with the first
  std::vector<size_t> in_place_;                  // items with an output in its input's place
  int64_t bytes_ = 0;
};

}  // namespace phasor::rpc

#endif  // PHASOR_SERVER_API_SHARED_TENSORS_H_
