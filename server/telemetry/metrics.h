// SPDX-License-Identifier: Apache-2.0
// All metrics of a server, and the HTTP listener that Prometheus reads them from.
#ifndef PHASOR_SERVER_TELEMETRY_METRICS_H_
#define PHASOR_SERVER_TELEMETRY_METRICS_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/engine/observer.h"
#include "server/grpc/call_observer.h"
#include "server/telemetry/snapshot.h"

namespace phasor::telemetry {

// Counts what it is told. Threads: any. Must outlive those who tell it.
class Metrics {
 public:
  // `methods`: those that the server has, "package.Service/Method".
  explicit Metrics(absl::Span<const std::string> methods);
  ~Metrics();

  engine::Observer* engine_observer();
  rpc::CallObserver* call_observer();

 private:
  friend class Exporter;
  class Impl;
  const std::shared_ptr<Impl> impl_;
};

class PageServer;

// Serves GET /metrics in Prometheus's text format. Threads: a PageServer's.
class Exporter {
 public:
  // Listens on addresses "host:port", port 0 for any free one. `snapshot` is called for every
  // request, on the exporter's thread. UNAVAILABLE "metrics-listen: ...": an address cannot be
  // bound.
  static absl::StatusOr<std::unique_ptr<Exporter>> Start(const std::vector<std::string>& addresses,
                                                         const Metrics& metrics,
                                                         std::function<Snapshot()> snapshot);
  ~Exporter();

  // With their real ports.
  std::vector<std::string> addresses() const;

 private:
  explicit Exporter(std::unique_ptr<PageServer> server);
  const std::unique_ptr<PageServer> server_;
};

}  // namespace phasor::telemetry

#endif  // PHASOR_SERVER_TELEMETRY_METRICS_H_
