// SPDX-License-Identifier: Apache-2.0
// Messages of StreamEncode and StreamApplyRoPE, parsed and checked.
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

// A message of a stream; borrows the walked message's pieces, as its items do.
struct StreamRequest {
  int64_t id = 0;
  // What is wrong with it; an item; the opening of a chunked one; a run of tokens.
  std::variant<absl::Status, RequestView, ChunkedItem, v1::Chunk> content;
};

// INVALID_ARGUMENT: the header does not parse, so that nobody knows whose answer this would be. All
// other errors are the content's. Threads: pure functions (but for the context's plans).
absl::StatusOr<StreamRequest> ParseStreamEncode(const WalkedMessage& message,
                                                const ViewContext& context);
absl::StatusOr<StreamRequest> ParseStreamApplyRoPE(const WalkedMessage& message,
                                                   const ViewContext& context);

}  // namespace phasor::rpc

#endif  // PHASOR_SERVER_API_STREAM_VIEW_H_
