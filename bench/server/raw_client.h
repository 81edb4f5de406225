// SPDX-License-Identifier: Apache-2.0
// The load generator: sends the same bytes repeatedly, some calls at a time, and discards the
// answers. Its cost is the same for every server that it calls.
#ifndef PHASOR_BENCH_SERVER_RAW_CLIENT_H_
#define PHASOR_BENCH_SERVER_RAW_CLIENT_H_

#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>

#include <string>

namespace phasor::bench {

inline constexpr char kEncodeMethod[] = "/phasor.v1.PositionEmbeddingService/Encode";
inline constexpr char kBatchEncodeMethod[] = "/phasor.v1.PositionEmbeddingService/BatchEncode";
inline constexpr char kStreamEncodeMethod[] = "/phasor.v1.PositionEmbeddingService/StreamEncode";
inline constexpr char kRopeMethod[] = "/phasor.v1.PositionEmbeddingService/ApplyRoPE";

// The size of HTTP/2 frames of every client and server here: phasor-server's default.
inline constexpr int kFrameBytes = 4 << 20;

// One connection. Dies if a call fails, because the times of errors mean nothing.
// Threads: one thread at a time.
class RawClient {
 public:
  // `address` is like "127.0.0.1:40123" or "unix:/path".
  explicit RawClient(const std::string& address);
  ~RawClient();

  // Makes `calls` calls, `in_flight` at a time. Returns the last answer.
  grpc::ByteBuffer Run(const std::string& method, const grpc::ByteBuffer& request, int calls = 1,
                       int in_flight = 1);

  // Sends `message` `messages` times on one stream, with at most `in_flight` answers missing.
  // Returns the last answer.
  grpc::ByteBuffer RunStream(const std::string& method, const grpc::ByteBuffer& message,
                             int messages, int in_flight);

 private:
  struct Slot;
  // The next tag of the queue. Dies if its operation failed.
  void* NextTag(const std::string& method);

  grpc::GenericStub stub_;
  grpc::CompletionQueue queue_;
};

}  // namespace phasor::bench

#endif  // PHASOR_BENCH_SERVER_RAW_CLIENT_H_
