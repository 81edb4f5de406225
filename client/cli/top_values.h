// SPDX-License-Identifier: Apache-2.0
// What `phasor top` shows, computed from two pages of metrics. Threads: pure functions.
#ifndef PHASOR_CLIENT_CLI_TOP_VALUES_H_
#define PHASOR_CLIENT_CLI_TOP_VALUES_H_

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "client/cli/metrics_page.h"

namespace phasor::cli {

// A number that the pages do not tell is NaN, in JSON null: a mean of nothing, a page without it.

struct Percentiles {
  double p50_s, p99_s;
};

struct MethodValues {
  std::string name;  // without its service
  double calls_per_s, errors_per_s;
  std::string most_frequent_error;  // a code, empty without errors
  Percentiles duration;
  double received_bytes_per_s, sent_bytes_per_s;
};

struct HoldingValues {
  double count, bytes;
};

struct TopValues {
  double elapsed_s;
  // The server was started again between the pages: rates count from its start.
  bool restarted;

  std::string version, backend, cpu_target;
  bool serving;
  double uptime_s, cpu_percent, resident_bytes, open_fds, max_fds;

  double calls_per_s, errors_per_s, received_bytes_per_s, sent_bytes_per_s;
  double inflight_bytes, inflight_limit_bytes, queued_calls, waiting_calls;
  double connections, connections_refused_per_s;

  std::vector<MethodValues> methods;  // the busiest first

  Percentiles queue, gather, compute;
  double calls_per_batch, inline_percent, queued_percent;

  HoldingValues leases, regions, tables;
  double plan_cache_hit_percent;
};

// By the upper bounds of buckets, how many observations are not above each; the last bound is
// infinite.
using Buckets = std::map<double, double>;

// As Prometheus' histogram_quantile: linear within a bucket, whose first one begins at 0; where the
// last one has it, the bound below. NaN without observations.
double HistogramQuantile(double q, const Buckets& buckets);

// Whether a page is of phasor-server, and not of another program.
bool IsServersPage(const MetricsPage& page);

// Of such pages: `now` was read `elapsed_s` > 0 seconds after `before`, at the Unix time `now_s`.
// What ended within that time is what is counted.
TopValues CompareMetrics(const MetricsPage& before, const MetricsPage& now, double elapsed_s,
                         double now_s);

// `address` is where the pages are from.
nlohmann::ordered_json ToJson(const TopValues& values, const std::string& address);

}  // namespace phasor::cli

#endif  // PHASOR_CLIENT_CLI_TOP_VALUES_H_
