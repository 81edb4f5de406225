// SPDX-License-Identifier: Apache-2.0
// Parses a page of Prometheus' text format 0.0.4: its samples by name and labels. Comments, types
// and time stamps are ignored.
#ifndef PHASOR_CLIENT_CLI_METRICS_PAGE_H_
#define PHASOR_CLIENT_CLI_METRICS_PAGE_H_

#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace phasor::cli {

using Labels = std::map<std::string, std::string>;
// The samples of one name.
using Series = std::map<Labels, double>;

// The samples of a page. Threads: a plain value.
class MetricsPage {
 public:
  // A page without samples.
  MetricsPage() = default;
  // INVALID_ARGUMENT "line 3: ...": the first line that is not in the format, or repeats a sample.
  static absl::StatusOr<MetricsPage> Parse(std::string_view text);

  // The samples of `name`; empty if the page has none.
  const Series& Of(std::string_view name) const;
  const std::map<std::string, Series, std::less<>>& all() const { return series_; }

 private:
  std::map<std::string, Series, std::less<>> series_;
};

}  // namespace phasor::cli

#endif  // PHASOR_CLIENT_CLI_METRICS_PAGE_H_
