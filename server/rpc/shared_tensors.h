// SPDX-License-Identifier: Apache-2.0
// Tensors of a message that lie in leased memory or on the device: found, checked, and kept from
// overlapping.
#ifndef PHASOR_SERVER_RPC_SHARED_TENSORS_H_
#define PHASOR_SERVER_RPC_SHARED_TENSORS_H_

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
#include "phasor/v1/tensor.pb.h"
#include "server/engine/call.h"
#include "server/regions/device_region_store.h"
#include "server/regions/lease_store.h"

namespace phasor::rpc {

// Of one message. Threads: one.
class SharedTensors {
 public:
  // nullptr: shared memory is off. `devices` names device memory.
  explicit SharedTensors(const regions::LeaseStore* leases, regions::CallerDevices devices = {})
      : leases_(leases), devices_(std::move(devices)) {}

  // The `bytes` that `tensor`, which is in a region or on the device, spans; those on the device
  // are for the backend only. FAILED_PRECONDITION: off, or a dirty region; NOT_FOUND: no such lease
  // or name; INVALID_ARGUMENT: not all inside. All messages begin with `path`, the tensor's.
  absl::StatusOr<absl::Span<const std::byte>> Input(const v1::TensorSpec& tensor, int64_t bytes,
                                                    const std::string& path);

  // Where `output` goes: `wanted` says so, and must be a region and of the type and shape of
  // `output`; strides are none or those of `input`, the tensor that it is computed from, if there
  // is one. `input_bytes` of `input` may be at the same place. As Input; INVALID_ARGUMENT also for
  // all this, PERMISSION_DENIED: the memory may only be read.
  struct Computed {
    const v1::TensorSpec* input = nullptr;
    int64_t input_bytes = 0;   // what it spans
    int64_t output_bytes = 0;  // dense
  };
  absl::StatusOr<engine::Destination> Output(const v1::TensorSpec& wanted,
                                             const v1::TensorSpec& output, const Computed& computed,
                                             const std::string& path);

  // What comes from here on is the next item's. INVALID_ARGUMENT: an output of the item before
  // overlaps another of its tensors, but for those in place. Strided tensors may interleave, as
  // queries and keys in rows of a fused buffer do.
  // `status` is the item's own: one that failed uses nothing, and its error is returned.
  absl::Status EndItem(absl::Status status = absl::OkStatus());
  // The same of tensors of different items, which must not interleave either. After the last.
  absl::Status CheckItems();

  // Memory that the message uses. Once.
  std::vector<std::shared_ptr<const void>> TakeHeld() { return std::move(held_); }
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
  absl::StatusOr<const regions::SealedMemory*> Find(const v1::RegionRef& region,
                                                    const std::string& path);
  // Where bytes on the device are. `*dirty` is their region's flag.
  absl::StatusOr<std::byte*> FindOnDevice(const v1::DeviceRef& device, int64_t bytes, bool write,
                                          const std::string& path, std::atomic<bool>** dirty);
  // Where `wanted` begins, to be written, and whether that is on the device.
  absl::StatusOr<engine::Destination> Place(const v1::TensorSpec& wanted, int64_t bytes,
                                            const std::string& path);
  void Add(const std::byte* begin, int64_t bytes, bool output, const v1::TensorSpec& tensor,
           const std::string& path);

  const regions::LeaseStore* const leases_;
  const regions::CallerDevices devices_;
  std::vector<Range> ranges_;
  size_t items_ = 0;       // that have ended
  size_t item_begin_ = 0;  // first range of the item
  std::vector<std::shared_ptr<const void>> held_;
  int64_t bytes_ = 0;
};

}  // namespace phasor::rpc

#endif  // PHASOR_SERVER_RPC_SHARED_TENSORS_H_
