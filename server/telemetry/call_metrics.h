// SPDX-License-Identifier: Apache-2.0
// Rate, errors and duration of every RPC method, with the names of OpenTelemetry's gRPC metrics.
#ifndef PHASOR_SERVER_TELEMETRY_CALL_METRICS_H_
#define PHASOR_SERVER_TELEMETRY_CALL_METRICS_H_

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <array>
#include <atomic>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/node_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "server/grpc/call_observer.h"
#include "server/telemetry/open_metrics.h"
#include "server/telemetry/shards.h"

namespace phasor::telemetry {

// Counts calls of each known method under its name, and of all other methods together, so that
// callers cannot create series. Threads: any.
class CallMetrics final : public rpc::CallObserver {
 public:
  // Label of calls of unknown methods, as in OpenTelemetry's gRPC metrics.
  static constexpr char kOther[] = "other";

  // `methods` lists the server's methods as "package.Service/Method". `registry` must outlive this.
  CallMetrics(prometheus::Registry* registry, absl::Span<const std::string> methods);

  void Started(std::string_view method) override;
  void Ended(const rpc::CallRecord& call) override;

  // Moves what was counted to the registry.
  void Flush();

  // From the first call of this on, remembers a trace for each bucket of the durations: the last
  // call whose caller samples its trace. Finds it.
  Exemplar ExemplarOf(const prometheus::MetricFamily& family,
                      const prometheus::ClientMetric& metric, size_t bucket);

 private:
  static constexpr size_t kCodes = 17;

  // The series of one method and code. Each is made when it is first needed.
  struct Series {
    Series(prometheus::Histogram* seconds, prometheus::Histogram* sent,
           prometheus::Histogram* received);
    ShardedHistogram duration, sent_bytes, received_bytes;
  };
  // nullptr: not made yet.
  struct Method {
    std::string label;
    std::atomic<ShardedCounter*> started = nullptr;
    std::array<std::atomic<Series*>, kCodes> series = {};
  };

  // Remembers the call's trace, if its caller samples it.
  void Remember(const rpc::CallRecord& call);

  Method& MethodOf(std::string_view name);
  ShardedCounter& StartedOf(Method& method);
  Series& SeriesOf(Method& method, int code);

  prometheus::Family<prometheus::Counter>& started_;
  prometheus::Family<prometheus::Histogram>& duration_;
  prometheus::Family<prometheus::Histogram>& sent_bytes_;
  prometheus::Family<prometheus::Histogram>& received_bytes_;
  std::atomic<bool> exemplars_wanted_ = false;
  absl::Mutex mu_;
  // By method and code, as their labels say.
  std::map<std::pair<std::string, std::string>, std::vector<Exemplar>> exemplars_
      ABSL_GUARDED_BY(mu_);
  std::deque<ShardedCounter> counters_ ABSL_GUARDED_BY(mu_);  // in no order
  std::deque<Series> series_ ABSL_GUARDED_BY(mu_);
  absl::node_hash_map<std::string, Method> methods_;  // by name; fixed after construction
  Method other_ = {kOther};
};

}  // namespace phasor::telemetry

#endif  // PHASOR_SERVER_TELEMETRY_CALL_METRICS_H_
