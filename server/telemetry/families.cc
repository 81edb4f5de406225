// SPDX-License-Identifier: Apache-2.0
// Builds metric families from values.
#include "server/telemetry/families.h"

namespace phasor::telemetry {

prometheus::MetricFamily& FamilyList::Counters(const std::string& name, const std::string& help) {
  return families_.emplace_back(
      prometheus::MetricFamily{name, help, prometheus::MetricType::Counter, {}});
}

prometheus::MetricFamily& FamilyList::Gauges(const std::string& name, const std::string& help) {
  return families_.emplace_back(
      prometheus::MetricFamily{name, help, prometheus::MetricType::Gauge, {}});
}

void FamilyList::Add(prometheus::MetricFamily* family, const Labels& labels, double value) {
  prometheus::ClientMetric& metric = family->metric.emplace_back();
  for (const auto& [name, text] : labels) metric.label.push_back({name, text});
  if (family->type == prometheus::MetricType::Counter) {
    metric.counter.value = value;
  } else {
    metric.gauge.value = value;
  }
}

}  // namespace phasor::telemetry
