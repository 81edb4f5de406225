// SPDX-License-Identifier: Apache-2.0
// StreamWatch: detects connections with too many calls. gRPC shows a unary call to its handler only
// when its message has arrived. So calls whose messages never arrive are known only to gRPC, which
// reports them through channelz.
#ifndef PHASOR_SERVER_GRPC_STREAM_WATCH_H_
#define PHASOR_SERVER_GRPC_STREAM_WATCH_H_

#include <cstdint>
#include <functional>
#include <string>
#include <thread>

#include "server/base/stop_signal.h"

namespace phasor {

// Owns a thread that looks once a second, or less often if there are thousands of connections.
class StreamWatch {
 public:
  // Calls `overcrowded` on the watch's thread with the address, as PeerAddress writes it, of each
  // TCP peer that has more than `most` calls on any gRPC server of this process.
  StreamWatch(int64_t most, std::function<void(const std::string& peer)> overcrowded);
  ~StreamWatch();
  StreamWatch(const StreamWatch&) = delete;
  StreamWatch& operator=(const StreamWatch&) = delete;

 private:
  void Run();

  const int64_t most_;
  const std::function<void(const std::string& peer)> overcrowded_;
  StopSignal stop_;
  std::thread thread_;
};

}  // namespace phasor

#endif  // PHASOR_SERVER_GRPC_STREAM_WATCH_H_
