// SPDX-License-Identifier: Apache-2.0
// A chunked item: an item of a stream whose payload arrives in several messages, each with a run of
// consecutive tokens. The item is checked once; each run becomes an engine item.
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

// Largest position tensor that a chunked item keeps, in bytes. A rotation may keep two: positions
// and from_positions.
inline constexpr int64_t kMaxKeptPositionBytes = int64_t{64} << 20;

// A checked item of a stream and its positions. Cuts the item into engine items, one per run of
// tokens. Owns the positions; the engine items borrow them, so it must outlive them. Immutable
// after Open, except for its permits. Threads: any, once made.
class ChunkedItem {
 public:
  // `raw`: the raw entries of the opening message, which are the positions. Same errors as
  // ViewItem. INVALID_ARGUMENT also: strided inputs, a paged cache, or a batch other than 1.
  // RESOURCE_EXHAUSTED also: a position tensor larger than kMaxKeptPositionBytes.
  static absl::StatusOr<ChunkedItem> Open(const v1::EncodeItem& item,
                                          absl::Span<const PieceList> raw,
                                          const ViewContext& context);
  static absl::StatusOr<ChunkedItem> Open(const v1::ApplyRoPEItem& item,
                                          absl::Span<const PieceList> raw,
                                          const ViewContext& context);

  int64_t tokens() const { return tokens_; }
  int64_t kept_bytes() const { return static_cast<int64_t>(positions_.size() + from_.size()); }
  // The whole item without payload. The answer to the opening message describes it.
  engine::Item Whole() const {
    return engine::Item(std::visit([](const auto& kind) { return Prepared(kind); }, prepared_));
  }

  // The run of tokens that must begin at token `next`; `raw` has the entries of the run's message.
  // INVALID_ARGUMENT: the run begins elsewhere, has no tokens or too many, or the entries do not
  // fit it. RESOURCE_EXHAUSTED: the answer would exceed `max_message_bytes`.
  absl::StatusOr<RequestView> Cut(const v1::Chunk& chunk, int64_t next,
                                  absl::Span<const PieceList> raw, int64_t max_message_bytes) const;

  Permit quota_permit;  // for kept_bytes() and its plan, from the bytes that the caller may have
  Permit permit;        // the same, from the engine's byte budget

 private:
  absl::StatusOr<engine::Item> CutItem(const v1::Chunk& chunk,
                                       absl::Span<const PieceList> raw) const;

  std::variant<PreparedEncode, PreparedRope> prepared_;
  int64_t tokens_ = 0;
  std::vector<std::byte> positions_;
  std::vector<std::byte> from_;  // from_positions of a delta rotation
};

}  // namespace phasor::rpc

#endif  // PHASOR_SERVER_API_CHUNKED_ITEM_H_
