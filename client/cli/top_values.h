// SPDX-License-Identifier: Apache-2.0
// The values that `phasor top` shows, computed from two metrics pages. Threads: pure functions.
#ifndef PHASOR_CLIENT_CLI_TOP_VALUES_H_
#define PHASOR_CLIENT_CLI_TOP_VALUES_H_

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "client/cli/metrics_page.h"

namespace phasor::cli {

// Unknown numbers are NaN, and null in JSON: the mean of nothing, or a value that the page lacks.

struct Percentiles {
  double p50_s, p99_s;
};

struct MethodValues {
  std::string name;  // without its service
  double calls_per_s, errors_per_s;
  std::string most_frequent_error;  // a status code; empty: no errors
  Percentiles duration;
  double received_bytes_per_s, sent_bytes_per_s;
};

struct HoldingValues {
  double count, bytes;
};

struct TopValues {
  double elapsed_s;
  // Whether the server was restarted between the pages. Rates then count from its start.
  bool restarted;

  std::string version, backend, cpu_target;
  bool serving;
  double uptime_s, cpu_percent, resident_bytes, open_fds, max_fds;

  double calls_per_s, errors_per_s, received_bytes_per_s, sent_bytes_per_s;
  double inflight_bytes, inflight_limit_bytes, queued_calls, waiting_calls;
  double connections, connections_refused_per_s;

  std::vector<MethodValues> methods;  // busiest first

  Percentiles queue, gather, compute;
  double calls_per_batch, inline_percent, queued_percent;

  HoldingValues leases, regions, tables;
  double plan_cache_hit_percent;
};

// Upper bounds of buckets, with the number of observations up to each bound. The last bound is
// infinite.
using Buckets = std::map<double, double>;

// The same as Prometheus' histogram_quantile: linear within a bucket. The first bucket begins at 0.
// A quantile in the last bucket is the bound below it. NaN if there are no observations.
double HistogramQuantile(double q, const Buckets& buckets);

// Whether a page comes from phasor-server.
bool IsServersPage(const MetricsPage& page);

// Compares two pages of a server: `now` was read `elapsed_s` > 0 seconds after `before`, at the
// Unix time `now_s`. Calls count when they end.
TopValues CompareMetrics(const MetricsPage& before, const MetricsPage& now, double elapsed_s,
                         double now_s);

// `address` is where the pages come from.
nlohmann::ordered_json ToJson(const TopValues& values, const std::string& address);

}  // namespace phasor::cli

#endif  // PHASOR_CLIENT_CLI_TOP_VALUES_H_
