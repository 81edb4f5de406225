// SPDX-License-Identifier: Apache-2.0
// The page of --metrics-listen, over HTTP.
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

// "host:port", "[address]:port", or the same as http://host:port/path; the path is /metrics where
// there is none. INVALID_ARGUMENT: neither.
absl::StatusOr<MetricsUrl> ParseMetricsUrl(const std::string& text);

// Nothing larger is read: a page of a server is a hundred kilobytes.
inline constexpr size_t kMaxMetricsPageBytes = size_t{16} << 20;

// Waits up to `timeout`. UNAVAILABLE: nobody answers, or not with such a page.
absl::StatusOr<std::string> FetchMetrics(const MetricsUrl& url, absl::Duration timeout);

}  // namespace phasor::cli

#endif  // PHASOR_CLIENT_CLI_METRICS_FETCH_H_
