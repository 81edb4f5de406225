// SPDX-License-Identifier: Apache-2.0
// The process_ metrics that Prometheus client libraries have in common, from /proc.
#ifndef PHASOR_SERVER_TELEMETRY_PROCESS_FAMILIES_H_
#define PHASOR_SERVER_TELEMETRY_PROCESS_FAMILIES_H_

#include <prometheus/metric_family.h>

#include <vector>

namespace phasor::telemetry {

// What cannot be read is left out.
std::vector<prometheus::MetricFamily> ProcessFamilies();

}  // namespace phasor::telemetry

#endif  // PHASOR_SERVER_TELEMETRY_PROCESS_FAMILIES_H_
