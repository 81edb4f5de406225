// SPDX-License-Identifier: Apache-2.0
// See metrics_fetch.h. The one file that knows the HTTP library.
#include "client/cli/metrics_fetch.h"

#include <httplib.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <string_view>

#include "absl/time/clock.h"
#include "kernels/invalid.h"

namespace phasor::cli {
namespace {

constexpr char kHint[] = "; start the server with --metrics-listen";

std::string ReasonOf(httplib::Error error) {
  switch (error) {
    case httplib::Error::Connection:
      return StrCat("cannot connect", kHint);
    case httplib::Error::ConnectionTimeout:
      return StrCat("cannot connect in time", kHint);
    case httplib::Error::Read:
      return StrCat("no answer in HTTP, or not all of it in time", kHint);
    case httplib::Error::Canceled:
      return "not all of the page in time";
    default:
      return httplib::to_string(error);
  }
}

absl::Status CannotRead(const MetricsUrl& url, const std::string& why) {
  return absl::UnavailableError(StrCat("cannot read ", url.Text(), ": ", why));
}

}  // namespace

std::string MetricsUrl::HostAndPort() const {
  const bool brackets = host.find(':') != std::string::npos;
  return StrCat(brackets ? "[" : "", host, brackets ? "]:" : ":", port);
}

std::string MetricsUrl::Text() const { return StrCat("http://", HostAndPort(), path); }

absl::StatusOr<MetricsUrl> ParseMetricsUrl(const std::string& text) {
  const absl::Status wrong =
      InvalidAt("--metrics", "\"", text, "\", must be host:port or http://host:port/path");
  std::string_view rest = text;
  constexpr std::string_view kScheme = "http://";
  if (rest.starts_with(kScheme)) rest.remove_prefix(kScheme.size());
  const size_t path = std::min(rest.find('/'), rest.size());
  const std::string_view address = rest.substr(0, path);
  const size_t colon = address.rfind(':');
  if (colon == std::string_view::npos) return wrong;
  std::string_view host = address.substr(0, colon);
  const bool brackets = host.starts_with('[') && host.ends_with(']');
  if (brackets) host = host.substr(1, host.size() - 2);
  if (host.empty() || (!brackets && host.find(':') != std::string_view::npos)) return wrong;
  const std::string_view port = address.substr(colon + 1);
  MetricsUrl url = {.host = std::string(host), .path = std::string(rest.substr(path))};
  const char* const end = port.data() + port.size();
  if (std::from_chars(port.data(), end, url.port).ptr != end || url.port < 1 || url.port > 65535) {
    return wrong;
  }
  if (url.path.empty() || url.path == "/") url.path = "/metrics";
  return url;
}

absl::StatusOr<std::string> FetchMetrics(const MetricsUrl& url, absl::Duration timeout) {
  httplib::Client client(url.host, url.port);
  // The library counts milliseconds in an int.
  const auto wait = absl::ToChronoMicroseconds(std::min(timeout, absl::Hours(24)));
  client.set_connection_timeout(wait);
  client.set_read_timeout(wait);
  const absl::Time deadline = absl::Now() + timeout;
  std::string page;
  bool too_large = false;
  const auto receive = [&](const char* data, size_t size) {
    too_large = page.size() + size > kMaxMetricsPageBytes;
    if (too_large) return false;
    page.append(data, size);
    return absl::Now() < deadline;
  };
  const httplib::Result result = client.Get(url.path, receive);
  if (too_large) return CannotRead(url, "the page is too large");
  if (!result) return CannotRead(url, ReasonOf(result.error()));
  if (result->status != 200) {
    return CannotRead(url, StrCat("HTTP status ", result->status, ", must be 200"));
  }
  return page;
}

}  // namespace phasor::cli
