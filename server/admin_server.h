// SPDX-License-Identifier: Apache-2.0
// AdminServer: a small second server with health and channelz, without encryption, on its own
// addresses. For probes without TLS and for debugging.
#ifndef PHASOR_SERVER_ADMIN_SERVER_H_
#define PHASOR_SERVER_ADMIN_SERVER_H_

#include <grpcpp/grpcpp.h>
#include <grpcpp/resource_quota.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "server/config/options.h"
#include "server/grpc/grpc_server.h"
#include "server/grpc/health_service.h"
#include "server/net/listener.h"

namespace phasor {

// The running admin server. Threads: any thread may call any method.
class AdminServer {
 public:
  // Serves on --admin-listen with the limits of `options`, and reports the health of `services`.
  // INVALID_ARGUMENT: not an address. UNAVAILABLE: an address cannot be bound.
  static absl::StatusOr<std::unique_ptr<AdminServer>> Start(
      const ServerOptions& options, const std::vector<std::string>& services);
  ~AdminServer();

  std::vector<std::string> listeners() const { return listener_->addresses(); }
  // Health is NOT_SERVING from now on.
  void StopServing() { health_.StopServing(); }
  // Says whether the main listener accepts connections. While it does not, health is NOT_SERVING.
  void SetAccepting(bool accepting) { health_.SetAccepting(accepting); }

 private:
  AdminServer(std::unique_ptr<Listener> listener, const std::vector<std::string>& services)
      : health_(services), listener_(std::move(listener)) {}

  rpc::HealthService health_;
  const std::unique_ptr<Listener> listener_;
  grpc::ResourceQuota quota_{"admin"};
  LimitedServer limited_;
};

}  // namespace phasor

#endif  // PHASOR_SERVER_ADMIN_SERVER_H_
