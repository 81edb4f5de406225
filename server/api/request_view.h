// SPDX-License-Identifier: Apache-2.0
// A walked message as engine items: parsed, checked, sized, with payload assigned. The only maker
// of items; what it returns is valid and nothing below checks it again.
#ifndef PHASOR_SERVER_API_REQUEST_VIEW_H_
#define PHASOR_SERVER_API_REQUEST_VIEW_H_

#include <cstdint>
#include <memory>
#include <string>
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

// What a request is checked against.
struct ViewContext {
  PlanProvider plans;
  std::string backend;            // name of the backend that runs here, for pins
  int64_t max_message_bytes = 0;  // largest response
  int64_t max_batch_items = 0;
  const TableSource* tables = nullptr;  // nullptr: none are kept
  memory::CallerMemory memory = {};
  const EncoderCatalogue* encoders = nullptr;  // nullptr: there are none
};

// Items borrow the walked message's pieces.
struct RequestView {
  std::vector<engine::Item> items;
  int64_t response_bytes = 0;  // element bytes of the outputs that the response has
  memory::Bound bound = {};    // what the items use of shared memory
  int64_t copied_bytes = 0;    // of the server's memory, for the time of the call
};

// All return
//   INVALID_ARGUMENT: the header does not parse; a field is missing or out of range; the number or
//     the length of raw entries is not what the tensors need;
//   NOT_FOUND, UNIMPLEMENTED, FAILED_PRECONDITION: as PrepareEncode, PrepareRope and
//     PrepareBias; OUT_OF_RANGE: a range of positions beyond a table;
//     FAILED_PRECONDITION also when a pin asks for another backend;
//   RESOURCE_EXHAUSTED: too many items, or the response would be too large;
//   NOT_FOUND, PERMISSION_DENIED, FAILED_PRECONDITION also as memory::Binding.
// In a batch these are the failing item's status, except errors of the message as a whole: its
// header, its number of items or raw entries, the size of the whole response, outputs that overlap.
// Threads: pure functions (but for `plans`).
absl::StatusOr<RequestView> ParseEncode(const WalkedMessage& message, const ViewContext& context);
absl::StatusOr<RequestView> ParseApplyRoPE(const WalkedMessage& message,
                                           const ViewContext& context);
absl::StatusOr<RequestView> ParseAttentionBias(const WalkedMessage& message,
                                               const ViewContext& context);
// The same of one item that was parsed before, and the entries of its message. As ParseEncode.
absl::StatusOr<RequestView> ViewItem(const v1::EncodeItem& item,
                                     absl::Span<const engine::Segments> raw,
                                     const ViewContext& context);
absl::StatusOr<RequestView> ViewItem(const v1::ApplyRoPEItem& item,
                                     absl::Span<const engine::Segments> raw,
                                     const ViewContext& context);
// The checks of an item that need no entries.
absl::StatusOr<PreparedEncode> PrepareItem(const v1::EncodeItem& item, const ViewContext& context);
absl::StatusOr<PreparedRope> PrepareItem(const v1::ApplyRoPEItem& item, const ViewContext& context);

// Parses what is not `raw`. INVALID_ARGUMENT: it does not parse.
absl::Status ParseHeader(const WalkedMessage& walked, google::protobuf::MessageLite* message);

absl::StatusOr<RequestView> ParseBatchEncode(const WalkedMessage& message,
                                             const ViewContext& context);
absl::StatusOr<RequestView> ParseBatchApplyRoPE(const WalkedMessage& message,
                                                const ViewContext& context);

}  // namespace phasor::rpc

#endif  // PHASOR_SERVER_API_REQUEST_VIEW_H_
