// SPDX-License-Identifier: Apache-2.0
// Metric families whose values are read at every scrape rather than counted here. docs/metrics.md
// lists them.
#ifndef PHASOR_SERVER_TELEMETRY_FAMILIES_H_
#define PHASOR_SERVER_TELEMETRY_FAMILIES_H_

#include <prometheus/metric_family.h>

#include <string>
#include <utility>
#include <vector>

namespace phasor::telemetry {

using Labels = std::vector<std::pair<std::string, std::string>>;

// A list of families, in the order in which they were added. Threads: one.
class FamilyList {
 public:
  // Add a family with one value and no labels.
  template <typename Number>
  void Counter(const std::string& name, const std::string& help, Number value) {
    AddTo(&Counters(name, help), {}, value);
  }
  template <typename Number>
  void Gauge(const std::string& name, const std::string& help, Number value) {
    AddTo(&Gauges(name, help), {}, value);
  }
  // Add a family whose values AddTo adds. The reference is valid until the next family is added.
  prometheus::MetricFamily& Counters(const std::string& name, const std::string& help);
  prometheus::MetricFamily& Gauges(const std::string& name, const std::string& help);
  template <typename Number>
  static void AddTo(prometheus::MetricFamily* family, const Labels& labels, Number value) {
    Add(family, labels, static_cast<double>(value));
  }

  std::vector<prometheus::MetricFamily> Take() { return std::move(families_); }

 private:
  static void Add(prometheus::MetricFamily* family, const Labels& labels, double value);

  std::vector<prometheus::MetricFamily> families_;
};

struct Snapshot;
std::vector<prometheus::MetricFamily> FamiliesOf(const Snapshot& snapshot);

// The readings have the names of Triton Inference Server, which its tools expect. Leaves out
// families for which no GPU has a value.
struct GpuReadings;
std::vector<prometheus::MetricFamily> FamiliesOf(const GpuReadings& readings);

// The process_ metrics that all Prometheus client libraries have, read from /proc. Leaves out
// values that cannot be read.
std::vector<prometheus::MetricFamily> ProcessFamilies();

}  // namespace phasor::telemetry

#endif  // PHASOR_SERVER_TELEMETRY_FAMILIES_H_
