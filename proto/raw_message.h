// SPDX-License-Identifier: Apache-2.0
// The codec of raw messages, for the client and the server.
//
// A raw message has its metadata in ordinary fields and the bytes of its tensors in one repeated
// bytes field at the top level. The codec splits a received message into the header, which is all
// other fields, for the generated parser, and the entries of that field, which stay where they lie.
// To send a message it puts entries after a header.
#ifndef PHASOR_PROTO_RAW_MESSAGE_H_
#define PHASOR_PROTO_RAW_MESSAGE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/tensor/pieces.h"

namespace phasor {

// Field number of `raw` in every tensor message of phasor.v1.
inline constexpr uint32_t kRawField = 15;

// One entry as it was received: its bytes in order, in pieces. Borrows them.
using RawEntry = absl::InlinedVector<absl::Span<const std::byte>, 4>;

struct WalkLimits {
  int64_t max_header_bytes = 1 << 20;
  int64_t max_raw_entries = 1 << 15;
  uint32_t raw_field = kRawField;        // other protocols have another number
  std::string_view subject = "request";  // what errors call the message
};

struct WalkedMessage {
  std::string header;         // all fields but `raw`, as received
  std::vector<RawEntry> raw;  // in order of appearance; borrow the pieces
};

// Splits a serialized message received in `pieces`, cut anywhere. Accepts at the top level exactly
// what protobuf's parser accepts: header.ParseFromString(walked.header) succeeds if and only if the
// parser takes the whole message, and then gives the same message without its raw entries. An
// entry with another wire type than bytes is an unknown field, which stays in the header.
// INVALID_ARGUMENT "<subject>: ...": not a sequence of well-formed fields.
// RESOURCE_EXHAUSTED: over a limit. Allocates in proportion to the bytes present, never to a length
// that a message claims. Threads: pure function.
absl::StatusOr<WalkedMessage> WalkMessage(Pieces pieces, const WalkLimits& limits);

// Length of a received entry.
int64_t RawEntryBytes(const RawEntry& entry);
// Copies it to `to`, which has room for it.
void CopyRawEntry(const RawEntry& entry, std::byte* to);

// Appends the tag and the length of a length-delimited field, whose `bytes` follow.
void AppendFieldPrefix(uint32_t field, size_t bytes, std::string* out);
// Bytes that such a field has in all: tag, length and the `bytes` themselves.
int64_t FieldBytes(uint32_t field, size_t bytes);

// A part of a message to send: text that the part owns, then an entry that it borrows. Either may
// be empty.
struct MessagePart {
  std::string text;
  absl::Span<const std::byte> entry;
};
using MessageParts = absl::InlinedVector<MessagePart, 2>;

// The message of a serialized `header` followed by `entries` of `raw_field`. Entries of at most
// `copied_bytes` are copied into the text.
MessageParts JoinMessage(std::string header, uint32_t raw_field, Pieces entries,
                         size_t copied_bytes);

}  // namespace phasor

#endif  // PHASOR_PROTO_RAW_MESSAGE_H_
