// SPDX-License-Identifier: Apache-2.0
// Calls as they travel: the item of a message, and the bytes beside it.
#ifndef PHASOR_CLIENT_GRPC_WIRE_ITEMS_H_
#define PHASOR_CLIENT_GRPC_WIRE_ITEMS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/connection.h"
#include "client/shared/lease_client.h"
#include "phasor/v1/position_embedding_service.pb.h"

namespace phasor::client_internal {

// Where a tensor that is not sent is: in leased memory, or on the device.
struct SharedPlace {
  std::string region;
  int64_t offset = 0;
  bool on_device = false;
};

// What a call sends beside its header, in wire order. Dense tensors stay where they are; others are
// gathered, so that gaps do not travel. Tensors in leased memory and on the device are not sent at
// all.
// Threads: a plain value. Borrows dense tensors, owns the others.
struct Payload {
  std::vector<absl::Span<const std::byte>> raw;
  std::vector<Bytes> gathered;
  LeaseClient* leases = nullptr;     // nullptr: everything of the host is sent
  const void* connection = nullptr;  // whose memory of a device may be named; nullptr: none
  int destinations = 0;              // outputs that the server writes into shared memory
  bool names_device = false;

  void AddPositions(const PositionList& positions);
  // Makes `desc` that of what is sent; the place of what is not. RESOURCE_EXHAUSTED: no memory to
  // gather in.
  absl::StatusOr<std::optional<SharedPlace>> AddTensor(const TensorView& tensor, TensorDesc& desc);
  // Where the server can write `output`; nowhere: it sends the bytes. `strided`: with strides that
  // are the input's, else it must be dense. INVALID_ARGUMENT: on the device and neither.
  absl::StatusOr<std::optional<SharedPlace>> PlaceOutput(const MutableTensorView& output,
                                                         bool strided, std::string_view path);

 private:
  SharedPlace PlaceOf(const DevicePlace& device);
};

// Errors are ToRequest's and PlaceOutput's; INVALID_ARGUMENT also: an output of one dimension on
// the device. On failure, `payload` may hold a part of the item.
absl::StatusOr<v1::EncodeItem> MakeItem(const EncodeCall& call, std::string_view path,
                                        Payload& payload);
absl::StatusOr<v1::ApplyRoPEItem> MakeItem(const RopeCall& call, std::string_view path,
                                           Payload& payload);
absl::StatusOr<v1::AttentionBiasItem> MakeItem(const BiasCall& call, std::string_view path,
                                               Payload& payload);

}  // namespace phasor::client_internal

#endif  // PHASOR_CLIENT_GRPC_WIRE_ITEMS_H_
