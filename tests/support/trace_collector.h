// SPDX-License-Identifier: Apache-2.0
// An OpenTelemetry collector that keeps the spans that it gets.
#ifndef PHASOR_TESTS_SUPPORT_TRACE_COLLECTOR_H_
#define PHASOR_TESTS_SUPPORT_TRACE_COLLECTOR_H_

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "opentelemetry/trace_service.grpc.pb.h"

namespace phasor::testing {

namespace otlp = opentelemetry::proto::collector::trace::v1;

// Threads: any. The destructor stops it.
class TraceCollector : private otlp::TraceService::Service {
 public:
  // Port 0: any free port.
  explicit TraceCollector(int port = 0) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:" + std::to_string(port), grpc::InsecureServerCredentials(),
                             &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    EXPECT_NE(server_, nullptr);
  }
  ~TraceCollector() override { server_->Shutdown(std::chrono::system_clock::now()); }

  std::string endpoint() const { return "127.0.0.1:" + std::to_string(port_); }

  std::vector<otlp::Span> spans() {
    std::lock_guard lock(mutex_);
    return spans_;
  }
  // Attributes of the resource of the last export, as "key=value".
  std::vector<std::string> resource() {
    std::lock_guard lock(mutex_);
    return resource_;
  }

  // Decides about an export before it is kept; may block. Set before the first export.
  std::function<grpc::Status(grpc::ServerContext*, otlp::ExportTraceServiceResponse*)> decide;
  std::atomic<int> exports = 0;

 private:
  grpc::Status Export(grpc::ServerContext* context, const otlp::ExportTraceServiceRequest* request,
                      otlp::ExportTraceServiceResponse* response) override {
    ++exports;
    if (decide != nullptr) {
      const grpc::Status status = decide(context, response);
      if (!status.ok()) return status;
    }
    std::lock_guard lock(mutex_);
    for (const auto& resource : request->resource_spans()) {
      resource_.clear();
      for (const auto& a : resource.resource().attributes()) {
        resource_.push_back(a.key() + "=" + a.value().string_value());
      }
      for (const auto& scope : resource.scope_spans()) {
        spans_.insert(spans_.end(), scope.spans().begin(), scope.spans().end());
      }
    }
    return grpc::Status::OK;
  }

  int port_ = 0;
  std::mutex mutex_;
  std::vector<otlp::Span> spans_;
  std::vector<std::string> resource_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace phasor::testing

#endif  // PHASOR_TESTS_SUPPORT_TRACE_COLLECTOR_H_
