// SPDX-License-Identifier: Apache-2.0
// Turns the parts of a message into gRPC slices. A slice that is not a copy keeps its buffer alive.
#include "server/grpc/message_writer.h"

#include <grpcpp/support/slice.h>

#include <cstddef>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "proto/field_writer.h"
#include "proto/raw_message.h"

namespace phasor::rpc {
namespace {

// Of the tag and the length of a small output.
constexpr size_t kMostPrefixBytes = 8;

using engine::BufferRef;
using engine::OutputRange;

void DropReference(void* buffer) { delete static_cast<BufferRef*>(buffer); }

// A slice over `part` of `buffer`, with a reference to the buffer.
grpc::Slice BorrowSlice(const BufferRef& buffer, absl::Span<const std::byte> part) {
  return grpc::Slice(const_cast<std::byte*>(part.data()), part.size(), &DropReference,
                     new BufferRef(buffer));
}

}  // namespace

grpc::ByteBuffer WriteMessage(std::string header, uint32_t raw_field,
                              absl::Span<const OutputRange> outputs, const BufferRef& buffer) {
  absl::InlinedVector<absl::Span<const std::byte>, 8> entries;
  auto bytes = static_cast<int64_t>(header.size());
  for (const OutputRange& output : outputs) {
    if (output.bytes == 0) {
      entries.emplace_back();
      continue;
    }
    entries.emplace_back(buffer->data() + output.offset, static_cast<size_t>(output.bytes));
    bytes += output.bytes;
  }
  if (bytes <= kCopiedResponseBytes) {
    FieldWriter out(static_cast<size_t>(bytes) + entries.size() * kMostPrefixBytes,
                    std::move(header));
    for (const absl::Span<const std::byte> entry : entries) {
      out.Bytes(raw_field, {reinterpret_cast<const char*>(entry.data()), entry.size()});
    }
    const grpc::Slice slice(std::move(out).Finish());
    return grpc::ByteBuffer(&slice, 1);
  }
  absl::InlinedVector<grpc::Slice, 4> slices;
  for (const MessagePart& part :
       JoinMessage(std::move(header), raw_field, entries, kCopiedOutputBytes)) {
    if (!part.text.empty()) slices.emplace_back(part.text);
    if (!part.entry.empty()) slices.push_back(BorrowSlice(buffer, part.entry));
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

}  // namespace phasor::rpc
