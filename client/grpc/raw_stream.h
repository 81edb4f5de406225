// SPDX-License-Identifier: Apache-2.0
// A bidirectional stream of raw messages whose operations block. Messages wait in two queues, so
// that many small ones pass between threads, and to the socket, at once.
#ifndef PHASOR_CLIENT_GRPC_RAW_STREAM_H_
#define PHASOR_CLIENT_GRPC_RAW_STREAM_H_

#include <grpcpp/channel.h>

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "client/connection.h"
#include "client/grpc/byte_buffer.h"

namespace phasor::client_internal {

// Threads: one that writes and one that reads, at once; Cancel from any. The destructor cancels
// what is not finished, and returns when nothing that was lent is held any more.
class RawStream {
 public:
  // `method`: "/package.Service/Method".
  RawStream(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
            const CallContext& context);
  ~RawStream();
  RawStream(const RawStream&) = delete;
  RawStream& operator=(const RawStream&) = delete;

  // Blocks until Write would not block, or a message can be read: false then.
  bool WaitToWrite();
  // A loan for one message of this stream.
  Loan NewLoan() const;
  // Queues a message and blocks while 64 KiB wait before it. False: the stream has ended. `raw`
  // stays lent until `loan`, one of NewLoan, has been returned or the stream is gone.
  bool Write(const std::string& header, absl::Span<const absl::Span<const std::byte>> raw,
             Loan loan);
  // Blocks until `loan` has been returned, which a server could answer without: it may guess.
  // False: the stream was given up first.
  bool WaitForReturn(Loan loan);
  // Blocks until there is a message. False: there are no more. Up to 64 KiB, or one message, are
  // received before they are asked for.
  bool Read(grpc::ByteBuffer* message);
  // No more messages follow those that were queued.
  void WritesDone();
  void Cancel();
  // WritesDone, reads to the end, and says how it ended. Call from the reading thread when no other
  // writes any more.
  //
  // All of these end soon after an interruption, and half a second after the deadline at the
  // latest, even where the server's system takes no bytes. The destructor then waits until it takes
  // some.
  absl::Status Finish();

 private:
  class Reactor;
  std::shared_ptr<Reactor> reactor_;  // nullptr: IsForked
};

}  // namespace phasor::client_internal

#endif  // PHASOR_CLIENT_GRPC_RAW_STREAM_H_
