// SPDX-License-Identifier: Apache-2.0
// Unary calls of raw messages: channels, deadlines, cancellation and retries. A call is done only
// when gRPC has returned the memory that it borrowed.
#ifndef PHASOR_CLIENT_GRPC_GRPC_CHANNEL_H_
#define PHASOR_CLIENT_GRPC_GRPC_CHANNEL_H_

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
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

// Largest message that is sent. gRPC's own limit is 2 GiB - 1.
inline constexpr int64_t kMaxMessageBytes = (int64_t{1} << 31) - (int64_t{64} << 10);
// RESOURCE_EXHAUSTED: more than that.
absl::Status CheckMessageBytes(int64_t bytes);

// `target` in gRPC's form: "host:port" becomes "dns:///host:port". INVALID_ARGUMENT: unknown kind
// of target.
absl::StatusOr<std::string> GrpcTarget(std::string_view target);
// INVALID_ARGUMENT, with the kinds of targets.
absl::Status UnknownTarget(std::string_view target);

// Gives a call its deadline and its metadata, which CheckMetadata must accept.
void SetUp(const CallContext& context, grpc::ClientContext* call);

// One unary call of raw messages.
struct RawCall {
  std::string method;  // "/package.Service/Method"
  std::string header;
  std::vector<absl::Span<const std::byte>> raw;  // borrowed until the call is done
  // Reads the response of the successful attempt. Its error becomes the error of the call.
  absl::AnyInvocable<absl::Status(const WalkedMessage&)> on_response;
  // Whether the call must not be retried once the server may have begun it.
  bool once = false;
  // Whether the call must use the connection of streams, because the server keeps state for that
  // connection.
  bool on_first = false;
  // If set, receives whether the server refused the last attempt without beginning it. Must live
  // until the call is done.
  bool* refused = nullptr;
  // Called exactly once, when nothing uses `raw` any more.
  absl::AnyInvocable<void(absl::Status)> done;
};

// The connections to one target. Owns them; calls in flight keep what they need. Threads: any.
class GrpcChannel {
 public:
  // `target` comes from GrpcTarget. `timer` waits between attempts; nullptr: real time.
  GrpcChannel(const std::string& target, const ClientOptions& options, Timer* timer = nullptr,
              const ChannelSecurity& security = {});
  ~GrpcChannel();

  // Before the first call: whether gRPC can read the address of the target.
  bool CanConnect() const;

  // Starts a call. If context.caller_waits, `done` runs on this thread before Start returns, unless
  // the wait ended before the call did, as context.interrupted says.
  // RESOURCE_EXHAUSTED: the request is larger than kMaxMessageBytes. INVALID_ARGUMENT: metadata.
  // FAILED_PRECONDITION: IsForked.
  // Other errors come from the server, gRPC or on_response.
  void Start(RawCall call, const CallContext& context);

  // The connection that streams use.
  const std::shared_ptr<grpc::Channel>& channel() const { return channels_[0]; }

 private:
  std::vector<std::shared_ptr<grpc::Channel>> channels_;
  std::vector<std::shared_ptr<grpc::GenericStub>> stubs_;  // one of each
  std::atomic<size_t> next_stub_{0};
  const RetryPolicy retry_;
  Timer* const timer_;  // nullptr: real time
};

}  // namespace phasor::client_internal

#endif  // PHASOR_CLIENT_GRPC_GRPC_CHANNEL_H_
