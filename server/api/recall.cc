// SPDX-License-Identifier: Apache-2.0
// Splits messages into serialized items, and makes views of remembered items with new payload.
//
// A view is exactly what parsing would give. All that can differ between messages with equal
// metadata is checked here: the number of raw entries, their lengths, and the size of the response.
#include "server/api/recall.h"

#include <algorithm>
#include <utility>

#include "kernels/request/prepared.h"
#include "phasor/v1/position_embedding_service.pb.h"
#include "server/api/response_size.h"
#include "server/engine/run_call.h"

namespace phasor::rpc {
namespace {

constexpr uint32_t kItemField = v1::EncodeRequest::kItemFieldNumber;
static_assert(kItemField == v1::ApplyRoPERequest::kItemFieldNumber);
static_assert(kItemField == v1::BatchEncodeRequest::kItemsFieldNumber);
static_assert(kItemField == v1::BatchApplyRoPERequest::kItemsFieldNumber);
constexpr uint32_t kIdField = v1::StreamEncodeRequest::kIdFieldNumber;
constexpr uint32_t kStreamedField = v1::StreamEncodeRequest::kItemFieldNumber;
static_assert(kIdField == v1::StreamApplyRoPERequest::kIdFieldNumber);
static_assert(kStreamedField == v1::StreamApplyRoPERequest::kItemFieldNumber);

// Gives the inputs their entries from `raw` on, and takes those off. False: they do not fit.
bool TakeEntries(engine::Item* item, absl::Span<const PieceList>* raw) {
  if (item->inputs.size() > raw->size()) return false;
  for (size_t i = 0; i < item->inputs.size(); ++i) {
    engine::Input& input = item->inputs[i];
    if (PieceBytes((*raw)[i]) != input.slot.bytes) return false;
    input.bytes = (*raw)[i];
  }
  raw->remove_prefix(item->inputs.size());
  return true;
}

// Whether all tensors of the item are in its message and its answer.
bool StandsAlone(const engine::Item& item, int inline_tensors) {
  return static_cast<size_t>(inline_tensors) == item.inputs.size() &&
         std::all_of(item.outputs.begin(), item.outputs.end(), [](const engine::Output& output) {
           return output.place.in_answer() && output.place.region.empty();
         });
}

}  // namespace

SerializedItems ItemsOf(std::string_view header) {
  SerializedItems items;
  while (!header.empty()) {
    const std::optional<PlainField> field = TakePlainField(&header);
    if (!field.has_value() || !field->IsBytes(kItemField)) return {};
    items.push_back(field->value);
  }
  return items;
}

std::optional<StreamedItem> StreamedItemOf(std::string_view header) {
  StreamedItem message;
  bool has_item = false;
  while (!header.empty()) {
    const std::optional<PlainField> field = TakePlainField(&header);
    if (!field.has_value()) return std::nullopt;
    if (field->number == kIdField && field->kind == PlainField::Kind::kVarint) {
      message.id = static_cast<int64_t>(field->varint);
    } else if (field->IsBytes(kStreamedField) && !has_item) {
      message.item = field->value;
      has_item = true;
    } else {
      return std::nullopt;
    }
  }
  if (!has_item) return std::nullopt;
  return message;
}

std::optional<RequestView> RecallItems(ItemKind kind, absl::Span<const std::string_view> items,
                                       absl::Span<const PieceList> raw,
                                       const ViewContext& context) {
  if (context.memo == nullptr || items.empty()) return std::nullopt;
  std::optional<RequestView> view(std::in_place);
  view->items.reserve(items.size());
  ResponseSize size(context.max_message_bytes);
  view->recalled_items = static_cast<int64_t>(items.size());
  while (!items.empty()) {
    engine::Item& item = view->items.emplace_back();
    item.parts = context.memo->Find(kind, items, &item.prepared);
    if (item.parts == 0) return std::nullopt;
    items.remove_prefix(item.parts);
    item.MakeSlots();
    if (!TakeEntries(&item, &raw)) return std::nullopt;
    if (!size.AddItem("", item.parts).ok() || !size.AddResults(item, "").ok()) return std::nullopt;
    view->copied_bytes += engine::ScratchBytes(item);
  }
  if (!raw.empty()) return std::nullopt;
  view->response_bytes = size.element_bytes();
  return view;
}

void RememberItem(std::string_view item, int inline_tensors, const engine::Item& checked,
                  const ViewContext& context) {
  if (context.memo == nullptr || !checked.status.ok()) return;
  if (StandsAlone(checked, inline_tensors)) context.memo->Keep(item, checked.prepared);
}

}  // namespace phasor::rpc
