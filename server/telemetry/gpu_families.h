// SPDX-License-Identifier: Apache-2.0
// Readings of GPUs as metric families, under the names of Triton Inference Server, which its tools
// read, and how old they are.
#ifndef PHASOR_SERVER_TELEMETRY_GPU_FAMILIES_H_
#define PHASOR_SERVER_TELEMETRY_GPU_FAMILIES_H_

#include <prometheus/metric_family.h>

#include <vector>

#include "server/telemetry/gpu_reader.h"

namespace phasor::telemetry {

// A family that no GPU has a value of is left out.
std::vector<prometheus::MetricFamily> FamiliesOf(const GpuReadings& readings);

}  // namespace phasor::telemetry

#endif  // PHASOR_SERVER_TELEMETRY_GPU_FAMILIES_H_
