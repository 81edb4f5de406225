// SPDX-License-Identifier: Apache-2.0
// Readings of GPUs as metric families, with the names of Triton Inference Server, which its tools
// expect, and the age of the readings.
#ifndef PHASOR_SERVER_TELEMETRY_GPU_FAMILIES_H_
#define PHASOR_SERVER_TELEMETRY_GPU_FAMILIES_H_

#include <prometheus/metric_family.h>

#include <vector>

#include "server/telemetry/gpu_reader.h"

namespace phasor::telemetry {

// Leaves out families for which no GPU has a value.
std::vector<prometheus::MetricFamily> FamiliesOf(const GpuReadings& readings);

}  // namespace phasor::telemetry

#endif  // PHASOR_SERVER_TELEMETRY_GPU_FAMILIES_H_
