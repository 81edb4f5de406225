// SPDX-License-Identifier: Apache-2.0
// See chunked_item.h.
#include "server/api/chunked_item.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"
#include "proto/convert.h"

namespace phasor::rpc {
namespace {

using engine::Segments;

// Most bytes of an answer beside its elements: 64 tensors, a status, run info.
constexpr int64_t kAnswerHeaderBytes = 16 << 10;

absl::Status CheckEntries(size_t got, size_t wanted, const char* of_what) {
  if (got == wanted) return absl::OkStatus();
  return Invalid("raw: ", got, " entries, expected ", wanted, ", one per inline tensor of ",
                 of_what);
}

absl::Status CheckEntry(const Segments& entry, size_t i, int64_t wanted, const std::string& what) {
  const int64_t got = engine::SegmentBytes(entry);
  if (got == wanted) return absl::OkStatus();
  return Invalid("raw[", i, "]: ", got, " bytes, expected ", wanted, " for ", what);
}

// Copies a position tensor, if there is one, from the next entry.
absl::Status Keep(const v1::Positions& wire, int64_t bytes, const std::string& path,
                  absl::Span<const Segments>* raw, size_t* index, std::vector<std::byte>* kept) {
  if (!wire.has_tensor()) return absl::OkStatus();
  PHASOR_RETURN_IF_ERROR(CheckEntry((*raw)[*index], *index, bytes, path));
  if (bytes > kMaxKeptPositionBytes) {
    return absl::ResourceExhaustedError(absl::StrCat(path, ": ", bytes, " bytes, must be at most ",
                                                     kMaxKeptPositionBytes, " in a chunked item"));
  }
  kept->resize(static_cast<size_t>(bytes));
  engine::Gather((*raw)[*index], kept->data());
  ++*index;
  return absl::OkStatus();
}

// The part of kept positions that `source` is to read, whose first token is `first`.
Segments PartOf(const std::vector<std::byte>& kept, const PositionSource& source, int64_t first) {
  if (source.kind != PositionSource::Kind::kTensor || source.data_bytes == 0) return {};
  const int64_t token_bytes = source.data_bytes / source.count();
  return {absl::MakeConstSpan(kept.data() + first * token_bytes,
                              static_cast<size_t>(source.data_bytes))};
}

absl::Status CheckRun(const v1::Chunk& chunk, int64_t next, int64_t tokens) {
  if (chunk.first_token() != next) {
    return Invalid("chunk.first_token: ", chunk.first_token(), ", must be ", next,
                   ", where the run before it ended");
  }
  if (chunk.tokens() < 1 || chunk.tokens() > tokens - next) {
    return Invalid("chunk.tokens: ", chunk.tokens(), ", must be in [1, ", tokens - next, "]");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ChunkedItem> ChunkedItem::Open(const v1::EncodeItem& item,
                                              absl::Span<const Segments> raw,
                                              const ViewContext& context) {
  PHASOR_ASSIGN_OR_RETURN(PreparedEncode prepared, PrepareItem(item, context));
  if (prepared.add_to.has_value() && !IsDense(*prepared.add_to)) {
    return Invalid("item.add_to.strides: not dense, must be empty in a chunked item");
  }
  ChunkedItem opened;
  size_t entry = 0;
  PHASOR_RETURN_IF_ERROR(CheckEntries(raw.size(), CountInline(item.positions()), "positions"));
  PHASOR_RETURN_IF_ERROR(Keep(item.positions(), prepared.positions_bytes, "item.positions", &raw,
                              &entry, &opened.positions_));
  opened.tokens_ = prepared.positions.count();
  opened.prepared_ = std::move(prepared);
  return opened;
}

absl::StatusOr<ChunkedItem> ChunkedItem::Open(const v1::ApplyRoPEItem& item,
                                              absl::Span<const Segments> raw,
                                              const ViewContext& context) {
  PHASOR_ASSIGN_OR_RETURN(PreparedRope prepared, PrepareItem(item, context));
  if (prepared.pages.has_value()) {
    return Invalid("item.paged_cache: set, must be unset in a chunked item");
  }
  for (size_t i = 0; i < prepared.tensors.size(); ++i) {
    if (prepared.tensors[i].dense) continue;
    return Invalid("item.tensors[", i,
                   "].tensor.strides: not dense, must be empty in a chunked item");
  }
  if (prepared.batch != 1) {
    return Invalid("item.tensors[0].tensor.shape: batch ", prepared.batch,
                   ", must be 1 in a chunked item; send one item per batch entry");
  }
  ChunkedItem opened;
  size_t entry = 0;
  PHASOR_RETURN_IF_ERROR(
      CheckEntries(raw.size(), CountInline(item.positions()) + CountInline(item.from_positions()),
                   "positions and from_positions"));
  PHASOR_RETURN_IF_ERROR(Keep(item.positions(), prepared.positions_bytes, "item.positions", &raw,
                              &entry, &opened.positions_));
  PHASOR_RETURN_IF_ERROR(Keep(item.from_positions(), prepared.from_positions_bytes,
                              "item.from_positions", &raw, &entry, &opened.from_));
  opened.tokens_ = prepared.tokens;
  opened.prepared_ = std::move(prepared);
  return opened;
}

engine::Item ChunkedItem::Whole() const {
  if (const auto* prepared = std::get_if<PreparedEncode>(&prepared_)) {
    engine::EncodeItem item;
    item.prepared = *prepared;
    return item;
  }
  engine::RopeItem item;
  item.prepared = std::get<PreparedRope>(prepared_);
  return item;
}

absl::StatusOr<engine::Item> ChunkedItem::CutEncode(const v1::Chunk& chunk,
                                                    absl::Span<const Segments> raw,
                                                    int64_t* output_bytes) const {
  const int64_t first = chunk.first_token();
  engine::EncodeItem item;
  item.prepared = SliceTokens(std::get<PreparedEncode>(prepared_), first, chunk.tokens());
  item.positions = PartOf(positions_, item.prepared.positions, first);
  *output_bytes = item.prepared.output_bytes;
  const bool adds = item.prepared.add_to.has_value();
  PHASOR_RETURN_IF_ERROR(CheckEntries(raw.size(), adds ? 1 : 0, "add_to"));
  if (!adds) return item;
  PHASOR_RETURN_IF_ERROR(CheckEntry(raw[0], 0, item.prepared.add_to_bytes,
                                    absl::StrCat(chunk.tokens(), " tokens of add_to")));
  item.add_to = raw[0];
  return item;
}

absl::StatusOr<engine::Item> ChunkedItem::CutRope(const v1::Chunk& chunk,
                                                  absl::Span<const Segments> raw,
                                                  int64_t* output_bytes) const {
  const int64_t first = chunk.first_token();
  engine::RopeItem item;
  item.prepared = SliceTokens(std::get<PreparedRope>(prepared_), first, chunk.tokens());
  item.positions = PartOf(positions_, item.prepared.positions, first);
  if (item.prepared.from_positions.has_value()) {
    item.from_positions = PartOf(from_, *item.prepared.from_positions, first);
  }
  PHASOR_RETURN_IF_ERROR(CheckEntries(raw.size(), item.prepared.tensors.size(), "tensors"));
  for (size_t i = 0; i < raw.size(); ++i) {
    PHASOR_RETURN_IF_ERROR(CheckEntry(raw[i], i, item.prepared.tensors[i].input_bytes,
                                      absl::StrCat(chunk.tokens(), " tokens of tensors[", i, "]")));
    item.tensors.push_back(raw[i]);
    *output_bytes += item.prepared.tensors[i].output_bytes;  // at most what was received
  }
  return item;
}

absl::StatusOr<RequestView> ChunkedItem::Cut(const v1::Chunk& chunk, int64_t next,
                                             absl::Span<const Segments> raw,
                                             int64_t max_message_bytes) const {
  PHASOR_RETURN_IF_ERROR(CheckRun(chunk, next, tokens_));
  RequestView view;
  const bool encodes = std::holds_alternative<PreparedEncode>(prepared_);
  PHASOR_ASSIGN_OR_RETURN(engine::Item item, encodes ? CutEncode(chunk, raw, &view.response_bytes)
                                                     : CutRope(chunk, raw, &view.response_bytes));
  if (view.response_bytes > max_message_bytes - kAnswerHeaderBytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "chunk: the response is too large, must be at most ", max_message_bytes, " bytes"));
  }
  view.items.push_back(std::move(item));
  return view;
}

}  // namespace phasor::rpc
