// SPDX-License-Identifier: Apache-2.0
// Streams of calls, and options of calls that are larger than a message.
#ifndef PHASOR_CLIENT_STREAM_H_
#define PHASOR_CLIENT_STREAM_H_

#include <cstdint>
#include <functional>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace phasor {

// The answer to one call of a stream: its result or its error.
template <typename Result>
struct StreamAnswer {
  int64_t id = 0;
  absl::StatusOr<Result> result;
};

// A stream of calls with one answer for each call written, in the order in which the calls get
// done. An error of one call leaves the stream open. Memory that a call uses must live until its
// answer was read or the stream was destroyed. Nothing is retried.
//
// Each side stops when the other does not read. So read while you write: from another thread, or
// from the same one while WaitToWrite returns false. The deadline of the stream ends calls that
// block.
//
// Threads: one thread may write while another reads. Destroying an unfinished stream cancels it.
template <typename Call, typename Result>
class ItemStream {
 public:
  virtual ~ItemStream() = default;
  // Blocks until Write would not block, or an answer waits: false then. A program with one thread
  // reads while this is false before it writes.
  virtual bool WaitToWrite() = 0;
  // Sends a call. Blocks while the server does not read. FAILED_PRECONDITION "stream: ...": the
  // stream has ended, and Finish says why. Any other error, such as INVALID_ARGUMENT, says what is
  // wrong with the call: it was not sent and gets no answer.
  virtual absl::Status Write(int64_t id, Call call) = 0;
  // Returns the next answer and blocks until there is one. nullopt: the stream has ended.
  virtual std::optional<StreamAnswer<Result>> Read() = 0;
  // Says that no more calls follow. Calls that were written are still answered.
  virtual void WritesDone() = 0;
  // Calls WritesDone, waits for the answers that were not read and drops them, and returns how the
  // stream ended: a deadline or a cancellation after the last answer changes nothing.
  virtual absl::Status Finish() = 0;
};

// How ApplyRoPEInChunks cuts a call.
struct ChunkOptions {
  // Bytes of one run of tokens, over all tensors, in [1, 2^30]. A token is never cut, so a run
  // holds at least one.
  int64_t chunk_bytes = int64_t{4} << 20;
  // Runs after each run of tokens, on the calling thread. `done` and `all` count tokens of all
  // batch entries. An exception from it cancels the call and reaches the caller.
  std::function<void(int64_t done, int64_t all)> progress = nullptr;
};

}  // namespace phasor

#endif  // PHASOR_CLIENT_STREAM_H_
