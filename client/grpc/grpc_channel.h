// SPDX-License-Identifier: Apache-2.0
// Unary calls of raw messages: channels, deadlines, cancellation, retries, and the return of lent
// memory.
#ifndef PHASOR_CLIENT_GRPC_GRPC_CHANNEL_H_
#define PHASOR_CLIENT_GRPC_GRPC_CHANNEL_H_

#include <grpcpp/channel.h>
#include <grpcpp/generic/generic_stub.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/common/retry.h"
#include "client/connection.h"
#include "client/grpc/byte_buffer.h"
#include "client/grpc/channel_security.h"
#include "client/options.h"

namespace phasor::client_internal {

// Largest message sent. gRPC's own limit is 2 GiB - 1.
inline constexpr int64_t kMaxMessageBytes = (int64_t{1} << 31) - (int64_t{64} << 10);

// `target` as gRPC names it: "host:port" gets "dns:///". INVALID_ARGUMENT: no such kind of target.
absl::StatusOr<std::string> GrpcTarget(std::string_view target);

struct RawCall {
  std::string method;  // "/package.Service/Method"
  std::string header;
  std::vector<absl::Span<const std::byte>> raw;  // borrowed until the call is done
  // Takes the response of the successful attempt. Its error becomes the call's.
  absl::AnyInvocable<absl::Status(const WalkedMessage&)> on_response;
  // Whether an attempt that the server may have begun must not be made again.
  bool once = false;
  // Whether it must take the connection of streams: the server knows something by it.
  bool on_first = false;
  // If given, becomes whether the server refused the last attempt, and has not begun it. Lives
  // until the call is done.
  bool* refused = nullptr;
  // Called once, when nothing holds `raw` any more.
  absl::AnyInvocable<void(absl::Status)> done;
};

// Threads: any. Owns its connections; calls in flight keep what they need.
class GrpcChannel {
 public:
  // `target` from GrpcTarget. `timer` waits between attempts; nullptr: real time.
  GrpcChannel(const std::string& target, const ClientOptions& options, Timer* timer = nullptr,
              const ChannelSecurity& security = {});

  // With context.caller_waits, `done` runs before this returns, on this thread.
  // RESOURCE_EXHAUSTED: larger than kMaxMessageBytes. Else what the server, gRPC or on_response
  // says.
  void Start(RawCall call, const CallContext& context);

  // The connection of streams.
  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }

 private:
  std::shared_ptr<grpc::Channel> channel_;  // of the first stub
  std::vector<std::shared_ptr<grpc::GenericStub>> stubs_;
  std::atomic<size_t> next_stub_{0};
  const RetryPolicy retry_;
  Timer* const timer_;  // nullptr: real time
};

}  // namespace phasor::client_internal

#endif  // PHASOR_CLIENT_GRPC_GRPC_CHANNEL_H_
