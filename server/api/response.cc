// SPDX-License-Identifier: Apache-2.0
// See response.h.
#include "server/api/response.h"

#include <cstdint>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "phasor/v1/position_embedding_service.pb.h"
#include "proto/convert.h"
#include "proto/enums.h"
#include "proto/grpc_status.h"
#include "proto/raw_message.h"
#include "server/grpc/message_writer.h"

namespace phasor::rpc {
namespace {

using engine::OutputRange;

template <typename Message>
grpc::ByteBuffer Join(const Message& header, const engine::Result& result) {
  absl::InlinedVector<OutputRange, 8> outputs;
  for (const engine::ItemResult& item : result.items) {
    outputs.insert(outputs.end(), item.outputs.begin(), item.outputs.end());
  }
  return WriteMessage(header.SerializeAsString(), kRawField, outputs, result.buffer);
}

// Says where an output is that the response has not.
void SetRegion(const engine::Destination& destination, v1::TensorSpec* tensor) {
  if (destination.data == nullptr) return;
  const auto set = [&](auto* place) {
    place->set_region(destination.region);
    place->set_offset_bytes(destination.offset_bytes);
  };
  destination.on_device ? set(tensor->mutable_device()) : set(tensor->mutable_region());
}

void FillResult(const engine::Item& item, std::string_view backend, v1::EncodeResult* out) {
  const auto& encode = std::get<engine::EncodeItem>(item);
  *out->mutable_output() = ToWire(encode.prepared.output);
  SetRegion(encode.destination, out->mutable_output());
  *out->mutable_info() = MakeRunInfo(encode.prepared.fingerprint, std::string(backend));
}

void FillResult(const engine::Item& item, std::string_view backend, v1::ApplyRoPEResult* out) {
  const auto& rope = std::get<engine::RopeItem>(item);
  for (const PreparedRope::Tensor& tensor : rope.prepared.tensors) {
    *out->add_tensors() = ToWire(OutputOf(tensor));
  }
  for (size_t i = 0; i < rope.destinations.size(); ++i) {
    SetRegion(rope.destinations[i], out->mutable_tensors(static_cast<int>(i)));
  }
  *out->mutable_info() = MakeRunInfo(rope.prepared.plan->fingerprint, std::string(backend));
}

template <typename Message>
grpc::ByteBuffer MakeUnary(absl::Span<const engine::Item> items, const engine::Result& result) {
  Message header;
  FillResult(items[0], result.items[0].backend, header.mutable_result());
  return Join(header, result);
}

template <typename Result>
void SetStatus(const absl::Status& status, Result* out) {
  out->mutable_status()->set_code(static_cast<int>(status.code()));
  if (!status.ok()) out->mutable_status()->set_message(BoundedStatusMessage(status.message()));
}

template <typename Message>
grpc::ByteBuffer MakeStream(const StreamAnswer& answer) {
  Message header;
  header.set_id(answer.id);
  if (answer.chunk.has_value()) *header.mutable_chunk() = *answer.chunk;
  SetStatus(answer.status, header.mutable_result());
  const bool empty = !answer.status.ok() || answer.result == nullptr;
  if (answer.status.ok()) {
    const std::string_view backend = empty ? std::string_view() : answer.result->items[0].backend;
    FillResult(*answer.item, backend, header.mutable_result());
  }
  return Join(header, empty ? engine::Result() : *answer.result);
}

template <typename Message>
grpc::ByteBuffer MakeBatch(absl::Span<const engine::Item> items, const engine::Result& result) {
  Message header;
  for (size_t i = 0; i < items.size(); ++i) {
    const absl::Status& status = result.items[i].status;
    auto* out = header.add_results();
    SetStatus(status, out);
    if (status.ok()) FillResult(items[i], result.items[i].backend, out);
  }
  return Join(header, result);
}

}  // namespace

grpc::ByteBuffer MakeEncodeResponse(absl::Span<const engine::Item> items,
                                    const engine::Result& result) {
  return MakeUnary<v1::EncodeResponse>(items, result);
}

grpc::ByteBuffer MakeApplyRoPEResponse(absl::Span<const engine::Item> items,
                                       const engine::Result& result) {
  return MakeUnary<v1::ApplyRoPEResponse>(items, result);
}

grpc::ByteBuffer MakeAttentionBiasResponse(absl::Span<const engine::Item> items,
                                           const engine::Result& result) {
  const PreparedBias& prepared = std::get<engine::BiasItem>(items[0]).prepared;
  v1::AttentionBiasResponse header;
  *header.mutable_output() = ToWire(prepared.output);
  *header.mutable_info() = MakeRunInfo(prepared.fingerprint, std::string(result.items[0].backend));
  return Join(header, result);
}

grpc::ByteBuffer MakeBatchEncodeResponse(absl::Span<const engine::Item> items,
                                         const engine::Result& result) {
  return MakeBatch<v1::BatchEncodeResponse>(items, result);
}

grpc::ByteBuffer MakeBatchApplyRoPEResponse(absl::Span<const engine::Item> items,
                                            const engine::Result& result) {
  return MakeBatch<v1::BatchApplyRoPEResponse>(items, result);
}

grpc::ByteBuffer MakeStreamEncodeResponse(const StreamAnswer& answer) {
  return MakeStream<v1::StreamEncodeResponse>(answer);
}

grpc::ByteBuffer MakeStreamApplyRoPEResponse(const StreamAnswer& answer) {
  return MakeStream<v1::StreamApplyRoPEResponse>(answer);
}

}  // namespace phasor::rpc
