// SPDX-License-Identifier: Apache-2.0
// Tells the kinds of messages of a stream apart and parses each.
#include "server/api/stream_view.h"

#include <optional>
#include <string_view>
#include <utility>

#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"
#include "server/api/message_room.h"
#include "server/api/recall.h"

namespace phasor::rpc {
namespace {

template <typename T>
void SetContent(absl::StatusOr<T> content, StreamRequest* request) {
  if (content.ok()) {
    request->content = *std::move(content);
  } else {
    request->content = std::move(content).status();
  }
}

// `kind`: of the items.
template <typename Message>
absl::StatusOr<StreamRequest> ParseStream(const WalkedMessage& walked, const ViewContext& context,
                                          ItemKind kind) {
  const std::optional<StreamedItem> streamed = StreamedItemOf(walked.header);
  absl::Span<const std::string_view> bytes;
  if (streamed.has_value()) {
    bytes = {&streamed->item, 1};
    std::optional<RequestView> known =
        RecallItems(kind, bytes, walked.raw, Sources::kShared, context);
    if (known.has_value()) return StreamRequest{streamed->id, *std::move(known)};
  }
  MessageRoom room;
  Message& message = room.Make<Message>();
  PHASOR_RETURN_IF_ERROR(ParseHeader(walked, &message));
  StreamRequest request;
  request.id = message.id();
  if (message.has_chunk() && message.chunked()) {
    request.content = Invalid("chunked: set beside chunk; must be only beside item");
  } else if (message.has_chunk()) {
    message.mutable_chunk()->DiscardUnknownFields();  // the answer repeats the chunk
    request.content = message.chunk();
  } else if (!message.has_item()) {
    request.content = Invalid("item: not set; must be given, or chunk");
  } else if (message.chunked()) {
    SetContent(ChunkedItem::Open(message.item(), walked.raw, context), &request);
  } else {
    SetContent(ViewItem(message.item(), walked.raw, context, bytes), &request);
  }
  return request;
}

}  // namespace

absl::StatusOr<StreamRequest> ParseStreamEncode(const WalkedMessage& message,
                                                const ViewContext& context) {
  return ParseStream<v1::StreamEncodeRequest>(message, context, ItemKind::kEncode);
}

absl::StatusOr<StreamRequest> ParseStreamApplyRoPE(const WalkedMessage& message,
                                                   const ViewContext& context) {
  return ParseStream<v1::StreamApplyRoPERequest>(message, context, ItemKind::kRope);
}

absl::StatusOr<StreamRequest> ParseStreamMoveKeys(const WalkedMessage& walked,
                                                  const ViewContext& context) {
  v1::StreamMoveKeysRequest message;
  PHASOR_RETURN_IF_ERROR(ParseHeader(walked, &message));
  StreamRequest request;
  request.id = message.id();
  if (message.has_item()) {
    SetContent(ViewItem(message.item(), walked.raw, context), &request);
  } else {
    request.content = Invalid("item: not set; must be given");
  }
  return request;
}

}  // namespace phasor::rpc
