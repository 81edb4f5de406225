// SPDX-License-Identifier: Apache-2.0
// Fetches the page of --metrics-listen over HTTP.
#ifndef PHASOR_CLIENT_CLI_METRICS_FETCH_H_
#define PHASOR_CLIENT_CLI_METRICS_FETCH_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace phasor::cli {

struct MetricsUrl {
  std::string host;  // without the brackets of an IPv6 address
  int port = 0;
  std::string path;

  std::string HostAndPort() const;
  std::string Text() const;
};

// Parses "host:port" or "[address]:port", with or without "http://" before it and a path after it.
// The default path is /metrics. INVALID_ARGUMENT: anything else.
absl::StatusOr<MetricsUrl> ParseMetricsUrl(const std::string& text);

// Limit on the size of a page. A server's page is about a hundred kilobytes.
inline constexpr size_t kMaxMetricsPageBytes = size_t{16} << 20;

// Waits for at most `timeout`. UNAVAILABLE: no answer, or not a metrics page.
absl::StatusOr<std::string> FetchMetrics(const MetricsUrl& url, absl::Duration timeout);

}  // namespace phasor::cli

#endif  // PHASOR_CLIENT_CLI_METRICS_FETCH_H_
