// SPDX-License-Identifier: Apache-2.0
// One tensor call (Encode, ApplyRoPE and their batches) from received bytes to response.
#ifndef PHASOR_SERVER_API_TENSOR_CALL_H_
#define PHASOR_SERVER_API_TENSOR_CALL_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/raw_message.h"
#include "server/api/request_view.h"
#include "server/engine/engine.h"

namespace phasor::rpc {

// How one RPC method reads and answers.
struct TensorMethod {
  absl::StatusOr<RequestView> (*parse)(const WalkedMessage&, const ViewContext&);
  grpc::ByteBuffer (*respond)(absl::Span<const engine::Item>, const engine::Result&);
  bool batch = false;
};

// Raw entries are counted before the message that explains them is parsed. One item may have 64
// tensors, two of positions and four of a paged cache.
inline constexpr int64_t kRawEntriesOfOneItem = 70;

// What all calls of a server share.
struct TensorCallLimits {
  int64_t max_message_bytes = 0;
  int64_t max_header_bytes = 0;
  int64_t max_batch_items = 0;
  const TableSource* tables = nullptr;         // must outlive the calls; nullptr: none are kept
  const EncoderCatalogue* encoders = nullptr;  // the same
  memory::Stores memory = {};
};

// The shared memory that the caller may use. Who calls is looked up only where names are told apart
// by it.
memory::CallerMemory CallerMemoryOf(const memory::Stores& stores,
                                    const grpc::CallbackServerContext& context);

// Starts a call and returns its reactor, which gRPC owns from here on. Never blocks; the answer
// comes inside this function or later from an engine thread. `request` is emptied: its slices go to
// the call, which drops them as soon as the payload was read.
grpc::ServerUnaryReactor* StartTensorCall(const TensorMethod& method,
                                          const TensorCallLimits& limits, engine::Engine& engine,
                                          grpc::CallbackServerContext* context,
                                          grpc::ByteBuffer* request, grpc::ByteBuffer* response);

}  // namespace phasor::rpc

#endif  // PHASOR_SERVER_API_TENSOR_CALL_H_
