// SPDX-License-Identifier: Apache-2.0
// FrameFilter: watches the HTTP/2 frames of a client for floods that gRPC does not bound: header
// blocks without end, messages in tiny frames and, in gRPC 1.51, resets of streams.
#ifndef PHASOR_SERVER_NET_FRAME_FILTER_H_
#define PHASOR_SERVER_NET_FRAME_FILTER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "server/base/mutex.h"
#include "server/net/message_frames.h"

namespace phasor {

// How many streams a peer may reset: so many at once, and so many per second.
inline constexpr double kResetsAtOnce = 2000;
inline constexpr double kResetsPerSecond = 1000;

// A header block may be larger than the metadata that a call may have, so that such a call still
// gets its status. What is larger than this ends the connection.
inline constexpr int64_t kLeastHeaderBlockBytes = 64 << 10;

// Resets of streams by one peer, over all its connections. Threads: any.
class ResetBudget {
 public:
  explicit ResetBudget(absl::Time now) : at_(now) {}
  // Takes one; false: there is none left.
  bool Take(absl::Time now);
  // Whether it is as good as a new one.
  bool Full(absl::Time now);

 private:
  void Refill(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Mutex mu_;
  double left_ ABSL_GUARDED_BY(mu_) = kResetsAtOnce;
  absl::Time at_ ABSL_GUARDED_BY(mu_);
};

// The budgets of all peers. Threads: one.
class ResetBudgets {
 public:
  // The budget of `peer`. Peers that reset nothing lately are forgotten.
  std::shared_ptr<ResetBudget> Of(const std::string& peer, absl::Time now);

 private:
  static constexpr size_t kMostPeers = 4096;  // beside those with open connections
  absl::flat_hash_map<std::string, std::shared_ptr<ResetBudget>> budgets_;
};

// The frames of one connection. Reads only their heads, nine bytes of each, and the sizes of
// messages. Bytes that are not HTTP/2 are left to gRPC. Threads: one at a time.
class FrameFilter {
 public:
  // `header_block_bytes`: most bytes of HEADERS and the CONTINUATIONs after it, their heads
  // included. `resets`: nullptr: they are not counted.
  FrameFilter(int64_t header_block_bytes, std::shared_ptr<ResetBudget> resets)
      : header_block_bytes_(header_block_bytes), resets_(std::move(resets)) {}

  // The next bytes of the client. Returns what the client did wrong; nullptr: nothing so far.
  const char* Read(absl::Span<const uint8_t> bytes, absl::Time now);

 private:
  static constexpr int64_t kPrefaceBytes = 24;
  static constexpr size_t kHeadBytes = 9;

  const char* BeginFrame(absl::Time now);

  const int64_t header_block_bytes_;
  const std::shared_ptr<ResetBudget> resets_;
  int64_t skip_ = kPrefaceBytes;  // bytes until the next head
  std::array<uint8_t, kHeadBytes> head_ = {};
  size_t head_bytes_ = 0;  // of head_ that have arrived
  int64_t block_ = 0;      // bytes of the header block so far; 0: none is open
  bool in_data_ = false;   // the bytes until the next head are of messages
  MessageFrames messages_;
};

}  // namespace phasor

#endif  // PHASOR_SERVER_NET_FRAME_FILTER_H_
