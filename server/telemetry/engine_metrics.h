// SPDX-License-Identifier: Apache-2.0
// Histograms of an engine's queue, batches and runs.
#ifndef PHASOR_SERVER_TELEMETRY_ENGINE_METRICS_H_
#define PHASOR_SERVER_TELEMETRY_ENGINE_METRICS_H_

#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include "server/engine/observer.h"

namespace phasor::telemetry {

// Fills the histograms. Threads: any.
class EngineMetrics final : public engine::Observer {
 public:
  // `registry` must outlive this.
  explicit EngineMetrics(prometheus::Registry* registry);

  void Taken(absl::Duration queued) override;
  void Ran(const engine::RunReport& run) override;

 private:
  prometheus::Histogram& queue_;
  prometheus::Histogram& gather_;
  prometheus::Histogram& compute_;
  prometheus::Histogram& run_calls_;
  prometheus::Histogram& run_items_;
  prometheus::Histogram& run_bytes_;
};

}  // namespace phasor::telemetry

#endif  // PHASOR_SERVER_TELEMETRY_ENGINE_METRICS_H_
