// SPDX-License-Identifier: Apache-2.0
// A snapshot as metric families. docs/metrics.md lists them.
#ifndef PHASOR_SERVER_TELEMETRY_SNAPSHOT_FAMILIES_H_
#define PHASOR_SERVER_TELEMETRY_SNAPSHOT_FAMILIES_H_

#include <prometheus/metric_family.h>

#include <vector>

#include "server/telemetry/snapshot.h"

namespace phasor::telemetry {

std::vector<prometheus::MetricFamily> FamiliesOf(const Snapshot& snapshot);

}  // namespace phasor::telemetry

#endif  // PHASOR_SERVER_TELEMETRY_SNAPSHOT_FAMILIES_H_
