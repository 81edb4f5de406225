// SPDX-License-Identifier: Apache-2.0
// StreamEncode, StreamApplyRoPE and StreamMoveKeys: receives items, computes them and sends
// answers, within the limits below. The comments in proto/phasor/v1 say what a stream guarantees.
#ifndef PHASOR_SERVER_API_STREAM_H_
#define PHASOR_SERVER_API_STREAM_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <cstdint>
#include <unordered_set>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/api/response.h"
#include "server/api/stream_view.h"
#include "server/api/tensor_call.h"
#include "server/engine/engine.h"

namespace phasor::rpc {

// Limits on what a stream has received and not answered yet: messages, and bytes of requests and
// answers together. While both are below their limits, the next message is taken, whatever its
// size.
inline constexpr int64_t kMaxStreamMessages = 64;
inline constexpr int64_t kMaxStreamBytes = int64_t{64} << 20;

// The functions by which one streaming method reads and answers.
struct StreamMethod {
  absl::StatusOr<StreamRequest> (*parse)(const WalkedMessage&, const ViewContext&);
  grpc::ByteBuffer (*respond)(const StreamAnswer&);
  int64_t raw_entries = kRawEntriesOfOneItem;  // of a message
};

// Settings of a stream.
struct StreamOptions {
  TensorCallLimits limits;
  absl::Duration idle_timeout;  // 0: no limit
};

class Stream;

// The streams of a service. Starts and drains them. Must outlive them. Threads: any.
class StreamSet {
 public:
  StreamSet() = default;
  StreamSet(const StreamSet&) = delete;
  StreamSet& operator=(const StreamSet&) = delete;

  // Starts a stream and returns its reactor, which gRPC owns from then on. Never blocks. `method`
  // and `engine` must outlive the stream.
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Start(
      const StreamMethod& method, const StreamOptions& options, engine::Engine& engine,
      grpc::CallbackServerContext* context);

  // From now on, streams begin no new items. Each ends with UNAVAILABLE when the items that it
  // began are done.
  void Drain();

  int64_t size() {
    absl::MutexLock lock(&mu_);
    return static_cast<int64_t>(streams_.size());
  }

 private:
  friend class Stream;
  void Remove(Stream* stream) {
    absl::MutexLock lock(&mu_);
    streams_.erase(stream);
  }

  absl::Mutex mu_;
  bool draining_ ABSL_GUARDED_BY(mu_) = false;
  std::unordered_set<Stream*> streams_ ABSL_GUARDED_BY(mu_);
};

}  // namespace phasor::rpc

#endif  // PHASOR_SERVER_API_STREAM_H_
