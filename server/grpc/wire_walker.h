// SPDX-License-Identifier: Apache-2.0
// Splits a tensor message into its metadata and its element bytes without copying the latter.
//
// Every tensor message of proto/phasor/v1 has its metadata in ordinary fields and its bytes in
// `repeated bytes raw = 15` at the top level. The walker reads the top-level tags: entries of that
// field become lists of segments over the received pieces, all else is copied to a header that the
// generated parser reads. Knows nothing of gRPC.
#ifndef PHASOR_SERVER_GRPC_WIRE_WALKER_H_
#define PHASOR_SERVER_GRPC_WIRE_WALKER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/engine/call.h"

namespace phasor::rpc {

// Field number of `raw` in every tensor message, and its tag (number << 3 | LEN).
inline constexpr uint32_t kRawField = 15;
inline constexpr uint8_t kRawTag = 0x7A;

struct WalkLimits {
  int64_t max_header_bytes = 1 << 20;
  int64_t max_raw_entries = 1 << 15;
  uint32_t raw_field = kRawField;  // other protocols have another number
};

struct WalkedMessage {
  std::string header;                 // all fields but `raw`, as received
  std::vector<engine::Segments> raw;  // in order of appearance; borrow the pieces
};

// Walks a serialized message received in `pieces`, cut anywhere. Fields may come in any order.
// INVALID_ARGUMENT "request: ...": not a sequence of well-formed fields.
// RESOURCE_EXHAUSTED: over a limit. Allocates in proportion to the bytes present, never to a length
// that a message claims. Threads: pure function.
absl::StatusOr<WalkedMessage> WalkMessage(absl::Span<const absl::Span<const std::byte>> pieces,
                                          const WalkLimits& limits);

}  // namespace phasor::rpc

#endif  // PHASOR_SERVER_GRPC_WIRE_WALKER_H_
