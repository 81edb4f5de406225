// SPDX-License-Identifier: Apache-2.0
// Parses and checks messages of streams.
#ifndef PHASOR_SERVER_API_STREAM_VIEW_H_
#define PHASOR_SERVER_API_STREAM_VIEW_H_

#include <cstdint>
#include <variant>

#include "absl/status/statusor.h"
#include "phasor/v1/position_embedding_service.pb.h"
#include "proto/raw_message.h"
#include "server/api/chunked_item.h"
#include "server/api/request_view.h"

namespace phasor::rpc {

// A parsed message of a stream. It and its items borrow the pieces of the walked message.
struct StreamRequest {
  int64_t id = 0;
  // An error, an item, the opening of a chunked item, or a run of tokens.
  std::variant<absl::Status, RequestView, ChunkedItem, v1::Chunk> content;
};

// INVALID_ARGUMENT: the header does not parse, so the id that an answer needs is unknown. All other
// errors are in `content`. Threads: pure functions, except that they call the context's plans.
absl::StatusOr<StreamRequest> ParseStreamEncode(const WalkedMessage& message,
                                                const ViewContext& context);
absl::StatusOr<StreamRequest> ParseStreamApplyRoPE(const WalkedMessage& message,
                                                   const ViewContext& context);
absl::StatusOr<StreamRequest> ParseStreamMoveKeys(const WalkedMessage& message,
                                                  const ViewContext& context);

}  // namespace phasor::rpc

#endif  // PHASOR_SERVER_API_STREAM_VIEW_H_
