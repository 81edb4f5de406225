// SPDX-License-Identifier: Apache-2.0
// Calls in their wire form: the item of a message, and the raw bytes beside it.
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

// The place of a tensor that is not sent: in leased memory or on the GPU.
struct SharedPlace {
  std::string region;
  int64_t offset = 0;
  bool on_device = false;
};

// The tensors of a call that are sent beside its header, in wire order. Dense tensors are borrowed
// where they lie; others are gathered first, so that gaps are not sent. Tensors in leased memory
// and on the GPU are not sent.
// Threads: a plain value. Borrows dense tensors and owns gathered ones.
struct Payload {
  std::vector<absl::Span<const std::byte>> raw;
  std::vector<Bytes> gathered;
  LeaseClient* leases = nullptr;     // nullptr: all host tensors are sent
  const void* connection = nullptr;  // whose GPU memory may be used; nullptr: none
  int destinations = 0;              // outputs that the server writes into shared memory
  bool names_device = false;

  void AddPositions(const PositionList& positions);
  // Adds a tensor. If it is sent, changes `desc` to what is sent and returns nullopt. Otherwise
  // returns its place. RESOURCE_EXHAUSTED: no memory to gather in.
  absl::StatusOr<std::optional<SharedPlace>> AddTensor(const TensorView& tensor, TensorDesc& desc);
  // Adds a pool of keys. Returns its place; nullopt: it is sent.
  std::optional<SharedPlace> AddPool(const KeyPool& pool);
  // The place where the server can write `output`; nullopt: the server must send the bytes.
  // `strided`: the output has the strides of the input; otherwise it must be dense.
  // INVALID_ARGUMENT: an output on the GPU that is neither.
  absl::StatusOr<std::optional<SharedPlace>> PlaceOutput(const MutableTensorView& output,
                                                         bool strided, std::string_view path);

 private:
  SharedPlace PlaceOf(const DevicePlace& device);
};

// The wire item of a call. Errors are those of ToRequest and PlaceOutput, and INVALID_ARGUMENT for
// an output on the GPU with one dimension. After an error, `payload` may hold a part of the item.
absl::StatusOr<v1::EncodeItem> MakeItem(const EncodeCall& call, std::string_view path,
                                        Payload& payload);
absl::StatusOr<v1::ApplyRoPEItem> MakeItem(const RopeCall& call, std::string_view path,
                                           Payload& payload);
absl::StatusOr<v1::AttentionBiasItem> MakeItem(const BiasCall& call, std::string_view path,
                                               Payload& payload);
absl::StatusOr<v1::MoveKeysItem> MakeItem(const MoveCall& call, std::string_view path,
                                          Payload& payload);

}  // namespace phasor::client_internal

#endif  // PHASOR_CLIENT_GRPC_WIRE_ITEMS_H_
