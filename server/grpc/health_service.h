// SPDX-License-Identifier: Apache-2.0
// grpc.health.v1: Check and Watch. Our own because the watches of gRPC's service stay open while
// the server shuts down: every drain with a watching client would last until its timeout.
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

// Threads: any. "" is the server as a whole, which says what all services say that were not set
// apart. A watch of a name that there is not is told so and kept without the name, since the names
// of a server never change; one of an overlong name is INVALID_ARGUMENT.
class HealthService final : public grpc::health::v1::Health::CallbackService {
 public:
  // Starts as SERVING.
  explicit HealthService(const std::vector<std::string>& services);

  // NOT_SERVING from now on, for Check and Watch.
  void StopServing();
  // NOT_SERVING as long as connections are not taken.
  void SetAccepting(bool accepting);
  // Of one service alone, until the server stops serving.
  void SetServing(const std::string& service, bool serving);
  // Ends all watches, also those to come, with UNAVAILABLE.
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

  // The name as it is kept here; nullptr: there is no such service.
  const std::string* Find(const std::string& service) const;
  Status StatusOf(const std::string* service) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  absl::Mutex mu_;
  std::set<std::string> services_;  // and ""; the same from the constructor on
  bool serving_ ABSL_GUARDED_BY(mu_) = true;
  bool accepting_ ABSL_GUARDED_BY(mu_) = true;
  std::set<std::string> down_ ABSL_GUARDED_BY(mu_);  // services that do not serve
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  std::set<WatchReactor*> watches_ ABSL_GUARDED_BY(mu_);
};

}  // namespace phasor::rpc

#endif  // PHASOR_SERVER_GRPC_HEALTH_SERVICE_H_
