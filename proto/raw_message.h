// SPDX-License-Identifier: Apache-2.0
// The codec of raw messages, used by client and server.
//
// A raw message has its metadata in ordinary fields, and the bytes of its tensors in one repeated
// bytes field at the top level. The codec splits a received message in two: the header, which has
// all other fields and goes to the generated parser, and the entries of the raw field, which stay
// where they are. To send a message, it appends entries to a header.
#ifndef PHASOR_PROTO_RAW_MESSAGE_H_
#define PHASOR_PROTO_RAW_MESSAGE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/tensor/pieces.h"

namespace phasor {

// Number of the field `raw` in every tensor message of phasor.v1.
inline constexpr uint32_t kRawField = 15;

struct WalkLimits {
  int64_t max_header_bytes = 1 << 20;
  int64_t max_raw_entries = 1 << 15;
  uint32_t raw_field = kRawField;        // other protocols use another number
  std::string_view subject = "request";  // what errors call the message
};

struct WalkedMessage {
  std::string header;          // all fields but `raw`, as received
  std::vector<PieceList> raw;  // in the order of the message; borrow the pieces
};

// Splits a serialized message that was received in `pieces`, which may be cut anywhere. At the top
// level it accepts exactly what protobuf's parser accepts: header.ParseFromString(walked.header)
// succeeds if and only if the parser accepts the whole message, and it then gives the same message
// without raw entries. A raw entry whose wire type is not bytes is an unknown field and stays in
// the header. INVALID_ARGUMENT "<subject>: ...": the bytes are not a sequence of well-formed
// fields. RESOURCE_EXHAUSTED: a limit is exceeded. Allocates in proportion to the bytes present,
// never to a length that the message claims. Threads: pure function.
absl::StatusOr<WalkedMessage> WalkMessage(Pieces pieces, const WalkLimits& limits);

// A field of a message that lies in one piece.
struct PlainField {
  enum class Kind : uint8_t { kVarint, kFixed, kBytes };
  uint32_t number = 0;
  Kind kind = Kind::kVarint;
  uint64_t varint = 0;     // the value of a varint
  std::string_view value;  // the bytes of any other value

  bool IsBytes(uint32_t field) const { return number == field && kind == Kind::kBytes; }
};
// Takes the first field from `message`. nullopt: it is not in the form that clients write (a number
// of at least 16, a group, a varint that is too long), or the message ends within it. Then nothing
// is said about the message, and `message` is in the middle of it. Threads: pure function.
std::optional<PlainField> TakePlainField(std::string_view* message);

// Appends the tag and the length of a length-delimited field whose value has `bytes` bytes.
void AppendFieldPrefix(uint32_t field, size_t bytes, std::string* out);
// The length of such a field: tag, length and value.
int64_t FieldBytes(uint32_t field, size_t bytes);

// A part of a message to send: text that the part owns, followed by an entry that it borrows.
// Either may be empty.
struct MessagePart {
  std::string text;
  absl::Span<const std::byte> entry;
};
using MessageParts = absl::InlinedVector<MessagePart, 2>;

// The message of a serialized `header` followed by `entries` of `raw_field`. Entries of at most
// `copied_bytes` bytes are copied into the text.
MessageParts JoinMessage(std::string header, uint32_t raw_field, Pieces entries,
                         size_t copied_bytes);

}  // namespace phasor

#endif  // PHASOR_PROTO_RAW_MESSAGE_H_
