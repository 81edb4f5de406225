// SPDX-License-Identifier: Apache-2.0
// Lends the memory of requests to gRPC, and walks the slices of responses.
#include "client/grpc/byte_buffer.h"

#include <limits>
#include <mutex>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/inlined_vector.h"

namespace phasor::client_internal {
namespace {

constexpr int64_t kMaxHeaderBytes = int64_t{64} << 20;
// Up to this size a copy is cheaper than a loan.
constexpr size_t kCopyBytes = 16 << 10;

}  // namespace

struct Loan::State {
  std::mutex mutex;
  int64_t out ABSL_GUARDED_BY(mutex) = 0;
  absl::AnyInvocable<void()> then ABSL_GUARDED_BY(mutex);
  std::shared_ptr<State> whole;  // what this is a part of
};

Loan::Loan() : state_(std::make_shared<State>()) {}

Loan Loan::Part() const {
  Loan part;
  part.state_->whole = state_;
  return part;
}

grpc::Slice Loan::Lend(absl::Span<const std::byte> bytes) {
  for (State* loan = state_.get(); loan != nullptr; loan = loan->whole.get()) {
    std::lock_guard lock(loan->mutex);
    ++loan->out;
  }
  // gRPC only reads a slice that it sends.
  return grpc::Slice(const_cast<std::byte*>(bytes.data()), bytes.size(), &Loan::Return,
                     new std::shared_ptr<State>(state_));
}

void Loan::Return(void* state) {
  const std::unique_ptr<std::shared_ptr<State>> owned(static_cast<std::shared_ptr<State>*>(state));
  for (State* loan = owned->get(); loan != nullptr; loan = loan->whole.get()) {
    absl::AnyInvocable<void()> then;
    {
      std::lock_guard lock(loan->mutex);
      if (--loan->out == 0) then = std::exchange(loan->then, nullptr);
    }
    if (then) then();
  }
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
  for (const MessagePart& part : JoinMessage(header, kRawField, raw, kCopyBytes)) {
    if (!part.text.empty()) slices.emplace_back(part.text);
    if (!part.entry.empty()) slices.push_back(loan.Lend(part.entry));
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

int64_t RawMessageBytes(const std::string& header,
                        absl::Span<const absl::Span<const std::byte>> raw) {
  auto bytes = static_cast<int64_t>(header.size());
  for (const absl::Span<const std::byte> entry : raw) bytes += FieldBytes(kRawField, entry.size());
  return bytes;
}

absl::StatusOr<ReceivedMessage> ReadRawMessage(const grpc::ByteBuffer& buffer) {
  ReceivedMessage message;
  if (!buffer.Valid()) return message;
  if (!buffer.Dump(&message.slices).ok()) return absl::InternalError("response: cannot be read");
  absl::InlinedVector<absl::Span<const std::byte>, 8> pieces;
  for (const grpc::Slice& slice : message.slices) {
    pieces.emplace_back(reinterpret_cast<const std::byte*>(slice.begin()), slice.size());
  }
  absl::StatusOr<WalkedMessage> walked =
      WalkMessage(pieces, {.max_header_bytes = kMaxHeaderBytes,
                           .max_raw_entries = std::numeric_limits<int64_t>::max(),
                           .subject = "response"});
  if (!walked.ok()) return absl::InternalError(walked.status().message());
  static_cast<WalkedMessage&>(message) = *std::move(walked);
  return message;
}

}  // namespace phasor::client_internal
