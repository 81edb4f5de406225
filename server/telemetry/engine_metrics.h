// SPDX-License-Identifier: Apache-2.0
// Histograms of an engine's queue, batches and runs.
#ifndef PHASOR_SERVER_TELEMETRY_ENGINE_METRICS_H_
#define PHASOR_SERVER_TELEMETRY_ENGINE_METRICS_H_

#include <prometheus/registry.h>

#include "server/engine/observer.h"
#include "server/telemetry/shards.h"

namespace phasor::telemetry {

// Fills the histograms. Threads: any.
class EngineMetrics final : public engine::Observer {
 public:
  // `registry` must outlive this.
  explicit EngineMetrics(prometheus::Registry* registry);

  void Taken(absl::Duration queued) override;
  void Ran(const engine::RunReport& run) override;

  // Moves what was counted to the registry.
  void Flush();

 private:
  ShardedHistogram queue_;
  ShardedHistogram gather_;
  ShardedHistogram compute_;
  ShardedHistogram run_calls_;
  ShardedHistogram run_items_;
  ShardedHistogram run_bytes_;
};

}  // namespace phasor::telemetry

#endif  // PHASOR_SERVER_TELEMETRY_ENGINE_METRICS_H_
