// SPDX-License-Identifier: Apache-2.0
// Opens chunked items (checks them and copies their positions) and cuts them into runs of tokens.
#include "server/api/chunked_item.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"
#include "proto/convert.h"
#include "server/engine/run_call.h"

namespace phasor::rpc {
namespace {

// Upper limit for the bytes of an answer besides its elements: 64 tensors, a status and run info.
constexpr int64_t kAnswerHeaderBytes = 16 << 10;

absl::Status CheckEntries(size_t got, size_t wanted, const char* of_what) {
  if (got == wanted) return absl::OkStatus();
  return Invalid("raw: ", got, " entries; must be ", wanted, ", one per inline tensor of ",
                 of_what);
}

absl::Status CheckEntry(const PieceList& entry, size_t i, int64_t wanted, const std::string& what) {
  const int64_t got = PieceBytes(entry);
  if (got == wanted) return absl::OkStatus();
  return Invalid("raw[", i, "]: ", got, " bytes; must be ", wanted, " for ", what);
}

// If there is a position tensor, copies it from the next raw entry into `kept`.
absl::Status Keep(const v1::Positions& wire, int64_t bytes, const std::string& path,
                  absl::Span<const PieceList>* raw, size_t* index, std::vector<std::byte>* kept) {
  if (!wire.has_tensor()) return absl::OkStatus();
  PHASOR_RETURN_IF_ERROR(CheckEntry((*raw)[*index], *index, bytes, path));
  if (bytes > kMaxKeptPositionBytes) {
    return absl::ResourceExhaustedError(absl::StrCat(path, ": ", bytes, " bytes; must be at most ",
                                                     kMaxKeptPositionBytes, " in a chunked item"));
  }
  kept->resize(static_cast<size_t>(bytes));
  CopyPieces((*raw)[*index], kept->data());
  ++*index;
  return absl::OkStatus();
}

// The positions of `tokens` tokens from token `first` on.
PieceList PartOf(const std::vector<std::byte>& kept, int64_t first, int64_t tokens,
                 const InputSlot& slot) {
  if (slot.bytes == 0) return {};
  return {absl::MakeConstSpan(kept.data() + first * (slot.bytes / tokens),
                              static_cast<size_t>(slot.bytes))};
}

absl::Status CheckRun(const v1::Chunk& chunk, int64_t next, int64_t tokens) {
  if (chunk.first_token() != next) {
    return Invalid("chunk.first_token: ", chunk.first_token(), "; must be ", next,
                   ", where the run before it ended");
  }
  if (chunk.tokens() < 1 || chunk.tokens() > tokens - next) {
    return Invalid("chunk.tokens: ", chunk.tokens(), "; must be in [1, ", tokens - next, "]");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ChunkedItem> ChunkedItem::Open(const v1::EncodeItem& item,
                                              absl::Span<const PieceList> raw,
                                              const ViewContext& context) {
  PHASOR_ASSIGN_OR_RETURN(PreparedEncode prepared, PrepareItem(item, context));
  if (prepared.add_to.has_value() && !IsDense(*prepared.add_to)) {
    return Invalid("item.add_to.strides: not dense; must be empty in a chunked item");
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
                                              absl::Span<const PieceList> raw,
                                              const ViewContext& context) {
  PHASOR_ASSIGN_OR_RETURN(PreparedRope prepared, PrepareItem(item, context));
  if (prepared.pages.has_value()) {
    return Invalid("item.paged_cache: set; must be unset in a chunked item");
  }
  for (size_t i = 0; i < prepared.tensors.size(); ++i) {
    if (prepared.tensors[i].dense) continue;
    return Invalid("item.tensors[", i,
                   "].tensor.strides: not dense; must be empty in a chunked item");
  }
  if (prepared.batch != 1) {
    return Invalid("item.tensors[0].tensor.shape: batch ", prepared.batch,
                   "; must be 1 in a chunked item; send one item per batch entry");
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

absl::StatusOr<engine::Item> ChunkedItem::CutItem(const v1::Chunk& chunk,
                                                  absl::Span<const PieceList> raw) const {
  const int64_t first = chunk.first_token();
  engine::Item item(std::visit(
      [&](const auto& kind) { return Prepared(SliceTokens(kind, first, chunk.tokens())); },
      prepared_));
  const auto is_numbers = [](const engine::Input& input) {
    return input.slot.reading == Reading::kNumbers;
  };
  const auto numbers = std::count_if(item.inputs.begin(), item.inputs.end(), is_numbers);
  const bool rotates = std::holds_alternative<PreparedRope>(prepared_);
  PHASOR_RETURN_IF_ERROR(CheckEntries(raw.size(), item.inputs.size() - static_cast<size_t>(numbers),
                                      rotates ? "tensors" : "add_to"));
  size_t next = 0;
  for (engine::Input& input : item.inputs) {
    const InputSlot& slot = input.slot;
    if (is_numbers(input)) {
      input.bytes = PartOf(slot.role == Role::kFromPositions ? from_ : positions_, first,
                           chunk.tokens(), slot);
      continue;
    }
    const std::string what = rotates ? absl::StrCat("tensors[", slot.index, "]") : "add_to";
    PHASOR_RETURN_IF_ERROR(
        CheckEntry(raw[next], next, slot.bytes, absl::StrCat(chunk.tokens(), " tokens of ", what)));
    input.bytes = raw[next++];
  }
  return item;
}

absl::StatusOr<RequestView> ChunkedItem::Cut(const v1::Chunk& chunk, int64_t next,
                                             absl::Span<const PieceList> raw,
                                             int64_t max_message_bytes) const {
  PHASOR_RETURN_IF_ERROR(CheckRun(chunk, next, tokens_));
  RequestView view;
  PHASOR_ASSIGN_OR_RETURN(engine::Item item, CutItem(chunk, raw));
  for (const engine::Output& output : item.outputs) view.response_bytes += output.slot.bytes;
  if (view.response_bytes > max_message_bytes - kAnswerHeaderBytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "chunk: the response is too large (", view.response_bytes, " bytes); must be at most ",
        max_message_bytes, ", send fewer tokens in a chunk"));
  }
  view.copied_bytes = engine::ScratchBytes(item);
  view.items.push_back(std::move(item));
  return view;
}

}  // namespace phasor::rpc
