// SPDX-License-Identifier: Apache-2.0
// Results as response messages: a generated header, then the output bytes by reference.
#ifndef PHASOR_SERVER_API_RESPONSE_H_
#define PHASOR_SERVER_API_RESPONSE_H_

#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "phasor/v1/position_embedding_service.pb.h"
#include "server/engine/call.h"

namespace phasor::rpc {

// Serialized responses of unary and batch calls. `items` are the call's, in the order of
// `result.items`. Larger outputs are not copied: the buffer lives until gRPC has sent them.
// Threads: pure functions.
//
// A unary call's item must have succeeded.
grpc::ByteBuffer MakeEncodeResponse(absl::Span<const engine::Item> items,
                                    const engine::Result& result);
grpc::ByteBuffer MakeApplyRoPEResponse(absl::Span<const engine::Item> items,
                                       const engine::Result& result);
grpc::ByteBuffer MakeAttentionBiasResponse(absl::Span<const engine::Item> items,
                                           const engine::Result& result);
grpc::ByteBuffer MakeBatchEncodeResponse(absl::Span<const engine::Item> items,
                                         const engine::Result& result);
grpc::ByteBuffer MakeBatchApplyRoPEResponse(absl::Span<const engine::Item> items,
                                            const engine::Result& result);

// What a stream's message is answered with.
struct StreamAnswer {
  int64_t id = 0;
  std::optional<v1::Chunk> chunk = {};
  absl::Status status = {};
  const engine::Item* item = nullptr;      // when the status is OK
  const engine::Result* result = nullptr;  // nullptr: an answer without bytes
};

grpc::ByteBuffer MakeStreamEncodeResponse(const StreamAnswer& answer);
grpc::ByteBuffer MakeStreamApplyRoPEResponse(const StreamAnswer& answer);

}  // namespace phasor::rpc

#endif  // PHASOR_SERVER_API_RESPONSE_H_
