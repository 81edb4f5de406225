// SPDX-License-Identifier: Apache-2.0
// See wire_walker.h. The encoding: https://protobuf.dev/programming-guides/encoding/.
#include "server/grpc/wire_walker.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"

namespace phasor::rpc {
namespace {

using Piece = absl::Span<const std::byte>;

enum WireType : uint32_t { kVarint = 0, kFixed64 = 1, kLength = 2, kFixed32 = 5 };

absl::Status Malformed(const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("request: ", what));
}

// Reads forward through the pieces.
class Cursor {
 public:
  explicit Cursor(absl::Span<const Piece> pieces) : pieces_(pieces) {
    for (Piece piece : pieces) remaining_ += static_cast<int64_t>(piece.size());
    SkipEmptyPieces();
  }

  int64_t remaining() const { return remaining_; }
  int64_t offset() const { return consumed_; }

  // remaining() > 0.
  uint8_t TakeByte() {
    const auto byte = static_cast<uint8_t>(pieces_.front()[in_piece_]);
    Advance(1);
    return byte;
  }

  // Calls sink(span) for each contiguous part of the next `bytes` <= remaining() bytes.
  template <typename Sink>
  void Take(int64_t bytes, Sink sink) {
    while (bytes > 0) {
      const auto here = static_cast<int64_t>(pieces_.front().size() - in_piece_);
      const int64_t n = std::min(bytes, here);
      sink(pieces_.front().subspan(in_piece_, n));
      Advance(n);
      bytes -= n;
    }
  }

 private:
  void Advance(int64_t bytes) {
    in_piece_ += bytes;
    consumed_ += bytes;
    remaining_ -= bytes;
    if (in_piece_ == pieces_.front().size()) {
      pieces_.remove_prefix(1);
      in_piece_ = 0;
      SkipEmptyPieces();
    }
  }

  void SkipEmptyPieces() {
    while (!pieces_.empty() && pieces_.front().empty()) pieces_.remove_prefix(1);
  }

  absl::Span<const Piece> pieces_;
  size_t in_piece_ = 0;
  int64_t consumed_ = 0;
  int64_t remaining_ = 0;
};

// One message being walked.
class Walker {
 public:
  Walker(absl::Span<const Piece> pieces, const WalkLimits& limits)
      : cursor_(pieces), limits_(limits) {}

  absl::StatusOr<WalkedMessage> Walk() {
    while (cursor_.remaining() > 0) PHASOR_RETURN_IF_ERROR(WalkField());
    return std::move(message_);
  }

 private:
  // A varint as read and as it stood on the wire.
  struct Varint {
    uint64_t value = 0;
    char bytes[10];
    int size = 0;
  };

  absl::StatusOr<Varint> ReadVarint() {
    Varint varint;
    while (cursor_.remaining() > 0) {
      const uint8_t byte = cursor_.TakeByte();
      // The tenth byte holds the 64th bit only.
      if (varint.size == 9 && byte > 1) break;
      varint.value |= static_cast<uint64_t>(byte & 0x7F) << (7 * varint.size);
      varint.bytes[varint.size++] = static_cast<char>(byte);
      if ((byte & 0x80) == 0) return varint;
      if (varint.size == 10) break;
    }
    return Malformed(absl::StrCat("not a varint before byte ", cursor_.offset(),
                                  ", must be a protobuf message"));
  }

  absl::Status WalkField() {
    PHASOR_ASSIGN_OR_RETURN(const Varint tag, ReadVarint());
    const uint64_t field = tag.value >> 3;
    const auto type = static_cast<uint32_t>(tag.value & 7);
    if (field == 0 || tag.value > UINT32_MAX) {
      return Malformed(absl::StrCat("field number ", field, " before byte ", cursor_.offset(),
                                    ", must be in [1, 2^29)"));
    }
    if (field == limits_.raw_field) {
      if (type == kLength) return TakeRaw();
      return Malformed(absl::StrCat("raw has wire type ", type, ", must be bytes"));
    }
    PHASOR_RETURN_IF_ERROR(AppendHeader(tag));
    switch (type) {
      case kVarint: {
        PHASOR_ASSIGN_OR_RETURN(const Varint value, ReadVarint());
        return AppendHeader(value);
      }
      case kFixed64:
        return TakeHeader(8);
      case kLength: {
        PHASOR_ASSIGN_OR_RETURN(const Varint length, ReadLength());
        PHASOR_RETURN_IF_ERROR(AppendHeader(length));
        return TakeHeader(static_cast<int64_t>(length.value));
      }
      case kFixed32:
        return TakeHeader(4);
    }
    return Malformed(absl::StrCat("field ", field, " has wire type ", type,
                                  ", must be varint, fixed or length-delimited"));
  }

  // A length that the message really has.
  absl::StatusOr<Varint> ReadLength() {
    PHASOR_ASSIGN_OR_RETURN(const Varint length, ReadVarint());
    PHASOR_RETURN_IF_ERROR(CheckPresent(length.value));
    return length;
  }

  absl::Status CheckPresent(uint64_t bytes) const {
    if (bytes <= static_cast<uint64_t>(cursor_.remaining())) return absl::OkStatus();
    return Malformed(absl::StrCat("truncated: a field of ", bytes, " bytes at byte ",
                                  cursor_.offset(), ", must be at most the ", cursor_.remaining(),
                                  " bytes that follow"));
  }

  absl::Status TakeRaw() {
    PHASOR_ASSIGN_OR_RETURN(const Varint length, ReadLength());
    if (static_cast<int64_t>(message_.raw.size()) >= limits_.max_raw_entries) {
      return absl::ResourceExhaustedError(
          absl::StrCat("raw: too many entries, must be at most ", limits_.max_raw_entries));
    }
    engine::Segments& entry = message_.raw.emplace_back();
    cursor_.Take(static_cast<int64_t>(length.value), [&](Piece part) { entry.push_back(part); });
    return absl::OkStatus();
  }

  absl::Status TakeHeader(int64_t bytes) {
    PHASOR_RETURN_IF_ERROR(CheckPresent(static_cast<uint64_t>(bytes)));
    PHASOR_RETURN_IF_ERROR(CheckHeaderRoom(bytes));
    cursor_.Take(bytes, [&](Piece part) {
      message_.header.append(reinterpret_cast<const char*>(part.data()), part.size());
    });
    return absl::OkStatus();
  }

  absl::Status AppendHeader(const Varint& varint) {
    PHASOR_RETURN_IF_ERROR(CheckHeaderRoom(varint.size));
    message_.header.append(varint.bytes, varint.size);
    return absl::OkStatus();
  }

  absl::Status CheckHeaderRoom(int64_t bytes) const {
    const int64_t room = limits_.max_header_bytes - static_cast<int64_t>(message_.header.size());
    if (bytes <= room) return absl::OkStatus();
    return absl::ResourceExhaustedError(
        absl::StrCat("request: metadata (all but raw) is too large, must be at most ",
                     limits_.max_header_bytes, " bytes"));
  }

  Cursor cursor_;
  const WalkLimits limits_;
  WalkedMessage message_;
};

}  // namespace

absl::StatusOr<WalkedMessage> WalkMessage(absl::Span<const Piece> pieces,
                                          const WalkLimits& limits) {
  return Walker(pieces, limits).Walk();
}

}  // namespace phasor::rpc
