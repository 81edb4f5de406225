// SPDX-License-Identifier: Apache-2.0
// Writes the header of responses and joins it with the bytes of the outputs.
#include "server/api/response.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "phasor/v1/position_embedding_service.pb.h"
#include "proto/convert.h"
#include "proto/convert_move.h"
#include "proto/enums.h"
#include "proto/field_writer.h"
#include "proto/grpc_status.h"
#include "proto/raw_message.h"
#include "server/api/message_room.h"
#include "server/grpc/message_writer.h"

namespace phasor::rpc {
namespace {

using engine::OutputRange;

// The outputs that the response carries, leaving out those in shared memory. An output of several
// parts is as many.
absl::InlinedVector<OutputRange, 4> RangesOf(absl::Span<const engine::Item> items,
                                             const engine::Result& result) {
  absl::InlinedVector<OutputRange, 4> ranges;
  for (size_t i = 0; i < result.items.size(); ++i) {
    const absl::Span<const OutputRange> outputs = result.items[i].outputs;
    for (size_t k = 0; k < outputs.size(); ++k) {
      const engine::Output& output = items[i].outputs[k];
      const bool in_header = output.slot.role == Role::kReport;
      if (!output.place.in_answer() || in_header) continue;
      OutputRange part = outputs[k];
      part.bytes /= static_cast<int64_t>(items[i].parts);
      for (size_t p = 0; p < items[i].parts; ++p, part.offset += part.bytes) ranges.push_back(part);
    }
  }
  return ranges;
}

grpc::ByteBuffer Join(std::string header, absl::Span<const engine::Item> items,
                      const engine::Result& result) {
  return WriteMessage(std::move(header), kRawField, RangesOf(items, result), result.buffer);
}

// The numbers of fields, which are the same in the messages of both kinds of results.
constexpr uint32_t kStatus = v1::EncodeResult::kStatusFieldNumber;
constexpr uint32_t kOutput = v1::EncodeResult::kOutputFieldNumber;
constexpr uint32_t kInfo = v1::EncodeResult::kInfoFieldNumber;
static_assert(kStatus == v1::ApplyRoPEResult::kStatusFieldNumber);
static_assert(kOutput == v1::ApplyRoPEResult::kTensorsFieldNumber);
static_assert(kInfo == v1::ApplyRoPEResult::kInfoFieldNumber);

// The writers of fields leave out what has its default value, as protobuf does.
void WriteVarint(uint32_t field, uint64_t value, FieldWriter* out) {
  if (value != 0) out->Varint(field, value);
}

void WriteText(uint32_t field, std::string_view text, FieldWriter* out) {
  if (!text.empty()) out->Bytes(field, text);
}

// Says where an output in shared memory is.
void WriteRegion(const engine::Destination& place, FieldWriter* out) {
  static_assert(int{v1::RegionRef::kRegionFieldNumber} == v1::DeviceRef::kRegionFieldNumber);
  static_assert(int{v1::RegionRef::kOffsetBytesFieldNumber} ==
                v1::DeviceRef::kOffsetBytesFieldNumber);
  if (place.in_answer()) return;
  const uint32_t field =
      place.on_device ? v1::TensorSpec::kDeviceFieldNumber : v1::TensorSpec::kRegionFieldNumber;
  out->Message(field, [&] {
    WriteText(v1::RegionRef::kRegionFieldNumber, place.region, out);
    WriteVarint(v1::RegionRef::kOffsetBytesFieldNumber, static_cast<uint64_t>(place.offset_bytes),
                out);
  });
}

// Writes the tensor of one part of the item.
void WriteOutput(const engine::Item& item, size_t i, uint32_t field, FieldWriter* out) {
  const ShapedType tensor = OutputOf(item.prepared, i);
  out->Message(field, [&] {
    WriteVarint(v1::TensorSpec::kDtypeFieldNumber, ToWire(tensor.dtype), out);
    if (!tensor.shape.empty()) {
      out->Message(v1::TensorSpec::kShapeFieldNumber, [&] {
        auto parts = static_cast<int64_t>(item.parts);
        for (const int64_t extent : tensor.shape) {
          out->Number(static_cast<uint64_t>(extent / parts));
          parts = 1;  // they share the first dimension only
        }
      });
    }
    WriteRegion(item.outputs[i].place, out);
  });
}

void WriteInfo(const engine::Item& item, std::string_view backend, uint32_t field,
               FieldWriter* out) {
  out->Message(field, [&] {
    WriteText(v1::RunInfo::kSpecFingerprintFieldNumber, FingerprintOf(item.prepared), out);
    WriteVarint(v1::RunInfo::kNumericsVersionFieldNumber, kNumericsVersion, out);
    WriteText(v1::RunInfo::kBackendFieldNumber, backend, out);
  });
}

void WriteStatus(const absl::Status& status, FieldWriter* out) {
  out->Message(kStatus, [&] {
    WriteVarint(v1::ItemStatus::kCodeFieldNumber, static_cast<uint64_t>(status.code()), out);
    if (status.ok()) return;
    WriteText(v1::ItemStatus::kMessageFieldNumber, BoundedStatusMessage(status.message()), out);
  });
}

// Writes the fields of a result. `status`: nullptr in unary calls. `item` and `result` (of item `i`
// of its call) are read if the status is OK; `result` is nullptr if nothing was computed.
using ResultWriter = void (*)(const absl::Status* status, const engine::Item* item,
                              const engine::Result* result, size_t i, FieldWriter* out);

// An EncodeResult or an ApplyRoPEResult.
void WriteTensors(const absl::Status* status, const engine::Item* item,
                  const engine::Result* result, size_t i, FieldWriter* out) {
  if (status != nullptr) WriteStatus(*status, out);
  if (status != nullptr && !status->ok()) return;
  for (size_t k = 0; k < item->outputs.size(); ++k) WriteOutput(*item, k, kOutput, out);
  WriteInfo(*item, result == nullptr ? "" : result->items[i].backend, kInfo, out);
}

void FillSpecs(const PreparedMove& move, v1::MoveKeysResult* out) {
  for (const PreparedMove::Spec& spec : move.specs) {
    v1::KeySpecInfo* const info = out->add_specs();
    info->set_fingerprint(spec.fingerprint);
    info->set_from_fingerprint(spec.from_fingerprint);
  }
}

void FillMove(const engine::Item& item, const engine::Result& result, size_t i,
              v1::MoveKeysResult* out) {
  const auto& move = std::get<PreparedMove>(item.prepared);
  const engine::ItemResult& ran = result.items[i];
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
    const std::byte* const report = result.buffer->data() + ran.outputs[k].offset;
    for (size_t layer = 0; layer < move.layers; ++layer) {
      *out->add_differences() = ToWire(DifferenceOf(report, layer));
    }
  }
}

// A MoveKeysResult, which has a report of COMPARE. It is not small, so protobuf writes it.
void WriteMove(const absl::Status* status, const engine::Item* item, const engine::Result* result,
               size_t i, FieldWriter* out) {
  MessageRoom room;
  auto& message = room.Make<v1::MoveKeysResult>();
  if (status != nullptr) {
    message.mutable_status()->set_code(static_cast<int>(status->code()));
    if (!status->ok())
      message.mutable_status()->set_message(BoundedStatusMessage(status->message()));
  }
  if (status == nullptr || status->ok()) FillMove(*item, *result, i, &message);
  out->Append(message.SerializeAsString());
}

// Enough for the header of an answer with one output, and a small output.
constexpr size_t kHeaderBytes = 240;

grpc::ByteBuffer MakeUnary(ResultWriter write, absl::Span<const engine::Item> items,
                           const engine::Result& result) {
  FieldWriter out(kHeaderBytes);
  out.Message(v1::EncodeResponse::kResultFieldNumber,
              [&] { write(nullptr, &items[0], &result, 0, &out); });
  return Join(std::move(out).Finish(), items, result);
}

grpc::ByteBuffer MakeStream(ResultWriter write, const StreamAnswer& answer) {
  FieldWriter out(kHeaderBytes);
  WriteVarint(v1::StreamEncodeResponse::kIdFieldNumber, static_cast<uint64_t>(answer.id), &out);
  out.Message(v1::StreamEncodeResponse::kResultFieldNumber,
              [&] { write(&answer.status, answer.item, answer.result, 0, &out); });
  if (answer.chunk.has_value()) {
    out.Bytes(v1::StreamEncodeResponse::kChunkFieldNumber, answer.chunk->SerializeAsString());
  }
  const bool empty = !answer.status.ok() || answer.result == nullptr;
  if (empty) return Join(std::move(out).Finish(), {}, engine::Result());
  return Join(std::move(out).Finish(), {answer.item, 1}, *answer.result);
}

// Whether the results of items i - 1 and i have the same fields, as most neighbours in a batch do.
// Their bytes, which come later, may differ.
bool LikeTheLast(absl::Span<const engine::Item> items, const engine::Result& result, size_t i) {
  if (i == 0 || !result.items[i - 1].status.ok() || !result.items[i].status.ok()) return false;
  const engine::Item& last = items[i - 1];
  const engine::Item& item = items[i];
  const Plan* const plan = PlanOf(item.prepared);
  if (plan == nullptr || plan != PlanOf(last.prepared)) return false;
  if (result.items[i].backend != result.items[i - 1].backend) return false;
  if (item.parts != last.parts || item.outputs.size() != last.outputs.size()) return false;
  for (size_t k = 0; k < item.outputs.size(); ++k) {
    if (!item.outputs[k].place.in_answer() || !last.outputs[k].place.in_answer()) return false;
    const ShapedType output = OutputOf(item.prepared, k), before = OutputOf(last.prepared, k);
    if (output.dtype != before.dtype || output.shape != before.shape) return false;
  }
  return true;
}

grpc::ByteBuffer MakeBatch(ResultWriter write, absl::Span<const engine::Item> items,
                           const engine::Result& result) {
  size_t results = 0;
  for (const engine::Item& item : items) results += item.parts;
  FieldWriter out(results * (kHeaderBytes / 2));
  size_t last = 0;  // bytes of the last result
  for (size_t i = 0; i < items.size(); ++i) {
    for (size_t part = 0; part < items[i].parts; ++part) {
      if (part > 0 || LikeTheLast(items, result, i)) {
        out.Repeat(last);
        continue;
      }
      const size_t before = out.size();
      out.Message(v1::BatchEncodeResponse::kResultsFieldNumber,
                  [&] { write(&result.items[i].status, &items[i], &result, i, &out); });
      last = out.size() - before;
    }
  }
  return Join(std::move(out).Finish(), items, result);
}

}  // namespace

grpc::ByteBuffer MakeTensorResponse(absl::Span<const engine::Item> items,
                                    const engine::Result& result) {
  return MakeUnary(WriteTensors, items, result);
}

grpc::ByteBuffer MakeAttentionBiasResponse(absl::Span<const engine::Item> items,
                                           const engine::Result& result) {
  FieldWriter out(kHeaderBytes);
  WriteOutput(items[0], 0, v1::AttentionBiasResponse::kOutputFieldNumber, &out);
  WriteInfo(items[0], result.items[0].backend, v1::AttentionBiasResponse::kInfoFieldNumber, &out);
  return Join(std::move(out).Finish(), items, result);
}

grpc::ByteBuffer MakeMoveKeysResponse(absl::Span<const engine::Item> items,
                                      const engine::Result& result) {
  return MakeUnary(WriteMove, items, result);
}

grpc::ByteBuffer MakeBatchTensorResponse(absl::Span<const engine::Item> items,
                                         const engine::Result& result) {
  return MakeBatch(WriteTensors, items, result);
}

grpc::ByteBuffer MakeBatchMoveKeysResponse(absl::Span<const engine::Item> items,
                                           const engine::Result& result) {
  return MakeBatch(WriteMove, items, result);
}

grpc::ByteBuffer MakeStreamTensorResponse(const StreamAnswer& answer) {
  return MakeStream(WriteTensors, answer);
}

grpc::ByteBuffer MakeStreamMoveKeysResponse(const StreamAnswer& answer) {
  return MakeStream(WriteMove, answer);
}

}  // namespace phasor::rpc
