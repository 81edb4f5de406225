// SPDX-License-Identifier: Apache-2.0
// Streams of items, and calls larger than a message.
#ifndef PHASOR_CLIENT_STREAM_H_
#define PHASOR_CLIENT_STREAM_H_

#include <cstdint>
#include <functional>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace phasor {

// One item's answer: its result or its own error.
template <typename Result>
struct StreamAnswer {
  int64_t id = 0;
  absl::StatusOr<Result> result;
};

// A stream of calls. Answers come in the order in which they are done, one per call written; a
// call's error leaves the stream open. Memory that a call names must live until its answer was read
// or the stream is gone. Nothing is tried again.
//
// Both sides stop when the other does not read: keep reading while you write, from another thread
// or never more than 8 calls of up to 4 MiB behind. The stream's deadline ends what blocks.
//
// Threads: one that writes and one that reads, at once. Destroying an unfinished stream cancels it.
template <typename Call, typename Result>
class ItemStream {
 public:
  virtual ~ItemStream() = default;
  // Sends a call. Blocks while the server does not read. INVALID_ARGUMENT and the like: what is
  // wrong with the call, which was not sent and will not be answered. FAILED_PRECONDITION: the
  // stream has ended, Finish says why.
  virtual absl::Status Write(int64_t id, Call call) = 0;
  // The next answer. Blocks until there is one; none: the stream has ended.
  virtual std::optional<StreamAnswer<Result>> Read() = 0;
  // No more calls. What was written is still answered.
  virtual void WritesDone() = 0;
  // WritesDone, drops the answers that were not read, and says how the stream ended.
  virtual absl::Status Finish() = 0;
};

// How a long call is cut.
struct ChunkOptions {
  // Bytes of one run of tokens, of all tensors together; a token is never cut. In [1, 2^30].
  int64_t chunk_bytes = int64_t{4} << 20;
  // Told after every run, on the calling thread: tokens done and tokens in all, batch entries
  // counted separately.
  std::function<void(int64_t done, int64_t all)> progress = nullptr;
};

}  // namespace phasor

#endif  // PHASOR_CLIENT_STREAM_H_
