// SPDX-License-Identifier: Apache-2.0
#include "client/grpc/raw_message.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"

namespace phasor::client_internal {
namespace {

constexpr char kRawTag = 0x7A;  // field 15, length-delimited
constexpr size_t kMaxHeaderBytes = size_t{64} << 20;
// Up to here a copy is cheaper than a loan.
constexpr size_t kCopyBytes = 16 << 10;

std::string RawPrefix(size_t bytes) {
  std::string prefix(1, kRawTag);
  uint64_t rest = bytes;
  for (; rest >= 0x80; rest >>= 7) prefix.push_back(static_cast<char>(rest | 0x80));
  prefix.push_back(static_cast<char>(rest));
  return prefix;
}

absl::Status Malformed(std::string_view what) {
  return absl::InternalError(StrCat("response: ", what));
}

// Reads the slices of a message one after another. Borrows them.
class Cursor {
 public:
  explicit Cursor(const std::vector<grpc::Slice>& slices) : slices_(slices) {
    for (const grpc::Slice& slice : slices) left_ += slice.size();
  }
  size_t left() const { return left_; }

  // Hands the next `bytes` <= left() to visit(data, size), piece by piece.
  template <typename Visit>
  void Read(size_t bytes, Visit visit) {
    left_ -= bytes;
    while (bytes > 0) {
      const grpc::Slice& slice = slices_[index_];
      const size_t piece = std::min(bytes, slice.size() - offset_);
      if (piece > 0) visit(slice.begin() + offset_, piece);
      bytes -= piece;
      offset_ += piece;
      if (offset_ == slice.size()) {
        ++index_;
        offset_ = 0;
      }
    }
  }

  // A varint; its bytes are appended to `copy`.
  absl::StatusOr<uint64_t> ReadVarint(std::string& copy) {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (left_ == 0) return Malformed("truncated");
      uint8_t byte = 0;
      Read(1, [&](const uint8_t* data, size_t) { byte = *data; });
      copy.push_back(static_cast<char>(byte));
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    return Malformed("a number of more than 10 bytes");
  }

 private:
  const std::vector<grpc::Slice>& slices_;
  size_t index_ = 0;
  size_t offset_ = 0;
  size_t left_ = 0;
};

// Reads one field into `message`.
absl::Status ReadField(Cursor& cursor, RawMessage& message) {
  std::string field;  // the bytes of tag and length
  PHASOR_ASSIGN_OR_RETURN(const uint64_t tag, cursor.ReadVarint(field));
  uint64_t bytes = 0;
  switch (tag & 7) {
    case 0: {
      PHASOR_RETURN_IF_ERROR(cursor.ReadVarint(field).status());
      break;
    }
    case 1:
      bytes = 8;
      break;
    case 2: {
      PHASOR_ASSIGN_OR_RETURN(bytes, cursor.ReadVarint(field));
      break;
    }
    case 5:
      bytes = 4;
      break;
    default:
      return Malformed(StrCat("wire type ", tag & 7));
  }
  if (bytes > cursor.left()) return Malformed("truncated");
  if (tag == static_cast<uint64_t>(kRawTag)) {
    RawEntry& entry = message.raw.emplace_back();
    entry.bytes = static_cast<int64_t>(bytes);
    cursor.Read(bytes, [&](const uint8_t* data, size_t size) {
      entry.pieces.emplace_back(reinterpret_cast<const std::byte*>(data), size);
    });
    return absl::OkStatus();
  }
  if (message.header.size() + field.size() + bytes > kMaxHeaderBytes) {
    return Malformed("more than 64 MiB of metadata");
  }
  message.header += field;
  cursor.Read(bytes, [&](const uint8_t* data, size_t size) {
    message.header.append(reinterpret_cast<const char*>(data), size);
  });
  return absl::OkStatus();
}

}  // namespace

struct Loan::State {
  std::mutex mutex;
  int64_t out ABSL_GUARDED_BY(mutex) = 0;
  absl::AnyInvocable<void()> then ABSL_GUARDED_BY(mutex);
};

Loan::Loan() : state_(std::make_shared<State>()) {}

grpc::Slice Loan::Lend(absl::Span<const std::byte> bytes) {
  {
    std::lock_guard lock(state_->mutex);
    ++state_->out;
  }
  // gRPC only reads a slice that it sends.
  return grpc::Slice(const_cast<std::byte*>(bytes.data()), bytes.size(), &Loan::Return,
                     new std::shared_ptr<State>(state_));
}

void Loan::Return(void* state) {
  const std::unique_ptr<std::shared_ptr<State>> owned(static_cast<std::shared_ptr<State>*>(state));
  State& loan = **owned;
  absl::AnyInvocable<void()> then;
  {
    std::lock_guard lock(loan.mutex);
    if (--loan.out == 0) then = std::exchange(loan.then, nullptr);
  }
  if (then) then();
}

bool Loan::Returned(absl::AnyInvocable<void()> then) {
  std::lock_guard lock(state_->mutex);
  if (state_->out == 0) return true;
  state_->then = std::move(then);
  return false;
}

grpc::ByteBuffer WriteRawMessage(const std::string& header,
                                 absl::Span<const absl::Span<const std::byte>> raw, Loan& loan) {
  std::vector<grpc::Slice> slices;
  std::string copied = header;
  for (const absl::Span<const std::byte> entry : raw) {
    copied += RawPrefix(entry.size());
    if (entry.size() <= kCopyBytes) {
      copied.append(reinterpret_cast<const char*>(entry.data()), entry.size());
      continue;
    }
    slices.emplace_back(copied);
    copied.clear();
    slices.push_back(loan.Lend(entry));
  }
  if (!copied.empty()) slices.emplace_back(copied);
  return grpc::ByteBuffer(slices.data(), slices.size());
}

int64_t RawMessageBytes(const std::string& header,
                        absl::Span<const absl::Span<const std::byte>> raw) {
  size_t bytes = header.size();
  for (const absl::Span<const std::byte> entry : raw) {
    bytes += RawPrefix(entry.size()).size() + entry.size();
  }
  return static_cast<int64_t>(bytes);
}

void RawEntry::CopyTo(std::byte* to) const {
  for (const absl::Span<const std::byte> piece : pieces) {
    std::memcpy(to, piece.data(), piece.size());
    to += piece.size();
  }
}

absl::StatusOr<RawMessage> ReadRawMessage(const grpc::ByteBuffer& buffer) {
  RawMessage message;
  if (!buffer.Valid()) return message;
  if (!buffer.Dump(&message.slices).ok()) return Malformed("cannot be read");
  Cursor cursor(message.slices);
  while (cursor.left() > 0) PHASOR_RETURN_IF_ERROR(ReadField(cursor, message));
  return message;
}

}  // namespace phasor::client_internal
