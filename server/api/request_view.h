// SPDX-License-Identifier: Apache-2.0
// Turns a received message into engine items: parses it, checks it, computes sizes and assigns the
// payload. phasor.v1 makes its items only here and in chunked_item.h. The items are valid; the
// engine does not check them again.
#ifndef PHASOR_SERVER_API_REQUEST_VIEW_H_
#define PHASOR_SERVER_API_REQUEST_VIEW_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/request/request.h"
#include "kernels/tensor/table.h"
#include "phasor/v1/position_embedding_service.pb.h"
#include "proto/raw_message.h"
#include "server/engine/call.h"
#include "server/grpc/encoder_catalogue.h"
#include "server/memory/binding.h"

namespace phasor::rpc {

class RequestMemo;

// What requests are checked against, and what checking needs.
struct ViewContext {
  PlanProvider plans;
  std::string backend;            // the backend that runs here; pins are compared with it
  int64_t max_message_bytes = 0;  // largest allowed response
  int64_t max_batch_items = 0;
  const TableSource* tables = nullptr;  // nullptr: the server keeps no tables
  memory::CallerMemory memory = {};
  const EncoderCatalogue* encoders = nullptr;  // nullptr: no encoders are configured
  RequestMemo* memo = nullptr;                 // of this server; nullptr: none
};

// The items of one message. They borrow the pieces of the walked message.
struct RequestView {
  std::vector<engine::Item> items;
  int64_t response_bytes = 0;  // element bytes of the outputs that go into the response
  memory::Bound bound = {};    // the items' tensors in shared memory
  int64_t copied_bytes = 0;    // memory of the server that the call needs for copies and scratch
  int64_t recalled_items = 0;  // remembered ones, for whose plans nobody asked the plan cache
};

// Errors of all of these functions:
//   INVALID_ARGUMENT: the header does not parse; a field is missing or out of range; the number or
//     the length of raw entries does not fit the tensors.
//   NOT_FOUND, UNIMPLEMENTED, FAILED_PRECONDITION: as PrepareEncode, PrepareRope, PrepareBias,
//     PrepareMove.
//   FAILED_PRECONDITION also: a pin asks for another backend.
//   OUT_OF_RANGE: a range of positions extends beyond a table.
//   RESOURCE_EXHAUSTED: too many items, or the response would be too large.
//   NOT_FOUND, PERMISSION_DENIED, FAILED_PRECONDITION also: as memory::Binding.
// In a batch, an error is the status of the item that failed. The whole message fails only for
// errors that concern all of it: its header, the number of items or raw entries, the size of the
// whole response, or outputs that overlap.
// Threads: pure functions, except that they call `plans`.
absl::StatusOr<RequestView> ParseEncode(const WalkedMessage& message, const ViewContext& context);
absl::StatusOr<RequestView> ParseApplyRoPE(const WalkedMessage& message,
                                           const ViewContext& context);
absl::StatusOr<RequestView> ParseAttentionBias(const WalkedMessage& message,
                                               const ViewContext& context);
absl::StatusOr<RequestView> ParseMoveKeys(const WalkedMessage& message, const ViewContext& context);
// The same for one item that is parsed already, with the raw entries of its message. `bytes`: the
// serialized item, by which it is remembered; otherwise none.
absl::StatusOr<RequestView> ViewItem(const v1::EncodeItem& item, absl::Span<const PieceList> raw,
                                     const ViewContext& context,
                                     absl::Span<const std::string_view> bytes = {});
absl::StatusOr<RequestView> ViewItem(const v1::ApplyRoPEItem& item, absl::Span<const PieceList> raw,
                                     const ViewContext& context,
                                     absl::Span<const std::string_view> bytes = {});
absl::StatusOr<RequestView> ViewItem(const v1::MoveKeysItem& item, absl::Span<const PieceList> raw,
                                     const ViewContext& context);
// Checks of an item that need no raw entries.
absl::StatusOr<PreparedEncode> PrepareItem(const v1::EncodeItem& item, const ViewContext& context);
absl::StatusOr<PreparedRope> PrepareItem(const v1::ApplyRoPEItem& item, const ViewContext& context);

// Parses all fields except `raw`. INVALID_ARGUMENT: the message does not parse.
absl::Status ParseHeader(const WalkedMessage& walked, google::protobuf::MessageLite* message);

absl::StatusOr<RequestView> ParseBatchEncode(const WalkedMessage& message,
                                             const ViewContext& context);
absl::StatusOr<RequestView> ParseBatchApplyRoPE(const WalkedMessage& message,
                                                const ViewContext& context);
absl::StatusOr<RequestView> ParseBatchMoveKeys(const WalkedMessage& message,
                                               const ViewContext& context);

}  // namespace phasor::rpc

#endif  // PHASOR_SERVER_API_REQUEST_VIEW_H_
