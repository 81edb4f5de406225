// SPDX-License-Identifier: Apache-2.0
// The process_ metrics that all Prometheus client libraries have, read from /proc.
#ifndef PHASOR_SERVER_TELEMETRY_PROCESS_FAMILIES_H_
#define PHASOR_SERVER_TELEMETRY_PROCESS_FAMILIES_H_

#include <prometheus/metric_family.h>

#include <vector>

namespace phasor::telemetry {

// Leaves out values that cannot be read.
std::vector<prometheus::MetricFamily> ProcessFamilies();

}  // namespace phasor::telemetry

#endif  // PHASOR_SERVER_TELEMETRY_PROCESS_FAMILIES_H_
