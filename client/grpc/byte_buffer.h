// SPDX-License-Identifier: Apache-2.0
// Raw messages in gRPC's byte buffers. Requests lend the caller's memory to gRPC; responses are
// read where they lie.
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

// Counts the pieces of lent memory that gRPC still holds. A call may be over while its connection
// has yet to write or drop its bytes; the memory is the caller's again only when all came back.
// Threads: any. Copies are the same loan.
class Loan {
 public:
  Loan();
  // A slice of `bytes` without a copy.
  grpc::Slice Lend(absl::Span<const std::byte> bytes);
  // True: everything came back, `then` is dropped. False: `then` runs when it does, on a thread of
  // gRPC that holds locks: it must only hand on.
  bool Returned(absl::AnyInvocable<void()> then);

 private:
  struct State;
  static void Return(void* state);
  std::shared_ptr<State> state_;
};

// `header` followed by one entry per element of `raw`. Large entries are lent, small ones copied.
grpc::ByteBuffer WriteRawMessage(const std::string& header,
                                 absl::Span<const absl::Span<const std::byte>> raw, Loan& loan);
// Length of that message.
int64_t RawMessageBytes(const std::string& header,
                        absl::Span<const absl::Span<const std::byte>> raw);

// A received message with the slices that its entries borrow.
struct ReceivedMessage : WalkedMessage {
  std::vector<grpc::Slice> slices;
};

// INTERNAL: the bytes are no message, or the header is larger than 64 MiB.
absl::StatusOr<ReceivedMessage> ReadRawMessage(const grpc::ByteBuffer& buffer);

}  // namespace phasor::client_internal

#endif  // PHASOR_CLIENT_GRPC_BYTE_BUFFER_H_
