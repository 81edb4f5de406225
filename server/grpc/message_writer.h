// SPDX-License-Identifier: Apache-2.0
// Joins a serialized header and output bytes into a message; the outputs by reference.
#ifndef PHASOR_SERVER_GRPC_MESSAGE_WRITER_H_
#define PHASOR_SERVER_GRPC_MESSAGE_WRITER_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <cstdint>
#include <string>
#include <vector>

#include "server/engine/buffer.h"
#include "server/engine/call.h"

namespace phasor::rpc {

// Responses up to the first size, and outputs up to the second, are copied into the message's own
// slice: a slice by reference costs more than the copy.
inline constexpr int64_t kCopiedResponseBytes = 4096;
inline constexpr int64_t kCopiedOutputBytes = 1024;

// Appends `value` in protobuf's variable-length form.
void AppendVarint(uint64_t value, std::string* out);
// Bytes that AppendVarint appends.
int64_t VarintBytes(uint64_t value);

// Threads: one at a time. Borrows `buffer`; the message holds references to it until gRPC has sent
// them.
class MessageWriter {
 public:
  // `text`: the serialized header. `message_bytes`: of the whole message, about.
  MessageWriter(std::string text, const engine::BufferRef& buffer, int64_t message_bytes);

  // One entry of a repeated bytes field, whose tag (below 128) is number << 3 | 2.
  void AddRaw(uint8_t tag, const engine::OutputRange& range);

  grpc::ByteBuffer Finish();

 private:
  void FlushText();

  std::string text_;
  const engine::BufferRef& buffer_;
  const bool copy_;
  std::vector<grpc::Slice> slices_;
};

}  // namespace phasor::rpc

#endif  // PHASOR_SERVER_GRPC_MESSAGE_WRITER_H_
