// SPDX-License-Identifier: Apache-2.0
// Splits messages into serialized items, and makes views of remembered items with new payload.
//
// A view is exactly what parsing would give. All that can differ between messages with equal
// metadata is checked here: the number of raw entries, their lengths, the shared memory that is
// named, and the size of the response.
#include "server/api/recall.h"

#include <memory>
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

// Gives the inputs that lie in the message their entries from `raw` on, and takes those off. False:
// they do not fit.
bool TakeEntries(const SharedTensors* shared, engine::Item* item,
                 absl::Span<const PieceList>* raw) {
  for (engine::Input& input : item->inputs) {
    const InputSlot& slot = input.slot;
    if (shared != nullptr && shared->Find(slot.role, slot.index) != nullptr) continue;
    if (raw->empty() || PieceBytes(raw->front()) != slot.bytes) return false;
    input.bytes = raw->front();
    raw->remove_prefix(1);
  }
  return true;
}

// Binds the only item of a view. False: something is wrong.
bool BindShared(const SharedTensors& shared, const ViewContext& context, RequestView* view) {
  memory::Binding binding(context.memory);
  if (!binding.EndItem(Bind(shared, &binding, &view->items[0])).ok()) return false;
  absl::StatusOr<memory::Bound> bound = binding.Finish();
  if (!bound.ok()) return false;
  view->bound = *std::move(bound);
  return true;
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
                                       absl::Span<const PieceList> raw, Sources sources,
                                       const ViewContext& context) {
  if (context.memo == nullptr || items.empty()) return std::nullopt;
  std::optional<RequestView> view(std::in_place);
  view->items.reserve(items.size());
  ResponseSize size(context.max_message_bytes);
  view->recalled_items = static_cast<int64_t>(items.size());
  while (!items.empty()) {
    engine::Item& item = view->items.emplace_back();
    std::shared_ptr<const SharedTensors> shared;
    item.parts = context.memo->Find(kind, items, &item.prepared, &shared);
    if (item.parts == 0) return std::nullopt;
    items.remove_prefix(item.parts);
    item.MakeSlots();
    if (!TakeEntries(shared.get(), &item, &raw)) return std::nullopt;
    if (shared != nullptr) {
      if (sources == Sources::kInline || !BindShared(*shared, context, &*view)) return std::nullopt;
    }
    if (!size.AddItem("", item.parts).ok() || !size.AddResults(item, "").ok()) return std::nullopt;
    view->copied_bytes += engine::ScratchBytes(item);
    view->bound.shared_bytes += BytesInPart(item.prepared);
  }
  if (!raw.empty()) return std::nullopt;
  view->response_bytes = size.element_bytes();
  return view;
}

void RememberItem(std::string_view item, int inline_tensors, const engine::Item& checked,
                  SharedTensors shared, const ViewContext& context) {
  if (context.memo == nullptr || !checked.status.ok()) return;
  if (static_cast<size_t>(inline_tensors) + shared.inputs.size() != checked.inputs.size()) return;
  context.memo->Keep(item, checked.prepared, std::move(shared));
}

}  // namespace phasor::rpc
