// SPDX-License-Identifier: Apache-2.0
// Rate, errors and duration of every RPC method, under the names of OpenTelemetry's gRPC metrics.
#ifndef PHASOR_SERVER_TELEMETRY_CALL_METRICS_H_
#define PHASOR_SERVER_TELEMETRY_CALL_METRICS_H_

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <array>
#include <memory>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "server/rpc/call_observer.h"

namespace phasor::telemetry {

// Threads: any.
class CallMetrics final : public rpc::CallObserver {
 public:
  // `registry` must outlive this.
  explicit CallMetrics(prometheus::Registry* registry);

  void Started(std::string_view method) override;
  void Ended(const rpc::CallRecord& call) override;

 private:
  static constexpr size_t kCodes = 17;

  // Of one method and code; nullptr until it happens.
  struct Series {
    prometheus::Histogram* duration;
    prometheus::Histogram* sent_bytes;
    prometheus::Histogram* received_bytes;
  };
  struct Method {
    prometheus::Counter* started;
    std::array<std::unique_ptr<Series>, kCodes> series;
  };

  Method& MethodOf(std::string_view name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Series SeriesOf(std::string_view method, int code);

  prometheus::Family<prometheus::Counter>& started_;
  prometheus::Family<prometheus::Histogram>& duration_;
  prometheus::Family<prometheus::Histogram>& sent_bytes_;
  prometheus::Family<prometheus::Histogram>& received_bytes_;
  absl::Mutex mu_;
  // By names that live for ever.
  absl::flat_hash_map<std::string_view, std::unique_ptr<Method>> methods_ ABSL_GUARDED_BY(mu_);
};

}  // namespace phasor::telemetry

#endif  // PHASOR_SERVER_TELEMETRY_CALL_METRICS_H_
