// SPDX-License-Identifier: Apache-2.0
// A tensor call (Encode, ApplyRoPE, attention bias, moves of keys and batches) from the received
// bytes to the response.
#ifndef PHASOR_SERVER_API_TENSOR_CALL_H_
#define PHASOR_SERVER_API_TENSOR_CALL_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/raw_message.h"
#include "server/api/request_view.h"
#include "server/base/task_thread.h"
#include "server/engine/engine.h"
#include "server/tables/table_store.h"

namespace phasor::rpc {

// Most raw entries of a message with one item. They are counted before the rest of the message is
// parsed. An item has at most 64 tensors, 2 position tensors and 4 tensors of a paged cache.
inline constexpr int64_t kRawEntriesOfOneItem = 70;
// The same of a move, whose entries are pools.
inline constexpr int64_t kRawEntriesOfOneMove = 1024;

// The functions by which one RPC method reads and answers.
struct TensorMethod {
  absl::StatusOr<RequestView> (*parse)(const WalkedMessage&, const ViewContext&);
  grpc::ByteBuffer (*respond)(absl::Span<const engine::Item>, const engine::Result&);
  bool batch = false;
  int64_t raw_entries = kRawEntriesOfOneItem;  // of a message that is no batch
};

// Limits and stores that all calls of a server share.
struct TensorCallLimits {
  int64_t max_message_bytes = 0;
  int64_t max_header_bytes = 0;
  int64_t max_batch_items = 0;
  const tables::TableStore* tables = nullptr;  // must outlive the calls; nullptr: none are kept
  TaskThread* table_reads = nullptr;           // must outlive the calls
  const EncoderCatalogue* encoders = nullptr;  // must outlive the calls
  memory::Stores memory = {};
  RequestMemo* memo = nullptr;  // must outlive the calls; nullptr: nothing is remembered
};

// The shared memory that the caller may use. The caller is identified only if region names are
// separate for each caller.
memory::CallerMemory CallerMemoryOf(const memory::Stores& stores,
                                    const grpc::CallbackServerContext& context);

// Starts a call and returns its reactor, which gRPC owns from then on. Never blocks: if a table
// must be read from a file, the call goes on in `limits.table_reads`. The answer is sent inside
// this function, or later from that thread or an engine thread. `request` is emptied: its slices
// move to the call, which frees them once the payload has been read.
grpc::ServerUnaryReactor* StartTensorCall(const TensorMethod& method,
                                          const TensorCallLimits& limits, engine::Engine& engine,
                                          grpc::CallbackServerContext* context,
                                          grpc::ByteBuffer* request, grpc::ByteBuffer* response);

}  // namespace phasor::rpc

#endif  // PHASOR_SERVER_API_TENSOR_CALL_H_
