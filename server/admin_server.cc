// SPDX-License-Identifier: Apache-2.0
// Starts the server of --admin-listen, with the limits that every gRPC server here has.
#include "server/admin_server.h"

#include <grpcpp/grpcpp.h>

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/steady_time.h"
#include "server/grpc/grpc_server.h"
#include "server/grpc/health_service.h"
#include "server/net/listener.h"

namespace phasor {
namespace {

// Its users are probes and people: few connections, short calls. Idle connections must not keep
// probes out: Kubernetes would restart the server.
constexpr int kMaxConnections = 64;
constexpr int64_t kMaxRequestBytes = 64 << 10;
constexpr int64_t kMaxResponseBytes = 64 << 20;  // channelz lists all connections
constexpr size_t kQuotaBytes = 64 << 20;
constexpr absl::Duration kStopTime = absl::Milliseconds(100);

class GrpcAdminServer final : public AdminServer {
 public:
  GrpcAdminServer(std::unique_ptr<Listener> listener, const std::vector<std::string>& services)
      : health_(services), listener_(std::move(listener)) {}

  ~GrpcAdminServer() override {
    listener_->Stop();
    health_.EndWatches();
    if (limited_.server != nullptr) limited_.server->Shutdown(WallTimeAfter(kStopTime));
  }

  absl::Status Start(const ServerOptions& options) {
    quota_.Resize(kQuotaBytes);
    PHASOR_ASSIGN_OR_RETURN(limited_, StartGrpcServer(options,
                                                      {.services = {&health_},
                                                       .plugin = kChannelzPlugin,
                                                       .max_request_bytes = kMaxRequestBytes,
                                                       .max_response_bytes = kMaxResponseBytes,
                                                       .quota = &quota_},
                                                      listener_.get()));
    return absl::OkStatus();
  }

  std::vector<std::string> listeners() const override { return listener_->addresses(); }
  void StopServing() override { health_.StopServing(); }
  void SetAccepting(bool accepting) override { health_.SetAccepting(accepting); }

 private:
  rpc::HealthService health_;
  const std::unique_ptr<Listener> listener_;
  grpc::ResourceQuota quota_{"admin"};
  LimitedServer limited_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<AdminServer>> AdminServer::Start(
    const ServerOptions& options, const std::vector<std::string>& services) {
  absl::StatusOr<std::unique_ptr<Listener>> listener =
      Listener::Bind({.addresses = options.admin_listen,
                      .max_connections = kMaxConnections,
                      .max_connections_per_peer = kMaxConnections,
                      .closes_oldest = true,
                      .access = {options.socket_mode, options.socket_group}});
  if (!listener.ok()) {  // the message may begin with "listen: ...", which is another option
    const absl::string_view why = listener.status().message();
    const bool other = absl::StartsWith(why, "listen: ");
    return absl::Status(listener.status().code(), absl::StrCat(other ? "admin-" : "", why));
  }
  auto server = std::make_unique<GrpcAdminServer>(*std::move(listener), services);
  PHASOR_RETURN_IF_ERROR(server->Start(options));
  return server;
}

}  // namespace phasor
