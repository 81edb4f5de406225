// SPDX-License-Identifier: Apache-2.0
// Notices connections that hold more calls than they may. gRPC shows a unary call to its handler
// once its message has arrived, so calls whose messages never come are known to gRPC alone; what it
// knows of its connections it tells through channelz.
#ifndef PHASOR_SERVER_GRPC_STREAM_WATCH_H_
#define PHASOR_SERVER_GRPC_STREAM_WATCH_H_

#include <cstdint>
#include <functional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace phasor {

// Owns one thread, which looks once a second, or less often where there are thousands of
// connections.
class StreamWatch {
 public:
  // `overcrowded` is told the address of each TCP peer, as PeerAddress writes it, that has more
  // than `most` calls, of any gRPC server of this process. On the watch's thread.
  StreamWatch(int64_t most, std::function<void(const std::string& peer)> overcrowded);
  ~StreamWatch();
  StreamWatch(const StreamWatch&) = delete;
  StreamWatch& operator=(const StreamWatch&) = delete;

 private:
  void Run();

  const int64_t most_;
  const std::function<void(const std::string& peer)> overcrowded_;
  absl::Mutex mu_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace phasor

#endif  // PHASOR_SERVER_GRPC_STREAM_WATCH_H_
