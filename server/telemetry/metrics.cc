// SPDX-License-Identifier: Apache-2.0
// Builds the metrics page: the counted metrics, then the snapshot, then the process.
#include "server/telemetry/metrics.h"

#include <prometheus/text_serializer.h>

#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/telemetry/families.h"
#include "server/telemetry/gpu_reader.h"
#include "server/telemetry/open_metrics.h"

namespace phasor::telemetry {
namespace {

// The format of the Prometheus library: version 0.0.4 of the text format.
constexpr char kText[] = "text/plain; version=0.0.4; charset=utf-8";
constexpr char kOpenMetrics[] = "application/openmetrics-text; version=1.0.0; charset=utf-8";

void MoveTo(std::vector<prometheus::MetricFamily>* all,
            std::vector<prometheus::MetricFamily> families) {
  std::move(families.begin(), families.end(), std::back_inserter(*all));
}

}  // namespace

absl::StatusOr<std::unique_ptr<PageServer>> ServeMetrics(const std::vector<std::string>& addresses,
                                                         Metrics* metrics,
                                                         std::function<Snapshot()> snapshot) {
  PageServerOptions options;
  options.addresses = addresses;
  options.path = "/metrics";
  options.page = [metrics, snapshot = std::move(snapshot),
                  gpus = std::make_shared<GpuReader>()](std::string_view accept) {
    metrics->engine.Flush();
    metrics->calls.Flush();
    std::vector<prometheus::MetricFamily> families = metrics->registry.Collect();
    MoveTo(&families, FamiliesOf(snapshot()));
    MoveTo(&families, ProcessFamilies());
    MoveTo(&families, FamiliesOf(gpus->Read()));
    if (!TakesOpenMetrics(accept)) {
      return Page{kText, prometheus::TextSerializer().Serialize(families)};
    }
    const auto find = [metrics](const prometheus::MetricFamily& family,
                                const prometheus::ClientMetric& metric, size_t bucket) {
      return metrics->calls.ExemplarOf(family, metric, bucket);
    };
    return Page{kOpenMetrics, OpenMetricsText(families, find)};
  };
  absl::StatusOr<std::unique_ptr<PageServer>> server = PageServer::Start(std::move(options));
  // The server's message begins with "listen: ...", which is another option.
  if (!server.ok()) {
    return absl::Status(server.status().code(),
                        absl::StrCat("metrics-", server.status().message()));
  }
  return server;
}

}  // namespace phasor::telemetry
