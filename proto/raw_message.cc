// SPDX-License-Identifier: Apache-2.0
// Reads and writes the top level of messages. Accepts what protobuf's parser accepts
// (google/protobuf/parse_context.h). That is more than
// https://protobuf.dev/programming-guides/encoding/ allows: excess bits of a number are dropped,
// and groups are unknown fields.
#include "proto/raw_message.h"

#include <google/protobuf/io/coded_stream.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"

namespace phasor {
namespace {

using google::protobuf::io::CodedInputStream;
using google::protobuf::io::CodedOutputStream;

using Piece = absl::Span<const std::byte>;

enum WireType : uint32_t {
  kVarint = 0,
  kFixed64 = 1,
  kLength = 2,
  kGroup = 3,
  kGroupEnd = 4,
  kFixed32 = 5
};

constexpr int kMaxVarintBytes = 10;
constexpr int kMaxTagBytes = 5;
constexpr int kMaxLengthBytes = 5;
// The parser's limit: 2 GiB minus the 16 bytes that it may read ahead.
constexpr uint64_t kMaxLength = std::numeric_limits<int32_t>::max() - 16;

constexpr uint32_t TagOf(uint32_t field, WireType type) { return field << 3 | type; }

// Reads forward through the pieces. A copy keeps its position.
class Cursor {
 public:
  explicit Cursor(Pieces pieces) : rest_(pieces) {
    for (const Piece piece : pieces) after_ += static_cast<int64_t>(piece.size());
    NextPiece();
  }

  int64_t remaining() const { return (end_ - at_) + after_; }

  // remaining() must be > 0.
  uint8_t TakeByte() {
    const auto byte = static_cast<uint8_t>(*at_++);
    if (at_ == end_) NextPiece();
    return byte;
  }

  // Calls sink(span) for each contiguous part of the next `bytes` bytes. There must be as many.
  template <typename Sink>
  void Take(int64_t bytes, Sink sink) {
    while (bytes > 0) {
      const int64_t n = std::min<int64_t>(bytes, end_ - at_);
      sink(Piece(at_, static_cast<size_t>(n)));
      at_ += n;
      bytes -= n;
      if (at_ == end_) NextPiece();
    }
  }

 private:
  void NextPiece() {
    while (at_ == end_ && !rest_.empty()) {
      at_ = rest_.front().data();
      end_ = at_ + rest_.front().size();
      after_ -= static_cast<int64_t>(rest_.front().size());
      rest_.remove_prefix(1);
    }
  }

  const std::byte* at_ = nullptr;  // in the current piece
  const std::byte* end_ = nullptr;
  Pieces rest_;        // after the current piece
  int64_t after_ = 0;  // bytes of `rest_`
};

// Walks one message.
class Walker {
 public:
  Walker(Pieces pieces, const WalkLimits& limits)
      : cursor_(pieces),
        limits_(limits),
        raw_tag_(TagOf(limits.raw_field, kLength)),
        bytes_(cursor_.remaining()) {}

  absl::StatusOr<WalkedMessage> Walk() {
    while (cursor_.remaining() > 0) PHASOR_RETURN_IF_ERROR(WalkField());
    return std::move(message_);
  }

 private:
  absl::Status WalkField() {
    const Cursor start = cursor_;
    PHASOR_ASSIGN_OR_RETURN(const uint32_t tag, ReadTag());
    if (tag == raw_tag_) return TakeRaw();
    PHASOR_RETURN_IF_ERROR(SkipValue(tag, CodedInputStream::GetDefaultRecursionLimit()));
    return AppendHeader(start);
  }

  // Drops bits after the 64th.
  absl::StatusOr<uint64_t> ReadVarint(int max_bytes) {
    uint64_t value = 0;
    for (int i = 0; i < max_bytes && cursor_.remaining() > 0; ++i) {
      const uint8_t byte = cursor_.TakeByte();
      value |= static_cast<uint64_t>(byte & 0x7F) << (7 * i);
      if (byte < 0x80) return value;
    }
    return Malformed(StrCat("not a varint before byte ", offset(), "; must be a protobuf message"));
  }

  // Drops bits after the 32nd, so no field number exceeds 2^29 - 1.
  absl::StatusOr<uint32_t> ReadTag() {
    PHASOR_ASSIGN_OR_RETURN(const uint64_t value, ReadVarint(kMaxTagBytes));
    const auto tag = static_cast<uint32_t>(value);
    if (tag >> 3 != 0) return tag;
    return Malformed(StrCat("field number 0 before byte ", offset(), "; must be in [1, 2^29)"));
  }

  // Reads a length and checks that the message has as many bytes left.
  absl::StatusOr<int64_t> ReadLength() {
    const int64_t before = cursor_.remaining();
    PHASOR_ASSIGN_OR_RETURN(const uint64_t length, ReadVarint(kMaxVarintBytes));
    PHASOR_RETURN_IF_ERROR(CheckPresent(length));
    if (before - cursor_.remaining() <= kMaxLengthBytes && length <= kMaxLength) {
      return static_cast<int64_t>(length);
    }
    return Malformed(StrCat("a length of ", length, " before byte ", offset(), "; must be at most ",
                            kMaxLength, " and written in at most ", kMaxLengthBytes, " bytes"));
  }

  absl::Status CheckPresent(uint64_t bytes) const {
    if (bytes <= static_cast<uint64_t>(cursor_.remaining())) return absl::OkStatus();
    return Malformed(StrCat("truncated: a field of ", bytes, " bytes at byte ", offset(),
                            "; must be at most the ", cursor_.remaining(), " bytes that follow"));
  }

  // Skips the value after a tag. `groups`: how many groups may be nested from here.
  absl::Status SkipValue(uint32_t tag, int groups) {
    switch (tag & 7) {
      case kVarint:
        return ReadVarint(kMaxVarintBytes).status();
      case kFixed64:
        return Skip(8);
      case kLength: {
        PHASOR_ASSIGN_OR_RETURN(const int64_t length, ReadLength());
        return Skip(length);
      }
      case kGroup:
        return SkipGroup(tag >> 3, groups);
      case kFixed32:
        return Skip(4);
    }
    return Malformed(StrCat("field ", tag >> 3, " has wire type ", tag & 7,
                            "; must be varint, fixed, length-delimited or a group"));
  }

  absl::Status Skip(int64_t bytes) {
    PHASOR_RETURN_IF_ERROR(CheckPresent(static_cast<uint64_t>(bytes)));
    cursor_.Take(bytes, [](Piece) {});
    return absl::OkStatus();
  }

  // Skips the fields of a group and the tag that ends it.
  absl::Status SkipGroup(uint32_t field, int groups) {
    if (groups == 0) {
      return Malformed(StrCat("too many groups inside one another at byte ", offset(),
                              "; must be at most ", CodedInputStream::GetDefaultRecursionLimit()));
    }
    while (cursor_.remaining() > 0) {
      PHASOR_ASSIGN_OR_RETURN(const uint32_t tag, ReadTag());
      if (tag == TagOf(field, kGroupEnd)) return absl::OkStatus();
      PHASOR_RETURN_IF_ERROR(SkipValue(tag, groups - 1));
    }
    return Malformed(StrCat("truncated: group ", field, " has no end; must have one"));
  }

  absl::Status TakeRaw() {
    PHASOR_ASSIGN_OR_RETURN(const int64_t length, ReadLength());
    if (static_cast<int64_t>(message_.raw.size()) >= limits_.max_raw_entries) {
      return absl::ResourceExhaustedError(
          StrCat("raw: too many entries; must be at most ", limits_.max_raw_entries));
    }
    PieceList& entry = message_.raw.emplace_back();
    cursor_.Take(length, [&](Piece part) { entry.push_back(part); });
    return absl::OkStatus();
  }

  // Appends the bytes from `field` to the current position.
  absl::Status AppendHeader(Cursor field) {
    const int64_t bytes = field.remaining() - cursor_.remaining();
    const int64_t room = limits_.max_header_bytes - static_cast<int64_t>(message_.header.size());
    if (bytes > room) {
      return absl::ResourceExhaustedError(
          StrCat(limits_.subject, ": metadata (all but raw) is too large; must be at most ",
                 limits_.max_header_bytes, " bytes"));
    }
    field.Take(bytes, [&](Piece part) {
      message_.header.append(reinterpret_cast<const char*>(part.data()), part.size());
    });
    return absl::OkStatus();
  }

  int64_t offset() const { return bytes_ - cursor_.remaining(); }

  absl::Status Malformed(std::string_view what) const { return InvalidAt(limits_.subject, what); }

  Cursor cursor_;
  const WalkLimits limits_;
  const uint32_t raw_tag_;
  const int64_t bytes_;
  WalkedMessage message_;
};

// Takes a varint of at most `max_bytes` bytes. As the parser, drops bits after the 64th.
bool TakeVarint(size_t max_bytes, std::string_view* message, uint64_t* value) {
  *value = 0;
  for (size_t i = 0; i < max_bytes && i < message->size(); ++i) {
    const auto byte = static_cast<uint8_t>((*message)[i]);
    *value |= static_cast<uint64_t>(byte & 0x7F) << (7 * i);
    if (byte >= 0x80) continue;
    message->remove_prefix(i + 1);
    return true;
  }
  return false;
}

void AppendVarint(uint64_t value, std::string* out) {
  uint8_t bytes[kMaxVarintBytes];
  const uint8_t* const end = CodedOutputStream::WriteVarint64ToArray(value, bytes);
  out->append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(end - bytes));
}

}  // namespace

absl::StatusOr<WalkedMessage> WalkMessage(Pieces pieces, const WalkLimits& limits) {
  return Walker(pieces, limits).Walk();
}

std::optional<PlainField> TakePlainField(std::string_view* message) {
  if (message->empty()) return std::nullopt;
  const auto tag = static_cast<uint8_t>(message->front());
  if (tag < 8 || tag >= 0x80) return std::nullopt;
  message->remove_prefix(1);
  using Kind = PlainField::Kind;
  PlainField field{.number = uint32_t{tag} >> 3, .kind = Kind::kFixed};
  uint64_t length = 0;
  switch (tag & 7) {
    case kVarint:
      field.kind = Kind::kVarint;
      if (!TakeVarint(kMaxVarintBytes, message, &field.varint)) return std::nullopt;
      return field;
    case kFixed64:
      length = 8;
      break;
    case kLength:
      field.kind = Kind::kBytes;
      if (!TakeVarint(kMaxLengthBytes, message, &length)) return std::nullopt;
      break;
    case kFixed32:
      length = 4;
      break;
    default:
      return std::nullopt;
  }
  if (length > message->size()) return std::nullopt;
  field.value = message->substr(0, length);
  message->remove_prefix(length);
  return field;
}

void AppendFieldPrefix(uint32_t field, size_t bytes, std::string* out) {
  AppendVarint(TagOf(field, kLength), out);
  AppendVarint(bytes, out);
}

int64_t FieldBytes(uint32_t field, size_t bytes) {
  return static_cast<int64_t>(CodedOutputStream::VarintSize32(TagOf(field, kLength)) +
                              CodedOutputStream::VarintSize64(bytes) + bytes);
}

MessageParts JoinMessage(std::string header, uint32_t raw_field, Pieces entries,
                         size_t copied_bytes) {
  size_t text_bytes = header.size();
  for (const Piece entry : entries) {
    if (entry.size() > copied_bytes) break;
    text_bytes += static_cast<size_t>(FieldBytes(raw_field, entry.size()));
  }
  header.reserve(text_bytes);
  MessageParts parts;
  parts.push_back({std::move(header), {}});
  for (const Piece entry : entries) {
    if (!parts.back().entry.empty()) parts.emplace_back();
    MessagePart& part = parts.back();
    AppendFieldPrefix(raw_field, entry.size(), &part.text);
    if (entry.size() > copied_bytes) {
      part.entry = entry;
    } else {
      part.text.append(reinterpret_cast<const char*>(entry.data()), entry.size());
    }
  }
  return parts;
}

}  // namespace phasor
