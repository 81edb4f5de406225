// SPDX-License-Identifier: Apache-2.0
// See message_writer.h.
#include "server/grpc/message_writer.h"

#include <utility>

namespace phasor::rpc {
namespace {

using engine::BufferRef;
using engine::OutputRange;

void DropReference(void* buffer) { delete static_cast<BufferRef*>(buffer); }

// A slice over part of `buffer` that holds a reference to it.
grpc::Slice BorrowSlice(const BufferRef& buffer, const OutputRange& range) {
  return grpc::Slice(buffer->data() + range.offset, static_cast<size_t>(range.bytes),
                     &DropReference, new BufferRef(buffer));
}

}  // namespace

void AppendVarint(uint64_t value, std::string* out) {
  while (value >= 0x80) {
    out->push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  out->push_back(static_cast<char>(value));
}

int64_t VarintBytes(uint64_t value) {
  int64_t bytes = 1;
  for (; value >= 0x80; value >>= 7) ++bytes;
  return bytes;
}

MessageWriter::MessageWriter(std::string text, const BufferRef& buffer, int64_t message_bytes)
    : text_(std::move(text)), buffer_(buffer), copy_(message_bytes <= kCopiedResponseBytes) {}

void MessageWriter::AddRaw(uint8_t tag, const OutputRange& range) {
  text_.push_back(static_cast<char>(tag));
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

grpc::ByteBuffer MessageWriter::Finish() {
  if (!text_.empty() || slices_.empty()) FlushText();
  return grpc::ByteBuffer(slices_.data(), slices_.size());
}

void MessageWriter::FlushText() {
  slices_.emplace_back(text_);
  text_.clear();
}

}  // namespace phasor::rpc
