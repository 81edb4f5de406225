// SPDX-License-Identifier: Apache-2.0
// See request_view.h. The order of checks: metadata of every item, the number of raw entries, their
// lengths, the size of the response.
#include "server/api/request_view.h"

#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"
#include "kernels/request/paged_cache.h"
#include "phasor/v1/position_embedding_service.pb.h"
#include "proto/convert.h"
#include "proto/convert_bias.h"
#include "proto/grpc_status.h"
#include "server/api/payload.h"
#include "server/engine/run_call.h"

namespace phasor::rpc {
namespace {

using engine::BiasItem;
using engine::EncodeItem;
using engine::Item;
using engine::RopeItem;
using engine::Segments;

absl::Status CheckBackendPin(const v1::Pins& pins, const ViewContext& context,
                             const std::string& path) {
  if (pins.backend().empty() || pins.backend() == context.backend) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(path, ".pins.backend: '", Shown(pins.backend()),
                                                    "' does not run here, must be '",
                                                    context.backend, "' or empty"));
}

// Puts the fields of the encoder that `spec` names, if it does, under its own.
absl::Status ApplyEncoder(const ViewContext& context, const std::string& path, Spec* spec) {
  if (context.encoders == nullptr || spec->encoder.empty()) return absl::OkStatus();
  PHASOR_ASSIGN_OR_RETURN(*spec, context.encoders->Apply(*spec, path));
  return absl::OkStatus();
}

// Most bytes of a response beside its elements: an item's status message or run info, an output's
// dtype and shape.
constexpr int64_t kItemHeaderBytes = kMaxStatusMessageBytes + 256;
constexpr int64_t kOutputHeaderBytes = 128;

// Size of the response. A sum beyond `limit` is an error, so sums cannot overflow.
class ResponseSize {
 public:
  explicit ResponseSize(int64_t limit) : limit_(limit), room_(limit) {}

  absl::Status AddItem(const std::string& path) { return Spend(kItemHeaderBytes, path); }

  absl::Status AddOutput(int64_t bytes, const std::string& path) {
    PHASOR_RETURN_IF_ERROR(Spend(kOutputHeaderBytes, path));
    PHASOR_RETURN_IF_ERROR(Spend(bytes, path));
    element_bytes_ += bytes;
    return absl::OkStatus();
  }

  int64_t element_bytes() const { return element_bytes_; }

 private:
  absl::Status Spend(int64_t bytes, const std::string& path) {
    if (bytes > room_) {
      return absl::ResourceExhaustedError(
          absl::StrCat(path, ": the response is too large, must be at most ", limit_, " bytes"));
    }
    room_ -= bytes;
    return absl::OkStatus();
  }

  const int64_t limit_;
  int64_t room_;
  int64_t element_bytes_ = 0;
};

// What differs between the two kinds of item.
struct EncodeTraits {
  using Wire = v1::EncodeItem;
  using Prepared = PreparedEncode;
  using EngineItem = EncodeItem;

  static absl::StatusOr<Prepared> Prepare(const Wire& wire, const ViewContext& context,
                                          Sources sources, const std::string& path) {
    PHASOR_ASSIGN_OR_RETURN(EncodeRequest request, EncodeRequestFromWire(wire, path, sources));
    PHASOR_RETURN_IF_ERROR(ApplyEncoder(context, absl::StrCat(path, ".spec"), &request.spec));
    return PrepareEncode(request, context.plans, path, context.tables);
  }

  static absl::Status AddOutputs(const EngineItem& item, const std::string& path,
                                 ResponseSize* size) {
    return size->AddOutput(item.destination.data != nullptr ? 0 : item.prepared.output_bytes, path);
  }

  static absl::Status Assign(const Wire& wire, const std::string& path, Payload* payload,
                             EngineItem* item) {
    const PreparedEncode& prepared = item->prepared;
    PHASOR_RETURN_IF_ERROR(payload->Take(wire.positions(), prepared.positions_bytes,
                                         absl::StrCat(path, ".positions"), &item->positions,
                                         &item->changing));
    if (wire.has_add_to()) {
      PHASOR_RETURN_IF_ERROR(payload->Take(wire.add_to(), prepared.add_to_bytes,
                                           absl::StrCat(path, ".add_to"), &item->add_to,
                                           &item->changing));
    }
    if (!wire.has_destination()) return absl::OkStatus();
    if (wire.destination().strides_size() > 0) {
      return Invalid(path, ".destination.strides: must be empty: encodings are dense");
    }
    PHASOR_ASSIGN_OR_RETURN(item->destination,
                            payload->shared.Output(wire.destination(), ToWire(prepared.output),
                                                   {wire.has_add_to() ? &wire.add_to() : nullptr,
                                                    prepared.add_to_bytes, prepared.output_bytes},
                                                   absl::StrCat(path, ".destination")));
    return absl::OkStatus();
  }
};

struct RopeTraits {
  using Wire = v1::ApplyRoPEItem;
  using Prepared = PreparedRope;
  using EngineItem = RopeItem;

  static absl::StatusOr<Prepared> Prepare(const Wire& wire, const ViewContext& context,
                                          Sources sources, const std::string& path) {
    PHASOR_ASSIGN_OR_RETURN(RopeRequest request, RopeRequestFromWire(wire, path, sources));
    PHASOR_RETURN_IF_ERROR(ApplyEncoder(context, absl::StrCat(path, ".spec"), &request.spec));
    if (request.from_spec.has_value()) {
      PHASOR_RETURN_IF_ERROR(
          ApplyEncoder(context, absl::StrCat(path, ".from_spec"), &*request.from_spec));
    }
    return PrepareRope(request, context.plans, path);
  }

  static absl::Status AddOutputs(const EngineItem& item, const std::string& path,
                                 ResponseSize* size) {
    for (size_t i = 0; i < item.prepared.tensors.size(); ++i) {
      const bool elsewhere = !item.destinations.empty() && item.destinations[i].data != nullptr;
      PHASOR_RETURN_IF_ERROR(
          size->AddOutput(elsewhere ? 0 : item.prepared.tensors[i].output_bytes, path));
    }
    return absl::OkStatus();
  }

  static absl::Status Assign(const Wire& wire, const std::string& path, Payload* payload,
                             EngineItem* item) {
    const PreparedRope& prepared = item->prepared;
    PHASOR_RETURN_IF_ERROR(payload->Take(wire.positions(), prepared.positions_bytes,
                                         absl::StrCat(path, ".positions"), &item->positions,
                                         &item->changing));
    item->tensors.resize(prepared.tensors.size());
    for (int i = 0; i < wire.tensors_size(); ++i) {
      const auto index = static_cast<size_t>(i);
      const std::string tensor_path = absl::StrCat(path, ".tensors[", i, "]");
      PHASOR_RETURN_IF_ERROR(payload->Take(
          wire.tensors(i).tensor(), prepared.tensors[index].input_bytes, tensor_path,
          absl::StrCat(tensor_path, ".tensor"), &item->tensors[index], &item->changing));
    }
    PHASOR_RETURN_IF_ERROR(payload->Take(wire.from_positions(), prepared.from_positions_bytes,
                                         absl::StrCat(path, ".from_positions"),
                                         &item->from_positions, &item->changing));
    PHASOR_RETURN_IF_ERROR(AssignDestinations(wire, path, &payload->shared, item));
    if (!prepared.pages.has_value()) return absl::OkStatus();
    return AssignPages(wire.paged_cache(), absl::StrCat(path, ".paged_cache"), payload, item);
  }

  static absl::Status AssignPages(const v1::PagedCacheWrite& wire, const std::string& path,
                                  Payload* payload, EngineItem* item) {
    const PreparedRope& prepared = item->prepared;
    const size_t key = prepared.pages->key_index, value = prepared.tensors.size() - 1;
    item->destinations.resize(prepared.tensors.size());
    PHASOR_RETURN_IF_ERROR(payload->Take(wire.values(), prepared.tensors[value].input_bytes,
                                         absl::StrCat(path, ".values"), &item->tensors[value],
                                         &item->changing));
    PHASOR_RETURN_IF_ERROR(payload->TakeCache(wire.key_cache(), prepared.tensors[key],
                                              absl::StrCat(path, ".key_cache"), &item->key_cache,
                                              &item->destinations[key]));
    PHASOR_RETURN_IF_ERROR(payload->TakeCache(wire.value_cache(), prepared.tensors[value],
                                              absl::StrCat(path, ".value_cache"),
                                              &item->value_cache, &item->destinations[value]));
    payload->copied_bytes += prepared.tokens * kBytesPerSlot;
    return payload->Take(wire.slot_mapping(), prepared.pages->slot_mapping_bytes,
                         absl::StrCat(path, ".slot_mapping"), &item->slot_mapping, &item->changing);
  }

  static absl::Status AssignDestinations(const Wire& wire, const std::string& path,
                                         SharedTensors* shared, EngineItem* item) {
    for (int i = 0; i < wire.tensors_size(); ++i) {
      if (!wire.tensors(i).has_destination()) continue;
      const PreparedRope::Tensor& tensor = item->prepared.tensors[static_cast<size_t>(i)];
      item->destinations.resize(item->tensors.size());
      const int64_t strided_bytes =
          tensor.input_bytes / SizeOf(tensor.dtype) * SizeOf(tensor.output_dtype);
      PHASOR_ASSIGN_OR_RETURN(
          item->destinations[static_cast<size_t>(i)],
          shared->Output(wire.tensors(i).destination(), ToWire(OutputOf(tensor)),
                         {&wire.tensors(i).tensor(), strided_bytes, tensor.output_bytes},
                         absl::StrCat(path, ".tensors[", i, "].destination")));
    }
    return absl::OkStatus();
  }
};

struct BiasTraits {
  using Wire = v1::AttentionBiasItem;
  using Prepared = PreparedBias;
  using EngineItem = BiasItem;

  static absl::StatusOr<Prepared> Prepare(const Wire& wire, const ViewContext& context, Sources,
                                          const std::string& path) {
    PHASOR_ASSIGN_OR_RETURN(const BiasRequest request, BiasRequestFromWire(wire, path));
    return PrepareBias(request, context.tables, path);
  }

  static absl::Status AddOutputs(const EngineItem& item, const std::string& path,
                                 ResponseSize* size) {
    return size->AddOutput(item.prepared.output_bytes, path);
  }

  static absl::Status Assign(const Wire& wire, const std::string& path, Payload* payload,
                             EngineItem* item) {
    const PreparedBias& prepared = item->prepared;
    bool inline_only = false;  // conversion refuses regions
    PHASOR_RETURN_IF_ERROR(payload->Take(wire.query_positions(), prepared.queries_bytes,
                                         absl::StrCat(path, ".query_positions"), &item->queries,
                                         &inline_only));
    PHASOR_RETURN_IF_ERROR(payload->Take(wire.key_positions(), prepared.keys_bytes,
                                         absl::StrCat(path, ".key_positions"), &item->keys,
                                         &inline_only));
    if (wire.has_add_to()) {
      PHASOR_RETURN_IF_ERROR(payload->Take(wire.add_to(), prepared.add_to_bytes,
                                           absl::StrCat(path, ".add_to"), &item->add_to,
                                           &inline_only));
    }
    if (!wire.has_table_values()) return absl::OkStatus();
    return payload->Take(wire.table_values(), prepared.table_bytes,
                         absl::StrCat(path, ".table_values"), &item->table_values, &inline_only);
  }
};

template <typename Traits>
absl::StatusOr<typename Traits::Prepared> Prepare(const typename Traits::Wire& wire,
                                                  const ViewContext& context, Sources sources,
                                                  const std::string& path) {
  PHASOR_ASSIGN_OR_RETURN(typename Traits::Prepared prepared,
                          Traits::Prepare(wire, context, sources, path));
  PHASOR_RETURN_IF_ERROR(CheckBackendPin(wire.pins(), context, path));
  return prepared;
}

// The status of an item that failed, else OK.
absl::Status StatusOf(const Item& item) {
  const auto* status = std::get_if<absl::Status>(&item);
  return status == nullptr ? absl::OkStatus() : *status;
}

// Items of one message while they are checked.
template <typename Traits>
class Viewer {
 public:
  using Wire = typename Traits::Wire;

  using Prepared = typename Traits::Prepared;
  using EngineItem = typename Traits::EngineItem;

  Viewer(const ViewContext& context, int items)
      : context_(context), size_(context.max_message_bytes) {
    view_.items.reserve(items);
    entries_.reserve(items);
  }

  // Checks the metadata of the next item; its own errors take its place.
  void Add(const Wire& wire, std::string path) {
    inline_tensors_ += CountInlineTensors(wire);
    absl::StatusOr<Prepared> prepared = Prepare<Traits>(wire, context_, Sources::kShared, path);
    if (prepared.ok()) {
      Item& item = view_.items.emplace_back(std::in_place_type<EngineItem>);
      std::get<EngineItem>(item).prepared = *std::move(prepared);
    } else {
      view_.items.emplace_back(std::move(prepared).status());
    }
    entries_.push_back({&wire, std::move(path)});
  }

  // Gives every item its payload, then adds up the response; an item's own errors take its place.
  // INVALID_ARGUMENT: not as many entries as tensors. RESOURCE_EXHAUSTED: all items together.
  absl::Status Assign(absl::Span<const Segments> raw) {
    if (static_cast<int64_t>(raw.size()) != inline_tensors_) {
      return absl::InvalidArgumentError(absl::StrCat("raw: ", raw.size(), " entries, expected ",
                                                     inline_tensors_, ", one per inline tensor"));
    }
    Payload payload{RawEntries(raw), SharedTensors(context_.shared)};
    for (size_t i = 0; i < view_.items.size(); ++i) {
      const auto& [wire, path] = entries_[i];
      PHASOR_RETURN_IF_ERROR(size_.AddItem(path));
      const size_t next = payload.raw.next() + CountInlineTensors(*wire);
      if (auto* item = std::get_if<EngineItem>(&view_.items[i])) {
        if (absl::Status status = AssignItem(*wire, path, &payload, item); status.ok()) {
          payload.copied_bytes += engine::ScratchBytes(*item);
          PHASOR_RETURN_IF_ERROR(Traits::AddOutputs(*item, path, &size_));
        } else {
          view_.items[i] = std::move(status);
        }
      } else {
        payload.shared.EndItem(StatusOf(view_.items[i])).IgnoreError();
      }
      payload.raw.SkipTo(next);
    }
    PHASOR_RETURN_IF_ERROR(payload.shared.CheckItems());
    view_.held = payload.shared.TakeHeld();
    view_.shared_bytes = payload.shared.bytes();
    view_.copies = payload.shared.TakeCopies();
    view_.copied_bytes =
        payload.copied_bytes + (view_.copies == nullptr ? 0 : view_.copies->bytes());
    return absl::OkStatus();
  }

  const Item& item(size_t i) const { return view_.items[i]; }

  RequestView Finish() {
    view_.response_bytes = size_.element_bytes();
    return std::move(view_);
  }

 private:
  struct Entry {
    const Wire* wire;
    std::string path;
  };

  absl::Status AssignItem(const Wire& wire, const std::string& path, Payload* payload,
                          EngineItem* item) {
    absl::Status status = Traits::Assign(wire, path, payload, item);
    ResponseSize alone(context_.max_message_bytes);
    if (status.ok()) status = alone.AddItem(path);
    if (status.ok()) status = Traits::AddOutputs(*item, path, &alone);
    return payload->shared.EndItem(std::move(status));
  }

  const ViewContext& context_;
  ResponseSize size_;
  int64_t inline_tensors_ = 0;
  std::vector<Entry> entries_;
  RequestView view_;
};

template <typename Traits>
absl::StatusOr<RequestView> ViewOne(const typename Traits::Wire& item,
                                    absl::Span<const Segments> raw, const ViewContext& context) {
  Viewer<Traits> viewer(context, 1);
  viewer.Add(item, "item");
  PHASOR_RETURN_IF_ERROR(StatusOf(viewer.item(0)));
  PHASOR_RETURN_IF_ERROR(viewer.Assign(raw));
  PHASOR_RETURN_IF_ERROR(StatusOf(viewer.item(0)));
  return viewer.Finish();
}

template <typename Traits, typename Message>
absl::StatusOr<RequestView> ParseUnary(const WalkedMessage& walked, const ViewContext& context) {
  Message message;
  PHASOR_RETURN_IF_ERROR(ParseHeader(walked, &message));
  if (!message.has_item()) {
    return absl::InvalidArgumentError("item: not set, must be given");
  }
  return ViewOne<Traits>(message.item(), walked.raw, context);
}

template <typename Traits, typename Message>
absl::StatusOr<RequestView> ParseBatch(const WalkedMessage& walked, const ViewContext& context) {
  Message message;
  PHASOR_RETURN_IF_ERROR(ParseHeader(walked, &message));
  if (message.items_size() > context.max_batch_items) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "items: ", message.items_size(), " items, must be at most ", context.max_batch_items));
  }
  Viewer<Traits> viewer(context, message.items_size());
  for (int i = 0; i < message.items_size(); ++i) {
    viewer.Add(message.items(i), absl::StrCat("items[", i, "]"));
  }
  PHASOR_RETURN_IF_ERROR(viewer.Assign(walked.raw));
  return viewer.Finish();
}

}  // namespace

absl::Status ParseHeader(const WalkedMessage& walked, google::protobuf::MessageLite* message) {
  if (walked.header.size() <= std::numeric_limits<int>::max() &&
      message->ParseFromArray(walked.header.data(), static_cast<int>(walked.header.size()))) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("request: does not parse, must be a ", message->GetTypeName()));
}

absl::StatusOr<RequestView> ViewItem(const v1::EncodeItem& item, absl::Span<const Segments> raw,
                                     const ViewContext& context) {
  return ViewOne<EncodeTraits>(item, raw, context);
}

absl::StatusOr<RequestView> ViewItem(const v1::ApplyRoPEItem& item, absl::Span<const Segments> raw,
                                     const ViewContext& context) {
  return ViewOne<RopeTraits>(item, raw, context);
}

absl::StatusOr<PreparedEncode> PrepareItem(const v1::EncodeItem& item, const ViewContext& context) {
  return Prepare<EncodeTraits>(item, context, Sources::kInline, "item");
}

absl::StatusOr<PreparedRope> PrepareItem(const v1::ApplyRoPEItem& item,
                                         const ViewContext& context) {
  return Prepare<RopeTraits>(item, context, Sources::kInline, "item");
}

absl::StatusOr<RequestView> ParseEncode(const WalkedMessage& message, const ViewContext& context) {
  return ParseUnary<EncodeTraits, v1::EncodeRequest>(message, context);
}

absl::StatusOr<RequestView> ParseApplyRoPE(const WalkedMessage& message,
                                           const ViewContext& context) {
  return ParseUnary<RopeTraits, v1::ApplyRoPERequest>(message, context);
}

absl::StatusOr<RequestView> ParseAttentionBias(const WalkedMessage& message,
                                               const ViewContext& context) {
  return ParseUnary<BiasTraits, v1::AttentionBiasRequest>(message, context);
}

absl::StatusOr<RequestView> ParseBatchEncode(const WalkedMessage& message,
                                             const ViewContext& context) {
  return ParseBatch<EncodeTraits, v1::BatchEncodeRequest>(message, context);
}

absl::StatusOr<RequestView> ParseBatchApplyRoPE(const WalkedMessage& message,
                                                const ViewContext& context) {
  return ParseBatch<RopeTraits, v1::BatchApplyRoPERequest>(message, context);
}

}  // namespace phasor::rpc
