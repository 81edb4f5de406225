// SPDX-License-Identifier: Apache-2.0
// Received gRPC messages as pieces of memory, held by reference.
#ifndef PHASOR_SERVER_GRPC_WIRE_H_
#define PHASOR_SERVER_GRPC_WIRE_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <cstdint>
#include <string>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "proto/raw_message.h"

namespace phasor::rpc {

// The bytes of one received message, without a copy. Owns references to gRPC's slices. Small slices
// have their bytes inside the slice object, so this class cannot be moved; views stay valid until
// Release or destruction. Threads: one at a time.
class ReceivedMessage {
 public:
  // Takes the bytes of `message` and leaves it empty, so that Release really frees its slices.
  // INVALID_ARGUMENT: the message cannot be read.
  absl::Status Take(grpc::ByteBuffer* message);

  ReceivedMessage() = default;
  ReceivedMessage(const ReceivedMessage&) = delete;
  ReceivedMessage& operator=(const ReceivedMessage&) = delete;

  int64_t size() const { return size_; }

  // Calls WalkMessage with the slices. The result borrows them.
  absl::StatusOr<WalkedMessage> Walk(const WalkLimits& limits) const;

  // Frees the bytes. Results of Walk must not be read any more.
  void Release();

 private:
  // Holds the last reference to every slice. Destroying a buffer makes the preparations that gRPC
  // 1.51 needs when memory returns to a quota that others wait for. Destroying a slice does not,
  // and would crash.
  grpc::ByteBuffer message_;
  absl::InlinedVector<grpc::Slice, 1> slices_;  // destroyed first
  int64_t size_ = 0;
};

// Copies a message for the generated parser; for methods without `raw`. RESOURCE_EXHAUSTED: it is
// larger than `max_bytes`.
absl::StatusOr<std::string> CopyMessage(const grpc::ByteBuffer& message, int64_t max_bytes);

}  // namespace phasor::rpc

#endif  // PHASOR_SERVER_GRPC_WIRE_H_
