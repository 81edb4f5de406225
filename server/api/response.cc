// SPDX-License-Identifier: Apache-2.0
// Fills in the header of responses and joins it with the bytes of the outputs.
#include "server/api/response.h"

#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "phasor/v1/position_embedding_service.pb.h"
#include "proto/convert.h"
#include "proto/convert_move.h"
#include "proto/enums.h"
#include "proto/grpc_status.h"
#include "proto/raw_message.h"
#include "server/api/message_room.h"
#include "server/grpc/message_writer.h"

namespace phasor::rpc {
namespace {

using engine::OutputRange;

// The outputs that the response carries, leaving out those in shared memory.
absl::InlinedVector<OutputRange, 4> RangesOf(absl::Span<const engine::Item> items,
                                             const engine::Result& result) {
  absl::InlinedVector<OutputRange, 4> ranges;
  for (size_t i = 0; i < result.items.size(); ++i) {
    const std::vector<OutputRange>& outputs = result.items[i].outputs;
    for (size_t k = 0; k < outputs.size(); ++k) {
      const engine::Output& output = items[i].outputs[k];
      const bool in_header = output.slot.role == Role::kReport;
      if (output.place.in_answer() && !in_header) ranges.push_back(outputs[k]);
    }
  }
  return ranges;
}

template <typename Message>
grpc::ByteBuffer Join(const Message& header, absl::Span<const engine::Item> items,
                      const engine::Result& result) {
  return WriteMessage(header.SerializeAsString(), kRawField, RangesOf(items, result),
                      result.buffer);
}

// If the output is in shared memory, says where.
void SetRegion(const engine::Destination& destination, v1::TensorSpec* tensor) {
  if (destination.in_answer()) return;
  const auto set = [&](auto* place) {
    place->set_region(destination.region);
    place->set_offset_bytes(destination.offset_bytes);
  };
  destination.on_device ? set(tensor->mutable_device()) : set(tensor->mutable_region());
}

void DescribeOutput(const engine::Item& item, size_t i, v1::TensorSpec* out) {
  ToWire(OutputOf(item.prepared, i), out);
  SetRegion(item.outputs[i].place, out);
}

// `result`: of item `i` of its call; nullptr: nothing was computed.
template <typename Result>
void FillResult(const engine::Item& item, const engine::Result* result, size_t i, Result* out) {
  if constexpr (std::is_same_v<Result, v1::ApplyRoPEResult>) {
    for (size_t i = 0; i < item.outputs.size(); ++i) DescribeOutput(item, i, out->add_tensors());
  } else {
    DescribeOutput(item, 0, out->mutable_output());
  }
  const std::string_view backend = result == nullptr ? "" : result->items[i].backend;
  SetRunInfo(FingerprintOf(item.prepared), backend, out->mutable_info());
}

void FillSpecs(const PreparedMove& move, v1::MoveKeysResult* out) {
  for (const PreparedMove::Spec& spec : move.specs) {
    v1::KeySpecInfo* const info = out->add_specs();
    info->set_fingerprint(spec.fingerprint);
    info->set_from_fingerprint(spec.from_fingerprint);
  }
}

// The result of a move. A report of COMPARE goes into the header.
void FillResult(const engine::Item& item, const engine::Result* result, size_t i,
                v1::MoveKeysResult* out) {
  const auto& move = std::get<PreparedMove>(item.prepared);
  const engine::ItemResult& ran = result->items[i];
  SetRunInfo("", ran.backend, out->mutable_info());
  FillSpecs(move, out);
  out->set_tokens(move.tokens);
  out->set_moved_bytes(move.moved_bytes);
  for (size_t k = 0; k < item.outputs.size(); ++k) {
    const OutputSlot& slot = item.outputs[k].slot;
    if (slot.role == Role::kPool && item.outputs[k].place.in_answer()) {
      out->add_inline_pools(slot.index);
    }
    if (slot.role != Role::kReport) continue;
    const std::byte* const report = result->buffer->data() + ran.outputs[k].offset;
    for (size_t layer = 0; layer < move.layers; ++layer) {
      *out->add_differences() = ToWire(DifferenceOf(report, layer));
    }
  }
}

template <typename Message>
grpc::ByteBuffer MakeUnary(absl::Span<const engine::Item> items, const engine::Result& result) {
  MessageRoom room;
  Message& header = room.Make<Message>();
  FillResult(items[0], &result, 0, header.mutable_result());
  return Join(header, items, result);
}

template <typename Result>
void SetStatus(const absl::Status& status, Result* out) {
  out->mutable_status()->set_code(static_cast<int>(status.code()));
  if (!status.ok()) out->mutable_status()->set_message(BoundedStatusMessage(status.message()));
}

template <typename Message>
grpc::ByteBuffer MakeStream(const StreamAnswer& answer) {
  MessageRoom room;
  Message& header = room.Make<Message>();
  header.set_id(answer.id);
  if constexpr (!std::is_same_v<Message, v1::StreamMoveKeysResponse>) {  // moves have no chunks
    if (answer.chunk.has_value()) *header.mutable_chunk() = *answer.chunk;
  }
  SetStatus(answer.status, header.mutable_result());
  const bool empty = !answer.status.ok() || answer.result == nullptr;
  if (answer.status.ok()) FillResult(*answer.item, answer.result, 0, header.mutable_result());
  if (empty) return Join(header, {}, engine::Result());
  return Join(header, {answer.item, 1}, *answer.result);
}

template <typename Message>
grpc::ByteBuffer MakeBatch(absl::Span<const engine::Item> items, const engine::Result& result) {
  MessageRoom room;
  Message& header = room.Make<Message>();
  for (size_t i = 0; i < items.size(); ++i) {
    const absl::Status& status = result.items[i].status;
    auto* out = header.add_results();
    SetStatus(status, out);
    if (status.ok()) FillResult(items[i], &result, i, out);
  }
  return Join(header, items, result);
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
  MessageRoom room;
  auto& header = room.Make<v1::AttentionBiasResponse>();
  FillResult(items[0], &result, 0, &header);
  return Join(header, items, result);
}

grpc::ByteBuffer MakeMoveKeysResponse(absl::Span<const engine::Item> items,
                                      const engine::Result& result) {
  return MakeUnary<v1::MoveKeysResponse>(items, result);
}

grpc::ByteBuffer MakeBatchEncodeResponse(absl::Span<const engine::Item> items,
                                         const engine::Result& result) {
  return MakeBatch<v1::BatchEncodeResponse>(items, result);
}

grpc::ByteBuffer MakeBatchApplyRoPEResponse(absl::Span<const engine::Item> items,
                                            const engine::Result& result) {
  return MakeBatch<v1::BatchApplyRoPEResponse>(items, result);
}

grpc::ByteBuffer MakeBatchMoveKeysResponse(absl::Span<const engine::Item> items,
                                           const engine::Result& result) {
  return MakeBatch<v1::BatchMoveKeysResponse>(items, result);
}

grpc::ByteBuffer MakeStreamEncodeResponse(const StreamAnswer& answer) {
  return MakeStream<v1::StreamEncodeResponse>(answer);
}

grpc::ByteBuffer MakeStreamApplyRoPEResponse(const StreamAnswer& answer) {
  return MakeStream<v1::StreamApplyRoPEResponse>(answer);
}

grpc::ByteBuffer MakeStreamMoveKeysResponse(const StreamAnswer& answer) {
  return MakeStream<v1::StreamMoveKeysResponse>(answer);
}

}  // namespace phasor::rpc
