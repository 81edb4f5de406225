// SPDX-License-Identifier: Apache-2.0
// Log lines about calls: every failed call, and a sample of the successful ones.
#ifndef PHASOR_SERVER_TELEMETRY_REQUEST_LOG_H_
#define PHASOR_SERVER_TELEMETRY_REQUEST_LOG_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <string_view>

#include "absl/time/time.h"
#include "kernels/base/steady_time.h"
#include "server/base/log_limit.h"
#include "server/grpc/call_observer.h"

namespace phasor::telemetry {

struct RequestLogOptions {
  int64_t every = 0;  // every n-th successful call is logged; 0: none
  // Most lines about failures per second, so that a faulty caller cannot fill a disk. The next line
  // says how many were left out.
  int64_t max_failures_per_second = 100;
  // The limit for calls refused because of their caller. It is separate, so that strangers cannot
  // displace the lines of other failures.
  int64_t max_refusals_per_second = 10;
  std::function<absl::Time()> now = &SteadyNow;
};

// Writes the log lines. Threads: any.
class RequestLog final : public rpc::CallObserver {
 public:
  explicit RequestLog(RequestLogOptions options);

  void Started(std::string_view) override {}
  void Ended(const rpc::CallRecord& call) override;

 private:
  const RequestLogOptions options_;
  std::atomic<int64_t> succeeded_ = 0;
  LogLimit failures_;
  LogLimit refusals_;
};

}  // namespace phasor::telemetry

#endif  // PHASOR_SERVER_TELEMETRY_REQUEST_LOG_H_
