// SPDX-License-Identifier: Apache-2.0
// Parses and checks messages of phasor.v1. Order of checks: the metadata of every item, the number
// of raw entries, their lengths, the size of the response.
#include "server/api/request_view.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"
#include "kernels/request/move_tokens.h"
#include "kernels/request/prepared.h"
#include "phasor/v1/position_embedding_service.pb.h"
#include "proto/convert.h"
#include "proto/convert_bias.h"
#include "proto/convert_move.h"
#include "proto/grpc_status.h"
#include "server/api/message_room.h"
#include "server/api/payload.h"
#include "server/api/recall.h"
#include "server/api/response_size.h"
#include "server/api/shared_tensors.h"
#include "server/engine/run_call.h"

namespace phasor::rpc {
namespace {

using engine::Item;

// The path of the item of a message that has only one.
constexpr char kOnlyItem[] = "item";

absl::Status CheckBackendPin(const v1::Pins& pins, const ViewContext& context,
                             const std::string& path) {
  if (pins.backend().empty() || pins.backend() == context.backend) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(path, ".pins.backend: '", Shown(pins.backend()),
                                                    "' does not run here; must be '",
                                                    context.backend, "' or empty"));
}

// If `spec` names an encoder, merges it with the encoder's fields. Fields set in `spec` win.
absl::Status ApplyEncoder(const ViewContext& context, const std::string& path, Spec* spec) {
  if (context.encoders == nullptr || spec->encoder.empty()) return absl::OkStatus();
  PHASOR_ASSIGN_OR_RETURN(*spec, context.encoders->Apply(*spec, path));
  return absl::OkStatus();
}

// Checks everything of an item but its payload.
absl::StatusOr<PreparedEncode> Prepare(const v1::EncodeItem& wire, const ViewContext& context,
                                       Sources sources, const std::string& path) {
  PHASOR_ASSIGN_OR_RETURN(EncodeRequest request, EncodeRequestFromWire(wire, path, sources));
  PHASOR_RETURN_IF_ERROR(ApplyEncoder(context, absl::StrCat(path, ".spec"), &request.spec));
  return PrepareEncode(request, context.plans, path, context.tables);
}

absl::StatusOr<PreparedRope> Prepare(const v1::ApplyRoPEItem& wire, const ViewContext& context,
                                     Sources sources, const std::string& path) {
  PHASOR_ASSIGN_OR_RETURN(RopeRequest request, RopeRequestFromWire(wire, path, sources));
  PHASOR_RETURN_IF_ERROR(ApplyEncoder(context, absl::StrCat(path, ".spec"), &request.spec));
  if (request.from_spec.has_value()) {
    PHASOR_RETURN_IF_ERROR(
        ApplyEncoder(context, absl::StrCat(path, ".from_spec"), &*request.from_spec));
  }
  return PrepareRope(request, context.plans, path);
}

absl::StatusOr<PreparedBias> Prepare(const v1::AttentionBiasItem& wire, const ViewContext& context,
                                     Sources, const std::string& path) {
  PHASOR_ASSIGN_OR_RETURN(const BiasRequest request, BiasRequestFromWire(wire, path));
  return PrepareBias(request, context.tables, path);
}

absl::StatusOr<PreparedMove> Prepare(const v1::MoveKeysItem& wire, const ViewContext& context,
                                     Sources, const std::string& path) {
  PHASOR_ASSIGN_OR_RETURN(MoveRequest request, MoveRequestFromWire(wire, path));
  for (size_t i = 0; i < request.specs.size(); ++i) {
    KeySpec& spec = request.specs[i];
    const std::string spec_path = absl::StrCat(path, ".specs[", i, "]");
    PHASOR_RETURN_IF_ERROR(ApplyEncoder(context, absl::StrCat(spec_path, ".spec"), &spec.spec));
    if (!spec.from_spec.has_value()) continue;
    PHASOR_RETURN_IF_ERROR(
        ApplyEncoder(context, absl::StrCat(spec_path, ".from_spec"), &*spec.from_spec));
  }
  return PrepareMove(request, context.plans, path);
}

// Prepare, which also refuses an item that is pinned to another backend.
template <typename Wire>
auto PrepareHere(const Wire& wire, const ViewContext& context, Sources sources,
                 const std::string& path) -> decltype(Prepare(wire, context, sources, path)) {
  PHASOR_ASSIGN_OR_RETURN(auto prepared, Prepare(wire, context, sources, path));
  PHASOR_RETURN_IF_ERROR(CheckBackendPin(wire.pins(), context, path));
  return prepared;
}

// The tensor of the message in that role; nullptr: there is none.
const v1::TensorSpec* Find(const v1::EncodeItem& wire, Role role, int) {
  if (role == Role::kPositions) return &wire.positions().tensor();
  if (role == Role::kOutput) return wire.has_destination() ? &wire.destination() : nullptr;
  return &wire.add_to();
}

const v1::TensorSpec* Find(const v1::ApplyRoPEItem& wire, Role role, int index) {
  switch (role) {
    case Role::kPositions:
      return &wire.positions().tensor();
    case Role::kFromPositions:
      return &wire.from_positions().tensor();
    case Role::kTensor:
      return &wire.tensors(index).tensor();
    case Role::kOutput:
      return wire.tensors(index).has_destination() ? &wire.tensors(index).destination() : nullptr;
    case Role::kValues:
      return &wire.paged_cache().values();
    case Role::kKeyCache:
      return &wire.paged_cache().key_cache();
    case Role::kValueCache:
      return &wire.paged_cache().value_cache();
    default:
      return &wire.paged_cache().slot_mapping();
  }
}

const v1::TensorSpec* Find(const v1::AttentionBiasItem& wire, Role role, int) {
  switch (role) {
    case Role::kQueryPositions:
      return &wire.query_positions().tensor();
    case Role::kKeyPositions:
      return &wire.key_positions().tensor();
    case Role::kTableValues:
      return &wire.table_values();
    case Role::kAddTo:
      return &wire.add_to();
    default:
      return nullptr;
  }
}

const v1::KeyPool* Find(const v1::MoveKeysItem& wire, Role, int index) {
  return &wire.pools(index);
}

// The tensor's path in errors: its field, with ".tensor" for positions.
template <typename Wire>
std::string PathOf(const std::string& path, Role role, int index) {
  const bool output = role == Role::kOutput && std::is_same_v<Wire, v1::ApplyRoPEItem>;
  const bool positions = role == Role::kPositions || role == Role::kFromPositions ||
                         role == Role::kQueryPositions || role == Role::kKeyPositions;
  if (output) return absl::StrCat(path, ".tensors[", index, "].destination");
  return absl::StrCat(path, ".", FieldOf(role, index), positions ? ".tensor" : "");
}

// The sources of a message's tensors: its raw entries and shared memory.
struct Payload {
  RawEntries raw;
  memory::Binding binding;
};

// Gives the inputs in the message their bytes, and adds the others to `shared`.
template <typename Wire>
absl::Status TakeInputs(const Wire& wire, const std::string& path, RawEntries* raw, Item* item,
                        SharedTensors* shared) {
  for (engine::Input& input : item->inputs) {
    const InputSlot& slot = input.slot;
    const auto& tensor = *Find(wire, slot.role, slot.index);
    const auto tensor_path = [&] { return PathOf<Wire>(path, slot.role, slot.index); };
    if (!IsInline(tensor)) {
      shared->inputs.push_back({slot.role, slot.index, SharedTensorOf(tensor, tensor_path())});
      continue;
    }
    // In errors about raw entries, tensors to rotate are called "tensors[i]".
    const auto raw_path = [&] {
      return slot.role == Role::kTensor ? absl::StrCat(path, ".tensors[", slot.index, "]")
                                        : tensor_path();
    };
    PHASOR_RETURN_IF_ERROR(raw->Take(
        slot.bytes, raw_path, [&] { return Describe(tensor); }, &input.bytes));
  }
  return absl::OkStatus();
}

// Checks everything of a destination but its memory and its shape.
absl::Status CheckDestination(const v1::TensorSpec& wanted, const ShapedType& output,
                              const std::string& path) {
  if (IsInline(wanted)) {
    return Invalid(
        path, ".region: not set; must be given, because results without destination are inline");
  }
  return wanted.dtype() == ToWire(output.dtype) ? absl::OkStatus() : NotLikeResult(output, path);
}

// Adds the destinations of outputs to `shared`.
template <typename Wire>
absl::Status TakeDestinations(const Wire& wire, const std::string& path, const Item& item,
                              SharedTensors* shared) {
  for (size_t i = 0; i < item.outputs.size(); ++i) {
    const OutputSlot& slot = item.outputs[i].slot;
    const v1::TensorSpec* const wanted =
        slot.role == Role::kOutput ? Find(wire, Role::kOutput, slot.index) : nullptr;
    if (wanted == nullptr) continue;
    const std::string output_path = PathOf<Wire>(path, Role::kOutput, slot.index);
    if (std::is_same_v<Wire, v1::EncodeItem> && wanted->strides_size() > 0) {
      return Invalid(output_path, ".strides: set; must be empty, because encodings are dense");
    }
    PHASOR_RETURN_IF_ERROR(CheckDestination(*wanted, OutputOf(item.prepared, i), output_path));
    SharedTensors::Output& output = shared->outputs.emplace_back();
    output.slot = i;
    output.tensor = SharedTensorOf(*wanted, output_path);
    if (slot.input < 0) continue;
    const InputSlot& from = item.inputs[static_cast<size_t>(slot.input)].slot;
    output.input = SharedTensorOf(*Find(wire, from.role, from.index), "");
  }
  return absl::OkStatus();
}

// Pools have no destinations: what is written stays in its place.
absl::Status TakeDestinations(const v1::MoveKeysItem&, const std::string&, const Item&,
                              SharedTensors*) {
  return absl::OkStatus();
}

// Whether the configuration may give the item another meaning. Other kinds are not asked.
bool NamesEncoder(const v1::EncodeItem& wire) { return !wire.spec().encoder().empty(); }
bool NamesEncoder(const v1::ApplyRoPEItem& wire) {
  return !wire.spec().encoder().empty() || !wire.from_spec().encoder().empty();
}
template <typename Wire>
bool NamesEncoder(const Wire&) {
  return true;
}

// Checks the items of one message and gives them their payload.
template <typename Wire>
class Viewer {
 public:
  Viewer(const ViewContext& context, int items)
      : context_(context), size_(context.max_message_bytes) {
    view_.items.reserve(items);
    entries_.reserve(items);
  }

  // Checks the metadata of the next item. If it is wrong, the error becomes the item's status.
  void Add(const Wire& wire, std::string path) {
    inline_tensors_ += CountInlineTensors(wire);
    auto prepared = PrepareHere(wire, context_, Sources::kShared, path);
    if (prepared.ok()) {
      view_.items.emplace_back(Prepared(*std::move(prepared)));
    } else {
      view_.items.emplace_back(std::move(prepared).status());
    }
    entries_.push_back({&wire, std::move(path), {}});
  }

  // Gives every item its payload, then adds up the response. An error of one item becomes its
  // status. INVALID_ARGUMENT: the number of raw entries is not that of inline tensors.
  // RESOURCE_EXHAUSTED: the response of all items would be too large.
  absl::Status Assign(absl::Span<const PieceList> raw) {
    if (static_cast<int64_t>(raw.size()) != inline_tensors_) {
      return Invalid("raw: ", raw.size(), " entries; must be ", inline_tensors_,
                     ", one per inline tensor");
    }
    Payload payload{RawEntries(raw), memory::Binding(context_.memory)};
    for (size_t i = 0; i < view_.items.size(); ++i) {
      Entry& entry = entries_[i];
      const std::string& path = entry.path;
      Item& item = view_.items[i];
      PHASOR_RETURN_IF_ERROR(size_.AddItem(path));
      const size_t next = payload.raw.next() + CountInlineTensors(*entry.wire);
      if (absl::Status status = AssignItem(&entry, &payload, &item); status.ok()) {
        view_.copied_bytes += engine::ScratchBytes(item);
        bytes_in_part_ += BytesInPart(item.prepared);
        PHASOR_RETURN_IF_ERROR(size_.AddResults(item, path));
      } else {
        item = Item(std::move(status));
      }
      payload.raw.SkipTo(next);
    }
    PHASOR_ASSIGN_OR_RETURN(view_.bound, payload.binding.Finish());
    view_.bound.shared_bytes += bytes_in_part_;
    return absl::OkStatus();
  }

  const Item& item(size_t i) const { return view_.items[i]; }

  // Remembers the items by their serialized bytes, one each; otherwise nothing.
  void Remember(absl::Span<const std::string_view> bytes) {
    if (bytes.size() != entries_.size()) return;
    for (size_t i = 0; i < bytes.size(); ++i) {
      Entry& entry = entries_[i];
      if (NamesEncoder(*entry.wire)) continue;
      if (!entry.shared.empty() && entry.path != kOnlyItem) continue;  // errors have the path
      RememberItem(bytes[i], CountInlineTensors(*entry.wire), view_.items[i],
                   std::move(entry.shared), context_);
    }
  }

  RequestView Finish() {
    view_.response_bytes = size_.element_bytes();
    return std::move(view_);
  }

 private:
  struct Entry {
    const Wire* wire;
    std::string path;
    SharedTensors shared;
  };

  // Returns the item's own error, if it has one.
  absl::Status AssignItem(Entry* entry, Payload* payload, Item* item) {
    const auto& [wire, path, shared] = *entry;
    absl::Status status = item->status;
    if (status.ok()) status = TakeInputs(*wire, path, &payload->raw, item, &entry->shared);
    if (status.ok()) status = TakeDestinations(*wire, path, *item, &entry->shared);
    if (status.ok()) status = Bind(shared, &payload->binding, item);
    ResponseSize alone(context_.max_message_bytes);
    if (status.ok()) status = alone.AddItem(path);
    if (status.ok()) status = alone.AddResults(*item, path);
    return payload->binding.EndItem(std::move(status));
  }

  const ViewContext& context_;
  ResponseSize size_;
  int64_t inline_tensors_ = 0;
  int64_t bytes_in_part_ = 0;
  std::vector<Entry> entries_;
  RequestView view_;
};

// `bytes`: the serialized item, to be remembered by; otherwise none.
template <typename Wire>
absl::StatusOr<RequestView> ViewOne(const Wire& item, absl::Span<const std::string_view> bytes,
                                    absl::Span<const PieceList> raw, const ViewContext& context) {
  Viewer<Wire> viewer(context, 1);
  viewer.Add(item, kOnlyItem);
  PHASOR_RETURN_IF_ERROR(viewer.item(0).status);
  PHASOR_RETURN_IF_ERROR(viewer.Assign(raw));
  PHASOR_RETURN_IF_ERROR(viewer.item(0).status);
  viewer.Remember(bytes);
  return viewer.Finish();
}

// The items of a message of which remembered ones may be; none if it must be parsed.
SerializedItems RecallableItems(const WalkedMessage& walked, const ViewContext& context,
                                std::optional<ItemKind> kind) {
  if (!kind.has_value() || context.memo == nullptr) return {};
  return ItemsOf(walked.header);
}

// `kind`: of items that are remembered; nullopt: these are not.
template <typename Message>
absl::StatusOr<RequestView> ParseUnary(const WalkedMessage& walked, const ViewContext& context,
                                       std::optional<ItemKind> kind = std::nullopt) {
  const SerializedItems items = RecallableItems(walked, context, kind);
  if (items.size() == 1) {
    std::optional<RequestView> known =
        RecallItems(*kind, items, walked.raw, Sources::kShared, context);
    if (known.has_value()) return *std::move(known);
  }
  MessageRoom room;
  Message& message = room.Make<Message>();
  PHASOR_RETURN_IF_ERROR(ParseHeader(walked, &message));
  if (!message.has_item()) return Invalid("item: not set; must be given");
  return ViewOne(message.item(), items, walked.raw, context);
}

// RESOURCE_EXHAUSTED: the items of a batch are too much work together, however short the message.
absl::Status CheckTogether(const google::protobuf::MessageLite&) { return absl::OkStatus(); }

absl::Status CheckTogether(const v1::BatchMoveKeysRequest& batch) {
  int64_t room = kMaxMoveTokens;
  for (const v1::MoveKeysItem& item : batch.items()) {
    for (const v1::KeyGroup& group : item.groups()) {
      room -= group.slots().slots_size();
      for (const v1::KeyRun& run : group.runs()) {
        room -= std::clamp<int64_t>(run.count(), 0, kMaxMoveTokens + 1);
      }
      if (room >= 0) continue;
      return absl::ResourceExhaustedError(
          absl::StrCat("items: more than ", kMaxMoveTokens,
                       " tokens together; must be at most that, make several calls"));
    }
  }
  return absl::OkStatus();
}

template <typename Message>
absl::StatusOr<RequestView> ParseBatch(const WalkedMessage& walked, const ViewContext& context,
                                       std::optional<ItemKind> kind = std::nullopt) {
  const SerializedItems items = RecallableItems(walked, context, kind);
  if (!items.empty() && static_cast<int64_t>(items.size()) <= context.max_batch_items) {
    std::optional<RequestView> known =
        RecallItems(*kind, items, walked.raw, Sources::kInline, context);
    if (known.has_value()) return *std::move(known);
  }
  MessageRoom room;
  Message& message = room.Make<Message>();
  PHASOR_RETURN_IF_ERROR(ParseHeader(walked, &message));
  if (message.items_size() > context.max_batch_items) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "items: ", message.items_size(), " items; must be at most ", context.max_batch_items));
  }
  PHASOR_RETURN_IF_ERROR(CheckTogether(message));
  Viewer<std::decay_t<decltype(message.items(0))>> viewer(context, message.items_size());
  for (int i = 0; i < message.items_size(); ++i) {
    viewer.Add(message.items(i), absl::StrCat("items[", i, "]"));
  }
  PHASOR_RETURN_IF_ERROR(viewer.Assign(walked.raw));
  viewer.Remember(items);
  return viewer.Finish();
}

}  // namespace

absl::Status ParseHeader(const WalkedMessage& walked, google::protobuf::MessageLite* message) {
  if (walked.header.size() <= std::numeric_limits<int>::max() &&
      message->ParseFromArray(walked.header.data(), static_cast<int>(walked.header.size()))) {
    return absl::OkStatus();
  }
  return Invalid("request: does not parse; must be a ", message->GetTypeName());
}

absl::StatusOr<RequestView> ViewItem(const v1::EncodeItem& item, absl::Span<const PieceList> raw,
                                     const ViewContext& context,
                                     absl::Span<const std::string_view> bytes) {
  return ViewOne(item, bytes, raw, context);
}

absl::StatusOr<RequestView> ViewItem(const v1::ApplyRoPEItem& item, absl::Span<const PieceList> raw,
                                     const ViewContext& context,
                                     absl::Span<const std::string_view> bytes) {
  return ViewOne(item, bytes, raw, context);
}

absl::StatusOr<RequestView> ViewItem(const v1::MoveKeysItem& item, absl::Span<const PieceList> raw,
                                     const ViewContext& context) {
  return ViewOne(item, {}, raw, context);
}

absl::StatusOr<PreparedEncode> PrepareItem(const v1::EncodeItem& item, const ViewContext& context) {
  return PrepareHere(item, context, Sources::kInline, "item");
}

absl::StatusOr<PreparedRope> PrepareItem(const v1::ApplyRoPEItem& item,
                                         const ViewContext& context) {
  return PrepareHere(item, context, Sources::kInline, "item");
}

absl::StatusOr<RequestView> ParseEncode(const WalkedMessage& message, const ViewContext& context) {
  return ParseUnary<v1::EncodeRequest>(message, context, ItemKind::kEncode);
}

absl::StatusOr<RequestView> ParseApplyRoPE(const WalkedMessage& message,
                                           const ViewContext& context) {
  return ParseUnary<v1::ApplyRoPERequest>(message, context, ItemKind::kRope);
}

absl::StatusOr<RequestView> ParseAttentionBias(const WalkedMessage& message,
                                               const ViewContext& context) {
  return ParseUnary<v1::AttentionBiasRequest>(message, context);
}

absl::StatusOr<RequestView> ParseMoveKeys(const WalkedMessage& message,
                                          const ViewContext& context) {
  return ParseUnary<v1::MoveKeysRequest>(message, context);
}

absl::StatusOr<RequestView> ParseBatchEncode(const WalkedMessage& message,
                                             const ViewContext& context) {
  return ParseBatch<v1::BatchEncodeRequest>(message, context, ItemKind::kEncode);
}

absl::StatusOr<RequestView> ParseBatchApplyRoPE(const WalkedMessage& message,
                                                const ViewContext& context) {
  return ParseBatch<v1::BatchApplyRoPERequest>(message, context, ItemKind::kRope);
}

absl::StatusOr<RequestView> ParseBatchMoveKeys(const WalkedMessage& message,
                                               const ViewContext& context) {
  return ParseBatch<v1::BatchMoveKeysRequest>(message, context);
}

}  // namespace phasor::rpc
