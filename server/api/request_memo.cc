// SPDX-License-Identifier: Apache-2.0
// Cuts items at their positions, compares the rest with remembered ones, and gives copies of those
// the positions of the new items.
#include "server/api/request_memo.h"

#include <algorithm>
#include <atomic>
#include <type_traits>
#include <utility>
#include <variant>

#include "phasor/v1/position_embedding_service.pb.h"
#include "proto/convert.h"
#include "proto/raw_message.h"
#include "server/api/message_room.h"
#include "server/engine/plan_budget.h"

namespace phasor::rpc {
namespace {

constexpr uint32_t kPositionsField = v1::EncodeItem::kPositionsFieldNumber;
static_assert(kPositionsField == v1::ApplyRoPEItem::kPositionsFieldNumber);

bool HasFields(const std::string& fields, const CutItem& item) {
  return fields.size() == item.before.size() + item.after.size() &&
         std::string_view(fields).substr(0, item.before.size()) == item.before &&
         std::string_view(fields).substr(item.before.size()) == item.after;
}

// Whether the request depends on its positions in no other way than ReplacePositions knows.
bool IsPlain(const PreparedEncode& encode) { return !encode.add_to.has_value(); }
bool IsPlain(const PreparedRope& rope) {
  return !rope.from_positions.has_value() && !rope.pages.has_value();
}

// Whether the remembered request may get other positions.
bool IsForAnyPositions(const Prepared& prepared, const SharedTensors& shared) {
  if (shared.Find(Role::kPositions, 0) != nullptr) return false;
  if (const auto* encode = std::get_if<PreparedEncode>(&prepared)) return IsPlain(*encode);
  return IsPlain(std::get<PreparedRope>(prepared));
}

// The kind of a request that may be remembered. Learned tables may be replaced.
std::optional<ItemKind> KindOf(const Prepared& prepared) {
  if (const auto* encode = std::get_if<PreparedEncode>(&prepared)) {
    return encode->table == nullptr ? std::optional(ItemKind::kEncode) : std::nullopt;
  }
  if (std::holds_alternative<PreparedRope>(prepared)) return ItemKind::kRope;
  return std::nullopt;
}

// Longest positions that are read here. Shorter ones cannot nest so deep that the parser would
// refuse them inside their request only.
constexpr size_t kMaxPositionsBytes = 128;

std::optional<Positions> ParsePositions(std::string_view bytes) {
  MessageRoom room;
  v1::Positions& wire = room.Make<v1::Positions>();
  if (!wire.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return std::nullopt;
  absl::StatusOr<Positions> positions = PositionsFromWire(wire, "");
  if (!positions.ok()) return std::nullopt;
  return *std::move(positions);
}

// Reads positions and gives them to `prepared`. False: they are wrong, or long.
bool SetPositions(std::string_view bytes, Prepared* prepared) {
  if (bytes.size() > kMaxPositionsBytes) return false;
  std::optional<Positions> positions;
  if (const std::optional<IntegerRange> range = PlainRange(bytes)) {
    positions = AxisRange(*range);
  } else {
    positions = ParsePositions(bytes);
  }
  if (!positions.has_value()) return false;
  if (auto* const encode = std::get_if<PreparedEncode>(prepared)) {
    return ReplacePositions(*positions, "", encode).ok();
  }
  return ReplacePositions(*positions, "", &std::get<PreparedRope>(*prepared)).ok();
}

// The positions of an item that is like `like` but for them.
std::optional<std::string_view> PositionsOf(std::string_view item, const CutItem& like) {
  if (item.substr(0, like.before.size()) != like.before) return std::nullopt;
  item.remove_prefix(like.before.size());
  if (item.empty()) return std::nullopt;
  const std::optional<PlainField> field = TakePlainField(&item);
  if (!field.has_value() || !field->IsBytes(kPositionsField) || item != like.after) {
    return std::nullopt;
  }
  return field->value;
}

// The positions of the first items as sequences, one for each item. Stops at an item that is not
// like `like`, or has another number of positions. Empty: the first item has no range with a step
// of one.
RaggedPositions SequencesOf(absl::Span<const std::string_view> items, const CutItem& like) {
  RaggedPositions all;
  for (const std::string_view item : items) {
    const std::optional<std::string_view> positions = PositionsOf(item, like);
    if (!positions.has_value()) break;
    const std::optional<IntegerRange> range = PlainRange(*positions);
    if (!range.has_value() || (range->step != 1 && range->count != 1)) break;
    if (!all.lengths.empty() && range->count != all.lengths[0]) break;
    all.lengths.push_back(range->count);
    all.offsets.push_back(range->start);
  }
  return all;
}

}  // namespace

std::optional<IntegerRange> PlainRange(std::string_view positions) {
  for (const uint32_t message :
       {uint32_t{v1::Positions::kRangeFieldNumber}, uint32_t{v1::AxisRange::kIntegerFieldNumber}}) {
    const std::optional<PlainField> field = TakePlainField(&positions);
    if (!field.has_value() || !field->IsBytes(message)) return std::nullopt;
    if (!positions.empty()) return std::nullopt;
    positions = field->value;
  }
  IntegerRange range;
  while (!positions.empty()) {
    const std::optional<PlainField> field = TakePlainField(&positions);
    if (!field.has_value() || field->kind != PlainField::Kind::kVarint) return std::nullopt;
    const auto value = static_cast<int64_t>(field->varint);
    switch (field->number) {
      case v1::IntegerRange::kStartFieldNumber:
        range.start = value;
        break;
      case v1::IntegerRange::kStepFieldNumber:
        range.step = value;
        break;
      case v1::IntegerRange::kCountFieldNumber:
        range.count = value;
        break;
      default:
        return std::nullopt;
    }
  }
  return range;
}

std::optional<CutItem> CutPositions(std::string_view item) {
  std::optional<CutItem> cut;
  for (std::string_view rest = item; !rest.empty();) {
    const char* const begin = rest.data();
    const std::optional<PlainField> field = TakePlainField(&rest);
    if (!field.has_value()) return std::nullopt;
    if (field->number != kPositionsField) continue;
    if (cut.has_value() || !field->IsBytes(kPositionsField)) return std::nullopt;
    cut = {item.substr(0, static_cast<size_t>(begin - item.data())), field->value, rest};
  }
  return cut;
}

size_t RequestMemo::Find(ItemKind kind, absl::Span<const std::string_view> items, Prepared* found,
                         std::shared_ptr<const SharedTensors>* shared) {
  const std::optional<CutItem> cut = CutPositions(items[0]);
  if (!cut.has_value()) return 0;
  bool same_positions = false;
  if (!PartOfThread().Find(kind, *cut, found, shared, &same_positions)) return 0;
  if (kind == ItemKind::kEncode && items.size() > 1 && *shared == nullptr &&
      IsPlain(std::get<PreparedEncode>(*found))) {
    const RaggedPositions all = SequencesOf(items, *cut);
    if (all.lengths.size() > 1) {
      const bool right = ReplacePositions(all, "", &std::get<PreparedEncode>(*found)).ok();
      return right ? all.lengths.size() : 0;
    }
  }
  return same_positions || SetPositions(cut->positions, found) ? 1 : 0;
}

void RequestMemo::Keep(std::string_view item, const Prepared& prepared, SharedTensors shared) {
  const std::optional<ItemKind> kind = KindOf(prepared);
  if (!kind.has_value() || item.size() > kMaxItemBytes) return;
  if (BytesOf(*PlanOf(prepared)) > engine::kSmallPlanBytes) return;
  const std::optional<CutItem> cut = CutPositions(item);
  if (!cut.has_value()) return;
  Request request{*kind, std::string(cut->before), std::string(cut->positions),
                  IsForAnyPositions(prepared, shared), prepared};
  request.fields.append(cut->after);
  if (!shared.empty()) request.shared = std::make_shared<SharedTensors>(std::move(shared));
  PartOfThread().Keep(std::move(request));
}

RequestMemo::Part& RequestMemo::PartOfThread() {
  static std::atomic<size_t> threads = 0;
  thread_local const size_t thread = threads.fetch_add(1, std::memory_order_relaxed);
  return parts_[thread % kParts];
}

bool RequestMemo::Part::Find(ItemKind kind, const CutItem& item, Prepared* found,
                             std::shared_ptr<const SharedTensors>* shared, bool* same_positions) {
  absl::MutexLock lock(&mu_);
  for (const Request& request : requests_) {
    if (request.kind != kind || !HasFields(request.fields, item)) continue;
    *same_positions = request.positions == item.positions;
    if (!*same_positions && !request.for_any_positions) return false;
    *shared = request.shared;
    std::visit(
        [&](const auto& prepared) { found->emplace<std::decay_t<decltype(prepared)>>(prepared); },
        request.prepared);
    return true;
  }
  return false;
}

void RequestMemo::Part::Keep(Request request) {
  absl::MutexLock lock(&mu_);
  const auto same = std::find_if(requests_.begin(), requests_.end(), [&](const Request& other) {
    return other.kind == request.kind && other.fields == request.fields;
  });
  if (same != requests_.end()) {
    *same = std::move(request);
  } else if (requests_.size() < kRequestsOfPart) {
    requests_.push_back(std::move(request));
  } else {
    requests_[oldest_] = std::move(request);
    oldest_ = (oldest_ + 1) % kRequestsOfPart;
  }
}

}  // namespace phasor::rpc
