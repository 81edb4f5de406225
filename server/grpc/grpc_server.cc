// SPDX-License-Identifier: Apache-2.0
// Builds gRPC servers from the server's options.
#include "server/grpc/grpc_server.h"

#include <grpc/grpc.h>
#include <grpcpp/ext/channelz_service_plugin.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/impl/server_builder_option.h>
#include <sys/socket.h>

#include <algorithm>
#include <climits>
#include <utility>

#include "absl/time/time.h"
#include "kernels/base/steady_time.h"
#include "server/base/log.h"
#include "server/grpc/call_interceptor.h"
#include "server/grpc/filtered_reads.h"
#include "server/grpc/grpc_log.h"
#include "server/net/frame_filter.h"
#include "server/net/listen_socket.h"

namespace phasor {
namespace {

// Clients may ping at this interval. gRPC treats more as abuse.
constexpr absl::Duration kPingInterval = absl::Seconds(10);

// Calls of gRPC's own services, reflection and channelz, hold a thread each. Beyond this number
// they fail with RESOURCE_EXHAUSTED. Calls of our services need none of these threads.
constexpr int kMaxPluginThreads = 32;

int Millis(absl::Duration time) {
  return static_cast<int>(std::min<int64_t>(absl::ToInt64Milliseconds(time), INT_MAX));
}
// INT_MAX means never to gRPC.
int MillisOrNever(absl::Duration time) {
  return time == absl::ZeroDuration() ? INT_MAX : Millis(time);
}

using Acceptor = grpc::experimental::ExternalConnectionAcceptor;

std::shared_ptr<Acceptor> AddAcceptor(grpc::ServerBuilder* builder,
                                      const std::shared_ptr<grpc::ServerCredentials>& credentials) {
  return builder->experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, credentials);
}

bool IsUnixSocket(int fd) {
  int domain = 0;
  socklen_t size = sizeof(domain);
  return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_UNIX;
}

// Removes all plug-ins but one from a server. Plug-ins are registered for the whole process.
class PluginFilter final : public grpc::ServerBuilderOption {
 public:
  explicit PluginFilter(std::string name) : name_(std::move(name)) {}
  void UpdateArguments(grpc::ChannelArguments*) override {}
  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>* plugins) override {
    const auto unwanted = [this](const std::unique_ptr<grpc::ServerBuilderPlugin>& plugin) {
      return plugin->name() != name_;
    };
    plugins->erase(std::remove_if(plugins->begin(), plugins->end(), unwanted), plugins->end());
  }

 private:
  const std::string name_;
};

// Registers plug-ins and the log, which belong to the process. Must run before the first builder.
void SetProcessWideGrpcOptions() {
  static const bool once = [] {
    ForwardGrpcLog();
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    grpc::channelz::experimental::InitChannelzService();
    return true;
  }();
  static_cast<void>(once);
}

void SetLimits(const ServerOptions& o, grpc::ServerBuilder* builder) {
  // gRPC 1.51 decompresses a message before it checks its size, so compression is off. Later
  // releases would also take the mark of compression from a message that names no encoding.
  builder->SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  builder->SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);

  const std::pair<const char*, int> arguments[] = {
      {GRPC_ARG_MAX_METADATA_SIZE, static_cast<int>(o.max_metadata_bytes)},
      {GRPC_ARG_MAX_CONCURRENT_STREAMS, o.max_concurrent_streams},
      {GRPC_ARG_HTTP2_MAX_FRAME_SIZE, static_cast<int>(o.max_frame_bytes)},
      {GRPC_ARG_MAX_CONNECTION_IDLE_MS, MillisOrNever(o.max_connection_idle)},
      {GRPC_ARG_MAX_CONNECTION_AGE_MS, MillisOrNever(o.max_connection_age)},
      {GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS, Millis(o.max_connection_age_grace)},
      {GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, Millis(o.handshake_timeout)},
      {GRPC_ARG_KEEPALIVE_TIME_MS, MillisOrNever(o.keepalive_time)},
      {GRPC_ARG_KEEPALIVE_TIMEOUT_MS, Millis(o.keepalive_timeout)},
      {GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1},
      {GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, Millis(kPingInterval)},
      {GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0},
      {GRPC_ARG_TCP_TX_ZEROCOPY_ENABLED, 0},  // corrupts data in gRPC releases of this age
  };
  for (const auto& [name, value] : arguments) builder->AddChannelArgument(name, value);
  if (o.stream_window_bytes > 0) {
    builder->AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);  // otherwise the window grows
    builder->AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES,
                                static_cast<int>(o.stream_window_bytes));
  }
}

// Calls with too much metadata get a status, so their header blocks pass the filter.
int64_t HeaderBlockBytes(const ServerOptions& o) {
  return std::max(kLeastHeaderBlockBytes, 4 * o.max_metadata_bytes);
}

// Gives the server the connections that `listener` accepts from now on. Those of `plain` are
// filtered by socket.
void Serve(std::shared_ptr<Acceptor> plain, std::shared_ptr<Acceptor> tcp,
           int64_t header_block_bytes, Listener* listener) {
  auto resets = std::make_shared<ResetBudgets>();
  listener->Start([plain = std::move(plain), tcp = std::move(tcp), resets = std::move(resets),
                   header_block_bytes](int listening_fd, int fd) {
    const auto& acceptor = IsUnixSocket(fd) ? plain : tcp;
    if (acceptor == plain) {
      FilterReads(fd,
                  std::make_unique<FrameFilter>(
                      header_block_bytes,
                      PHASOR_GRPC_BOUNDS_STREAMS ? nullptr : resets->Of(PeerKey(fd), SteadyNow())));
    }
    Acceptor::NewConnectionParameters connection;
    connection.listener_fd = listening_fd;
    connection.fd = fd;
    acceptor->HandleNewConnection(&connection);
  });
}

}  // namespace

void KeepGrpcUntilExit() { grpc_init(); }

absl::StatusOr<LimitedServer> StartGrpcServer(const ServerOptions& options, GrpcServerParts parts,
                                              Listener* listener) {
  SetProcessWideGrpcOptions();
  LimitedServer limited;
  // Twice gRPC's own limit: for the caller a call ends earlier than it is gone here.
  const int calls = 2 * options.max_concurrent_streams;
  limited.calls = std::make_unique<rpc::OpenCalls>(
      rpc::OpenCallLimits{calls, options.max_metadata_bytes, options.answer_timeout},
      [](int64_t ended) {
        Log(LogLevel::kWarn, "answers not taken in time", {{"calls", ended}});
      });

  grpc::ServerBuilder builder;
  SetLimits(options, &builder);
  builder.SetMaxReceiveMessageSize(static_cast<int>(parts.max_request_bytes));
  builder.SetMaxSendMessageSize(static_cast<int>(parts.max_response_bytes));
  parts.quota->SetMaxThreads(kMaxPluginThreads);
  builder.SetResourceQuota(*parts.quota);
  builder.SetOption(std::make_unique<PluginFilter>(std::move(parts.plugin)));
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> creators;
  creators.push_back(rpc::MakeCallInterceptors(limited.calls.get(), std::move(parts.observers),
                                               std::move(parts.finished)));
  builder.experimental().SetInterceptorCreators(std::move(creators));
  if (parts.contexts != nullptr) builder.SetContextAllocator(std::move(parts.contexts));
  for (grpc::Service* const service : parts.services) builder.RegisterService(service);

  std::shared_ptr<Acceptor> plain = AddAcceptor(&builder, grpc::InsecureServerCredentials());
  std::shared_ptr<Acceptor> tcp = parts.tls == nullptr ? plain : AddAcceptor(&builder, parts.tls);
  limited.server = builder.BuildAndStart();
  if (limited.server == nullptr)
    return absl::InternalError("server: gRPC refused to start; its log lines above say why");
  if (parts.tls != nullptr) FilterTlsReads(HeaderBlockBytes(options));
  Serve(std::move(plain), std::move(tcp), HeaderBlockBytes(options), listener);
#if !PHASOR_GRPC_BOUNDS_STREAMS
  limited.watch = std::make_unique<StreamWatch>(
      calls, [listener](const std::string& peer) { listener->HangUpOn(peer); });
#endif
  return limited;
}

}  // namespace phasor
