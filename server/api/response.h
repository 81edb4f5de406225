// SPDX-License-Identifier: Apache-2.0
// Makes response messages: a generated header, followed by the output bytes by reference.
#ifndef PHASOR_SERVER_API_RESPONSE_H_
#define PHASOR_SERVER_API_RESPONSE_H_

#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "phasor/v1/position_embedding_service.pb.h"
#include "server/engine/call.h"

namespace phasor::rpc {

// Serialized responses of unary calls and batches. `items` are the items of the call, in the order
// of `result.items`. The item of a unary call must have succeeded. Large outputs are not copied:
// `result.buffer` lives until gRPC has sent them. Those of tensors are of Encode and of ApplyRoPE,
// whose messages have the same fields. Threads: pure functions.
grpc::ByteBuffer MakeTensorResponse(absl::Span<const engine::Item> items,
                                    const engine::Result& result);
grpc::ByteBuffer MakeAttentionBiasResponse(absl::Span<const engine::Item> items,
                                           const engine::Result& result);
grpc::ByteBuffer MakeMoveKeysResponse(absl::Span<const engine::Item> items,
                                      const engine::Result& result);
grpc::ByteBuffer MakeBatchTensorResponse(absl::Span<const engine::Item> items,
                                         const engine::Result& result);
grpc::ByteBuffer MakeBatchMoveKeysResponse(absl::Span<const engine::Item> items,
                                           const engine::Result& result);

// The answer to one message of a stream.
struct StreamAnswer {
  int64_t id = 0;
  std::optional<v1::Chunk> chunk = {};
  absl::Status status = {};
  const engine::Item* item = nullptr;      // set when the status is OK
  const engine::Result* result = nullptr;  // nullptr: the answer carries no bytes
};

grpc::ByteBuffer MakeStreamTensorResponse(const StreamAnswer& answer);
grpc::ByteBuffer MakeStreamMoveKeysResponse(const StreamAnswer& answer);

}  // namespace phasor::rpc

#endif  // PHASOR_SERVER_API_RESPONSE_H_
