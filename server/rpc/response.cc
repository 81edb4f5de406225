// SPDX-License-Identifier: Apache-2.0
// See response.h.
#include "server/rpc/response.h"

#include <grpcpp/support/slice.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "phasor/v1/position_embedding_service.pb.h"
#include "proto/convert.h"
#include "proto/enums.h"
#include "proto/grpc_status.h"
#include "server/rpc/wire_walker.h"

namespace phasor::rpc {
namespace {

using engine::BufferRef;
using engine::OutputRange;

void AppendVarint(uint64_t value, std::string* out) {
  while (value >= 0x80) {
    out->push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  out->push_back(static_cast<char>(value));
}

void DropReference(void* buffer) { delete static_cast<BufferRef*>(buffer); }

// A slice over part of `buffer` that holds a reference to it.
grpc::Slice BorrowSlice(const BufferRef& buffer, const OutputRange& range) {
  return grpc::Slice(buffer->data() + range.offset, static_cast<size_t>(range.bytes),
                     &DropReference, new BufferRef(buffer));
}

// Joins `text`, the serialized header, and the outputs as `raw` entries.
class MessageWriter {
 public:
  MessageWriter(std::string text, const BufferRef& buffer, bool copy)
      : text_(std::move(text)), buffer_(buffer), copy_(copy) {}

  void AddRaw(const OutputRange& range) {
    text_.push_back(static_cast<char>(kRawTag));
    AppendVarint(static_cast<uint64_t>(range.bytes), &text_);
    if (range.bytes == 0) return;
    if (copy_ || range.bytes <= kCopiedOutputBytes) {
      text_.append(reinterpret_cast<const char*>(buffer_->data() + range.offset),
                   static_cast<size_t>(range.bytes));
      return;
    }
    FlushText();
    slices_.push_back(BorrowSlice(buffer_, range));
  }

  grpc::ByteBuffer Finish() {
    if (!text_.empty() || slices_.empty()) FlushText();
    return grpc::ByteBuffer(slices_.data(), slices_.size());
  }

 private:
  void FlushText() {
    slices_.emplace_back(text_);
    text_.clear();
  }

  std::string text_;
  const BufferRef& buffer_;
  const bool copy_;
  std::vector<grpc::Slice> slices_;
};

template <typename Message>
grpc::ByteBuffer Join(const Message& header, const engine::Result& result) {
  int64_t bytes = static_cast<int64_t>(header.ByteSizeLong());
  for (const engine::ItemResult& item : result.items) {
    for (const OutputRange& range : item.outputs) bytes += range.bytes;
  }
  MessageWriter writer(header.SerializeAsString(), result.buffer, bytes <= kCopiedResponseBytes);
  for (const engine::ItemResult& item : result.items) {
    for (const OutputRange& range : item.outputs) writer.AddRaw(range);
  }
  return writer.Finish();
}

void FillResult(const engine::Item& item, const std::string& backend, v1::EncodeResult* out) {
  const PreparedEncode& prepared = std::get<engine::EncodeItem>(item).prepared;
  *out->mutable_output() = ToWire(prepared.output);
  *out->mutable_info() = MakeRunInfo(prepared.fingerprint, backend);
}

void FillResult(const engine::Item& item, const std::string& backend, v1::ApplyRoPEResult* out) {
  const PreparedRope& prepared = std::get<engine::RopeItem>(item).prepared;
  for (const PreparedRope::Tensor& tensor : prepared.tensors) {
    *out->add_tensors() = ToWire(TensorDesc{tensor.dtype, tensor.shape, {}});
  }
  *out->mutable_info() = MakeRunInfo(prepared.plan->fingerprint, backend);
}

template <typename Message>
grpc::ByteBuffer MakeUnary(absl::Span<const engine::Item> items, const engine::Result& result,
                           const std::string& backend) {
  Message header;
  FillResult(items[0], backend, header.mutable_result());
  return Join(header, result);
}

template <typename Message>
grpc::ByteBuffer MakeBatch(absl::Span<const engine::Item> items, const engine::Result& result,
                           const std::string& backend) {
  Message header;
  for (size_t i = 0; i < items.size(); ++i) {
    const absl::Status& status = result.items[i].status;
    auto* out = header.add_results();
    out->mutable_status()->set_code(static_cast<int>(status.code()));
    if (status.ok()) {
      FillResult(items[i], backend, out);
    } else {
      out->mutable_status()->set_message(BoundedStatusMessage(status.message()));
    }
  }
  return Join(header, result);
}

}  // namespace

grpc::ByteBuffer MakeEncodeResponse(absl::Span<const engine::Item> items,
                                    const engine::Result& result, const std::string& backend) {
  return MakeUnary<v1::EncodeResponse>(items, result, backend);
}

grpc::ByteBuffer MakeApplyRoPEResponse(absl::Span<const engine::Item> items,
                                       const engine::Result& result, const std::string& backend) {
  return MakeUnary<v1::ApplyRoPEResponse>(items, result, backend);
}

grpc::ByteBuffer MakeAttentionBiasResponse(absl::Span<const engine::Item> items,
                                           const engine::Result& result,
                                           const std::string& backend) {
  const PreparedBias& prepared = std::get<engine::BiasItem>(items[0]).prepared;
  v1::AttentionBiasResponse header;
  *header.mutable_output() = ToWire(prepared.output);
  *header.mutable_info() = MakeRunInfo(prepared.fingerprint, backend);
  return Join(header, result);
}

grpc::ByteBuffer MakeBatchEncodeResponse(absl::Span<const engine::Item> items,
                                         const engine::Result& result, const std::string& backend) {
  return MakeBatch<v1::BatchEncodeResponse>(items, result, backend);
}

grpc::ByteBuffer MakeBatchApplyRoPEResponse(absl::Span<const engine::Item> items,
                                            const engine::Result& result,
                                            const std::string& backend) {
  return MakeBatch<v1::BatchApplyRoPEResponse>(items, result, backend);
}

}  // namespace phasor::rpc
