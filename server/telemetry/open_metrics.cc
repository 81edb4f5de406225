// SPDX-License-Identifier: Apache-2.0
// Rewrites what the Prometheus library serialises as text: names of counters, types, exemplars, and
// the end.
#include "server/telemetry/open_metrics.h"

#include <prometheus/metric_type.h>
#include <prometheus/text_serializer.h>

#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace phasor::telemetry {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

constexpr absl::string_view kTotal = "_total";

// A counter's family has the name of its samples without "_total". One whose samples are called
// otherwise cannot be a counter in this format.
std::string TypeOf(const MetricFamily& family) {
  switch (family.type) {
    case MetricType::Counter:
      return absl::EndsWith(family.name, kTotal) ? "counter" : "unknown";
    case MetricType::Gauge:
      return "gauge";
    case MetricType::Histogram:
      return "histogram";
    case MetricType::Summary:
      return "summary";
    default:
      return "unknown";
  }
}

std::string Head(const MetricFamily& family) {
  absl::string_view name = family.name;
  const std::string type = TypeOf(family);
  if (type == "counter") name = absl::StripSuffix(name, kTotal);
  const std::string help = absl::StrReplaceAll(family.help, {{"\\", "\\\\"}, {"\"", "\\\""}});
  return absl::StrCat("# HELP ", name, " ", help, "\n# TYPE ", name, " ", type, "\n");
}

std::string Text(const Exemplar& exemplar) {
  if (exemplar.trace_id.empty()) return "";
  return absl::StrFormat(" # {trace_id=\"%s\"} %.9g %.3f", exemplar.trace_id, exemplar.value,
                         absl::ToDoubleSeconds(exemplar.time - absl::UnixEpoch()));
}

// The exemplars of a histogram's buckets, in the order in which the library writes the buckets.
std::vector<std::string> ExemplarsOf(const MetricFamily& family, FindExemplar find) {
  std::vector<std::string> texts;
  for (const ClientMetric& metric : family.metric) {
    for (size_t bucket = 0; bucket < metric.histogram.bucket.size(); ++bucket) {
      texts.push_back(Text(find(family, metric, bucket)));
    }
  }
  return texts;
}

}  // namespace

bool TakesOpenMetrics(std::string_view accept) {
  return absl::StrContains(absl::string_view(accept.data(), accept.size()),
                           "application/openmetrics-text");
}

std::string OpenMetricsText(absl::Span<const MetricFamily> families, FindExemplar find) {
  std::string page;
  for (const MetricFamily& family : families) {
    page += Head(family);
    std::vector<std::string> exemplars;
    if (family.type == MetricType::Histogram) exemplars = ExemplarsOf(family, find);
    const std::string buckets = absl::StrCat(family.name, "_bucket{");
    size_t bucket = 0;
    const std::string text = prometheus::TextSerializer().Serialize({family});
    for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
      if (absl::StartsWith(line, "#")) continue;
      absl::StrAppend(&page, line);
      if (absl::StartsWith(line, buckets) && bucket < exemplars.size()) page += exemplars[bucket++];
      page += '\n';
    }
  }
  return page + "# EOF\n";
}

}  // namespace phasor::telemetry
