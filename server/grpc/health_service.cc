// SPDX-License-Identifier: Apache-2.0
// Answers health checks and watches. Each watch has a reactor, and the service's lock guards all of
// them. A write may start under the lock, because gRPC runs reactions on its own threads and never
// inside the call that starts a write.
#include "server/grpc/health_service.h"

#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace phasor::rpc {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

namespace {

// Longest accepted service name: gRPC keeps the request as long as the watch lives.
constexpr size_t kMaxNameBytes = 256;

}  // namespace

// Writes the status whenever it differs from the last written one. Owns itself until OnDone.
class HealthService::WatchReactor final : public grpc::ServerWriteReactor<HealthCheckResponse> {
 public:
  WatchReactor(HealthService* service, const std::string* name) : service_(*service), name_(name) {}

  // Starts the next write, or finishes, unless a write is in progress.
  void Continue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(service_.mu_) {
    if (writing_ || finished_) return;
    const Status status = service_.StatusOf(name_);
    if (cancelled_) {
      End(grpc::Status::CANCELLED);
    } else if (status != written_) {
      written_ = status;
      writing_ = true;
      response_.set_status(status);
      StartWrite(&response_);
    } else if (service_.ending_) {
      End(grpc::Status(grpc::StatusCode::UNAVAILABLE, "server: draining; try another one"));
    }
  }

  void OnWriteDone(bool ok) override {
    absl::MutexLock lock(&service_.mu_);
    writing_ = false;
    cancelled_ = cancelled_ || !ok;
    Continue();
  }
  void OnCancel() override {
    absl::MutexLock lock(&service_.mu_);
    cancelled_ = true;
    Continue();
  }
  void OnDone() override {
    {
      absl::MutexLock lock(&service_.mu_);
      service_.watches_.erase(this);
    }
    delete this;
  }

  void End(const grpc::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(service_.mu_) {
    finished_ = true;
    Finish(status);
  }

 private:
  // Guarded by the service's lock.
  HealthService& service_;
  const std::string* const name_;  // in services_; nullptr: unknown service
  HealthCheckResponse response_;
  Status written_ = HealthCheckResponse::UNKNOWN;  // a value that is never written
  bool writing_ = false;
  bool cancelled_ = false;
  bool finished_ = false;
};

HealthService::HealthService(const std::vector<std::string>& services)
    : services_(services.begin(), services.end()) {
  services_.insert("");
}

const std::string* HealthService::Find(const std::string& service) const {
  const auto found = services_.find(service);
  return found == services_.end() ? nullptr : &*found;
}

HealthService::Status HealthService::StatusOf(const std::string* service) const {
  if (service == nullptr) return HealthCheckResponse::SERVICE_UNKNOWN;
  const bool serving = serving_ && accepting_ && !down_.contains(*service);
  return serving ? HealthCheckResponse::SERVING : HealthCheckResponse::NOT_SERVING;
}

void HealthService::StopServing() {
  absl::MutexLock lock(&mu_);
  serving_ = false;
  for (WatchReactor* watch : watches_) watch->Continue();
}

void HealthService::SetAccepting(bool accepting) {
  absl::MutexLock lock(&mu_);
  accepting_ = accepting;
  for (WatchReactor* watch : watches_) watch->Continue();
}

void HealthService::SetServing(const std::string& service, bool serving) {
  absl::MutexLock lock(&mu_);
  if (serving) {
    down_.erase(service);
  } else {
    down_.insert(service);
  }
  for (WatchReactor* watch : watches_) watch->Continue();
}

void HealthService::EndWatches() {
  absl::MutexLock lock(&mu_);
  ending_ = true;
  for (WatchReactor* watch : watches_) watch->Continue();
}

grpc::ServerUnaryReactor* HealthService::Check(grpc::CallbackServerContext* context,
                                               const HealthCheckRequest* request,
                                               HealthCheckResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  absl::MutexLock lock(&mu_);
  const Status status = StatusOf(Find(request->service()));
  if (status == HealthCheckResponse::SERVICE_UNKNOWN) {
    // The first is the empty name.
    const std::string names = absl::StrJoin(std::next(services_.begin()), services_.end(), ", ");
    reactor->Finish(grpc::Status(
        grpc::StatusCode::NOT_FOUND,
        absl::StrCat("service: unknown; accepted: \"\"", names.empty() ? "" : ", ", names)));
  } else {
    response->set_status(status);
    reactor->Finish(grpc::Status::OK);
  }
  return reactor;
}

grpc::ServerWriteReactor<HealthCheckResponse>* HealthService::Watch(
    grpc::CallbackServerContext* /*context*/, const HealthCheckRequest* request) {
  auto* watch = new WatchReactor(this, Find(request->service()));
  absl::MutexLock lock(&mu_);
  watches_.insert(watch);
  if (request->service().size() > kMaxNameBytes) {
    watch->End(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT,
                            absl::StrCat("service: ", request->service().size(),
                                         " bytes; must be at most ", kMaxNameBytes)));
  } else {
    watch->Continue();
  }
  return watch;
}

}  // namespace phasor::rpc
