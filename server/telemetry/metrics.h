// SPDX-License-Identifier: Apache-2.0
// All metrics of a server, and the HTTP listener from which Prometheus reads them.
#ifndef PHASOR_SERVER_TELEMETRY_METRICS_H_
#define PHASOR_SERVER_TELEMETRY_METRICS_H_

#include <prometheus/registry.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/telemetry/call_metrics.h"
#include "server/telemetry/engine_metrics.h"
#include "server/telemetry/page_server.h"
#include "server/telemetry/snapshot.h"

namespace phasor::telemetry {

// What is counted. Must outlive its users. Threads: any.
struct Metrics {
  // `methods` lists the server's methods as "package.Service/Method".
  explicit Metrics(absl::Span<const std::string> methods) : calls(&registry, methods) {}

  prometheus::Registry registry;
  EngineMetrics engine{&registry};
  CallMetrics calls;
};

// Serves GET /metrics in Prometheus's text format. Listens on addresses "host:port"; port 0 means
// any free port. `metrics` must outlive the server. `snapshot` is called for every request, on the
// server's thread. UNAVAILABLE "metrics-listen: ...": an address cannot be bound.
absl::StatusOr<std::unique_ptr<PageServer>> ServeMetrics(const std::vector<std::string>& addresses,
                                                         Metrics* metrics,
                                                         std::function<Snapshot()> snapshot);

}  // namespace phasor::telemetry

#endif  // PHASOR_SERVER_TELEMETRY_METRICS_H_
