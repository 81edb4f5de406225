// SPDX-License-Identifier: Apache-2.0
// See admin_server.h.
#include "server/admin_server.h"

#include <grpcpp/grpcpp.h>

#include <utility>

#include "absl/time/clock.h"
#include "kernels/status_macros.h"
#include "server/grpc_server.h"
#include "server/listener.h"
#include "server/rpc/health_service.h"

namespace phasor {
namespace {

// Probes and people: few connections, short calls.
constexpr int kMaxConnections = 64;
constexpr absl::Duration kStopTime = absl::Milliseconds(100);

class GrpcAdminServer final : public AdminServer {
 public:
  GrpcAdminServer(std::unique_ptr<Listener> listener, const std::vector<std::string>& services)
      : health_(services), listener_(std::move(listener)) {}

  ~GrpcAdminServer() override {
    listener_->Stop();
    health_.EndWatches();
    if (server_ != nullptr) server_->Shutdown(absl::ToChronoTime(absl::Now() + kStopTime));
  }

  absl::Status Start() {
    SetProcessWideGrpcOptions();
    grpc::ServerBuilder builder;
    KeepPlugins(&builder, {kChannelzPlugin});
    builder.RegisterService(&health_);
    server_ = ServeConnections(&builder, listener_.get(), /*tls=*/nullptr);
    if (server_ != nullptr) return absl::OkStatus();
    return absl::InternalError("admin-listen: gRPC refused to start");
  }

  std::vector<std::string> listeners() const override { return listener_->addresses(); }
  void StopServing() override { health_.StopServing(); }
  void SetAccepting(bool accepting) override { health_.SetAccepting(accepting); }

 private:
  rpc::HealthService health_;
  const std::unique_ptr<Listener> listener_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<AdminServer>> AdminServer::Start(
    const std::vector<std::string>& addresses, const std::vector<std::string>& services) {
  PHASOR_ASSIGN_OR_RETURN(std::unique_ptr<Listener> listener,
                          Listener::Bind({addresses, kMaxConnections, kMaxConnections}));
  auto server = std::make_unique<GrpcAdminServer>(std::move(listener), services);
  PHASOR_RETURN_IF_ERROR(server->Start());
  return server;
}

}  // namespace phasor
