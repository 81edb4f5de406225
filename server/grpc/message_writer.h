// SPDX-License-Identifier: Apache-2.0
// Joins a serialized header and output bytes into a message, with the outputs by reference.
#ifndef PHASOR_SERVER_GRPC_MESSAGE_WRITER_H_
#define PHASOR_SERVER_GRPC_MESSAGE_WRITER_H_

#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "server/engine/buffer.h"
#include "server/engine/call.h"

namespace phasor::rpc {

// Responses up to the first size, and outputs up to the second, are copied into the message's own
// slice, because a slice by reference costs more than the copy.
inline constexpr int64_t kCopiedResponseBytes = 4096;
inline constexpr int64_t kCopiedOutputBytes = 1024;

// Writes `header`, followed by `outputs` (ranges of `buffer`) as entries of `raw_field`. The
// message holds references to `buffer` until gRPC has sent it. Threads: any.
grpc::ByteBuffer WriteMessage(std::string header, uint32_t raw_field,
                              absl::Span<const engine::OutputRange> outputs,
                              const engine::BufferRef& buffer);

}  // namespace phasor::rpc

#endif  // PHASOR_SERVER_GRPC_MESSAGE_WRITER_H_
