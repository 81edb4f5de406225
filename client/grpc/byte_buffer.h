// SPDX-License-Identifier: Apache-2.0
// Raw messages in gRPC's byte buffers. Requests lend the caller's memory to gRPC. Responses are
// read in place.
#ifndef PHASOR_CLIENT_GRPC_BYTE_BUFFER_H_
#define PHASOR_CLIENT_GRPC_BYTE_BUFFER_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/raw_message.h"

namespace phasor::client_internal {

// Counts the pieces of lent memory that gRPC still holds. A call may end while its connection still
// has to write or drop its bytes, so the caller may use the memory again only when all pieces have
// been returned. Copies refer to the same loan. Threads: any.
class Loan {
 public:
  Loan();
  // A loan whose pieces are pieces of this one too.
  Loan Part() const;
  // A slice of `bytes` without a copy.
  grpc::Slice Lend(absl::Span<const std::byte> bytes);
  // Returns true if all pieces have been returned; `then` is dropped. Otherwise returns false, and
  // `then` runs when they have been. It runs on a thread of gRPC that holds locks, so it must only
  // hand work to another thread.
  bool Returned(absl::AnyInvocable<void()> then);

 private:
  struct State;
  static void Return(void* state);
  std::shared_ptr<State> state_;
};

// The message of `header` and one raw entry per element of `raw`. Large entries are lent, small
// ones copied.
grpc::ByteBuffer WriteRawMessage(const std::string& header,
                                 absl::Span<const absl::Span<const std::byte>> raw, Loan& loan);
// The length of that message.
int64_t RawMessageBytes(const std::string& header,
                        absl::Span<const absl::Span<const std::byte>> raw);

// A received message with the slices that its entries borrow.
struct ReceivedMessage : WalkedMessage {
  std::vector<grpc::Slice> slices;
};

// INTERNAL: the bytes are not a message, or the header is larger than 64 MiB.
absl::StatusOr<ReceivedMessage> ReadRawMessage(const grpc::ByteBuffer& buffer);

}  // namespace phasor::client_internal

#endif  // PHASOR_CLIENT_GRPC_BYTE_BUFFER_H_
