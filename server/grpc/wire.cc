// SPDX-License-Identifier: Apache-2.0
// Takes messages over from gRPC, walks their slices, and copies small messages.
#include "server/grpc/wire.h"

#include <iterator>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"

namespace phasor::rpc {
namespace {

absl::Status Unreadable() {
  return absl::InvalidArgumentError("request: cannot be read; must be an uncompressed message");
}

using Slices = absl::InlinedVector<grpc::Slice, 1>;

// The slices of a message. gRPC starts a call without a message where the caller, or a limit of
// gRPC, ended the call before the message was here whole.
absl::Status DumpSlices(const grpc::ByteBuffer& message, Slices* slices) {
  if (!message.Valid()) {
    return absl::CancelledError("request: the call ended before the message had arrived");
  }
  if (grpc::Slice only; message.TrySingleSlice(&only).ok()) {
    slices->push_back(std::move(only));
    return absl::OkStatus();
  }
  std::vector<grpc::Slice> all;
  if (!message.Dump(&all).ok()) return Unreadable();
  slices->assign(std::make_move_iterator(all.begin()), std::make_move_iterator(all.end()));
  return absl::OkStatus();
}

}  // namespace

absl::Status ReceivedMessage::Take(grpc::ByteBuffer* message) {
  Release();
  message_.Swap(message);
  absl::Status status = DumpSlices(message_, &slices_);
  size_ = 0;
  for (const grpc::Slice& slice : slices_) size_ += static_cast<int64_t>(slice.size());
  return status;
}

absl::StatusOr<WalkedMessage> ReceivedMessage::Walk(const WalkLimits& limits) const {
  absl::InlinedVector<absl::Span<const std::byte>, 8> pieces;
  pieces.reserve(slices_.size());
  for (const grpc::Slice& slice : slices_) {
    pieces.emplace_back(reinterpret_cast<const std::byte*>(slice.begin()), slice.size());
  }
  return WalkMessage(pieces, limits);
}

void ReceivedMessage::Release() {
  slices_.clear();
  slices_.shrink_to_fit();
  message_.Clear();
}

absl::StatusOr<std::string> CopyMessage(const grpc::ByteBuffer& message, int64_t max_bytes) {
  const auto size = static_cast<int64_t>(message.Length());
  if (size > max_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("request: ", size, " bytes; must be at most ", max_bytes));
  }
  Slices slices;
  if (absl::Status status = DumpSlices(message, &slices); !status.ok()) return status;
  std::string bytes;
  bytes.reserve(size);
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return bytes;
}

}  // namespace phasor::rpc
