// SPDX-License-Identifier: Apache-2.0
// Starts the server of --admin-listen, with the limits that every gRPC server here has.
#include "server/admin_server.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/steady_time.h"

namespace phasor {
namespace {

// Its users are probes and people: few connections, short calls. Idle connections must not keep
// probes out: Kubernetes would restart the server.
constexpr int kMaxConnections = 64;
constexpr int64_t kMaxRequestBytes = 64 << 10;
constexpr int64_t kMaxResponseBytes = 64 << 20;  // channelz lists all connections
constexpr size_t kQuotaBytes = 64 << 20;
constexpr absl::Duration kStopTime = absl::Milliseconds(100);

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
  std::unique_ptr<AdminServer> server(new AdminServer(*std::move(listener), services));
  server->quota_.Resize(kQuotaBytes);
  PHASOR_ASSIGN_OR_RETURN(server->limited_,
                          StartGrpcServer(options,
                                          {.services = {&server->health_},
                                           .plugin = kChannelzPlugin,
                                           .max_request_bytes = kMaxRequestBytes,
                                           .max_response_bytes = kMaxResponseBytes,
                                           .quota = &server->quota_},
                                          server->listener_.get()));
  return server;
}

AdminServer::~AdminServer() {
  listener_->Stop();
  health_.EndWatches();
  if (limited_.server != nullptr) limited_.server->Shutdown(WallTimeAfter(kStopTime));
}

}  // namespace phasor
