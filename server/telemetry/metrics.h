// SPDX-License-Identifier: Apache-2.0
// All metrics of a server, and the HTTP listener from which Prometheus reads them.
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

// Counts what its observers report. Must outlive their users. Threads: any.
class Metrics {
 public:
  // `methods` lists the server's methods as "package.Service/Method".
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

// Serves GET /metrics in Prometheus's text format. Threads: those of PageServer.
class Exporter {
 public:
  // Listens on addresses "host:port"; port 0 means any free port. `snapshot` is called for every
  // request, on the exporter's thread. UNAVAILABLE "metrics-listen: ...": an address cannot be
  // bound.
  static absl::StatusOr<std::unique_ptr<Exporter>> Start(const std::vector<std::string>& addresses,
                                                         const Metrics& metrics,
                                                         std::function<Snapshot()> snapshot);
  ~Exporter();

  // The addresses with their real ports.
  std::vector<std::string> addresses() const;

 private:
  explicit Exporter(std::unique_ptr<PageServer> server);
  const std::unique_ptr<PageServer> server_;
};

}  // namespace phasor::telemetry

#endif  // PHASOR_SERVER_TELEMETRY_METRICS_H_
