// SPDX-License-Identifier: Apache-2.0
// Fills histograms from the reports of an engine.
#include "server/telemetry/engine_metrics.h"

#include <string>

#include "server/telemetry/buckets.h"

namespace phasor::telemetry {
namespace {

ShardedHistogram Make(prometheus::Registry* registry, const std::string& name,
                      const std::string& help,
                      const prometheus::Histogram::BucketBoundaries& buckets) {
  auto& family = prometheus::BuildHistogram().Name(name).Help(help).Register(*registry);
  return {&family.Add({}, buckets), buckets};
}

}  // namespace

EngineMetrics::EngineMetrics(prometheus::Registry* registry)
    : queue_(Make(registry, "phasor_queue_seconds", "How long queued calls waited for a worker",
                  SecondsBuckets())),
      gather_(Make(registry, "phasor_gather_seconds",
                   "Before a run: memory taken, payload copied, values checked", SecondsBuckets())),
      compute_(Make(registry, "phasor_compute_seconds", "Runs of the backend", SecondsBuckets())),
      run_calls_(Make(registry, "phasor_batch_calls", "Calls of one run", CallsBuckets())),
      run_items_(Make(registry, "phasor_batch_items", "Items of one run", CallsBuckets())),
      run_bytes_(Make(registry, "phasor_batch_bytes", "Bytes of one run, read and written",
                      BytesBuckets())) {}

void EngineMetrics::Taken(absl::Duration queued) { queue_.Observe(absl::ToDoubleSeconds(queued)); }

void EngineMetrics::Ran(const engine::RunReport& run) {
  gather_.Observe(absl::ToDoubleSeconds(run.gather));
  compute_.Observe(absl::ToDoubleSeconds(run.compute));
  run_calls_.Observe(static_cast<double>(run.calls));
  run_items_.Observe(static_cast<double>(run.jobs));
  run_bytes_.Observe(static_cast<double>(run.bytes));
}

void EngineMetrics::Flush() {
  for (ShardedHistogram* const histogram :
       {&queue_, &gather_, &compute_, &run_calls_, &run_items_, &run_bytes_}) {
    histogram->Flush();
  }
}

}  // namespace phasor::telemetry
