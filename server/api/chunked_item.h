// SPDX-License-Identifier: Apache-2.0
// An item of a stream that comes in runs of tokens: checked once, then cut into engine items.
#ifndef PHASOR_SERVER_API_CHUNKED_ITEM_H_
#define PHASOR_SERVER_API_CHUNKED_ITEM_H_

#include <cstddef>
#include <cstdint>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/request/prepared.h"
#include "phasor/v1/position_embedding_service.pb.h"
#include "server/api/request_view.h"
#include "server/base/admission.h"
#include "server/engine/call.h"

namespace phasor::rpc {

// Most bytes of positions that one chunked item keeps.
inline constexpr int64_t kMaxKeptPositionBytes = int64_t{64} << 20;

// What is known of the whole, and its positions. Immutable but for `permit`.
// Threads: any, once made. Owns the positions; the items cut from it borrow them.
class ChunkedItem {
 public:
  // `raw`: the entries of the opening message. INVALID_ARGUMENT and the like: as ViewItem; also
  // strided inputs and a batch. RESOURCE_EXHAUSTED: more than kMaxKeptPositionBytes of positions.
  static absl::StatusOr<ChunkedItem> Open(const v1::EncodeItem& item,
                                          absl::Span<const engine::Segments> raw,
                                          const ViewContext& context);
  static absl::StatusOr<ChunkedItem> Open(const v1::ApplyRoPEItem& item,
                                          absl::Span<const engine::Segments> raw,
                                          const ViewContext& context);

  int64_t tokens() const { return tokens_; }
  int64_t kept_bytes() const { return static_cast<int64_t>(positions_.size() + from_.size()); }
  // The whole, without payload: what the answer to the opening message describes.
  engine::Item Whole() const {
    return engine::Item(std::visit([](const auto& kind) { return Prepared(kind); }, prepared_));
  }

  // The run that begins at token `next`, with the entries of its message. INVALID_ARGUMENT: another
  // run, or entries that do not fit it. RESOURCE_EXHAUSTED: an answer beyond `max_message_bytes`.
  absl::StatusOr<RequestView> Cut(const v1::Chunk& chunk, int64_t next,
                                  absl::Span<const engine::Segments> raw,
                                  int64_t max_message_bytes) const;

  Permit permit;  // for kept_bytes()

 private:
  absl::StatusOr<engine::Item> CutItem(const v1::Chunk& chunk,
                                       absl::Span<const engine::Segments> raw) const;

  std::variant<PreparedEncode, PreparedRope> prepared_;
  int64_t tokens_ = 0;
  std::vector<std::byte> positions_;
  std::vector<std::byte> from_;  // delta only
};

}  // namespace phasor::rpc

#endif  // PHASOR_SERVER_API_CHUNKED_ITEM_H_
