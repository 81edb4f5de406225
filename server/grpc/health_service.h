// SPDX-License-Identifier: Apache-2.0
// grpc.health.v1: Check and Watch. It replaces gRPC's own service, whose watches stay open while
// the server shuts down, so that with a watching client every drain would last until its timeout.
#ifndef PHASOR_SERVER_GRPC_HEALTH_SERVICE_H_
#define PHASOR_SERVER_GRPC_HEALTH_SERVICE_H_

#include <grpcpp/grpcpp.h>

#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "grpc/health/v1/health.grpc.pb.h"

namespace phasor::rpc {

// The health of a server and its services. "" is the whole server; its status holds for all
// services without a status of their own. A watch of an unknown service gets SERVICE_UNKNOWN and
// stays open; its name is not kept, because the services of a server never change. A watch with too
// long a name fails with INVALID_ARGUMENT. Threads: any.
class HealthService final : public grpc::health::v1::Health::CallbackService {
 public:
  // Starts as SERVING.
  explicit HealthService(const std::vector<std::string>& services);

  // From now on, Check and Watch answer NOT_SERVING.
  void StopServing();
  // While connections are not accepted, the status is NOT_SERVING.
  void SetAccepting(bool accepting);
  // Sets the status of one service, as long as the server serves.
  void SetServing(const std::string& service, bool serving);
  // Ends all present and future watches with UNAVAILABLE.
  void EndWatches();

  grpc::ServerUnaryReactor* Check(grpc::CallbackServerContext* context,
                                  const grpc::health::v1::HealthCheckRequest* request,
                                  grpc::health::v1::HealthCheckResponse* response) override;
  grpc::ServerWriteReactor<grpc::health::v1::HealthCheckResponse>* Watch(
      grpc::CallbackServerContext* context,
      const grpc::health::v1::HealthCheckRequest* request) override;

 private:
  using Status = grpc::health::v1::HealthCheckResponse::ServingStatus;
  class WatchReactor;

  // The stored name; nullptr if the service is unknown.
  const std::string* Find(const std::string& service) const;
  Status StatusOf(const std::string* service) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  absl::Mutex mu_;
  std::set<std::string> services_;  // and ""; does not change
  bool serving_ ABSL_GUARDED_BY(mu_) = true;
  bool accepting_ ABSL_GUARDED_BY(mu_) = true;
  std::set<std::string> down_ ABSL_GUARDED_BY(mu_);  // services that do not serve
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  std::set<WatchReactor*> watches_ ABSL_GUARDED_BY(mu_);
};

}  // namespace phasor::rpc

#endif  // PHASOR_SERVER_GRPC_HEALTH_SERVICE_H_
