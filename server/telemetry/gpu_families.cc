// SPDX-License-Identifier: Apache-2.0
// Formats readings of GPUs as metric families.
#include "server/telemetry/families.h"
#include "server/telemetry/gpu_reader.h"

namespace phasor::telemetry {

std::vector<prometheus::MetricFamily> FamiliesOf(const GpuReadings& readings) {
  FamilyList list;
  const auto add = [&](const char* name, const char* help,
                       std::optional<double> GpuReading::*value) {
    prometheus::MetricFamily* family = nullptr;
    for (const GpuReading& gpu : readings.gpus) {
      if (!(gpu.*value).has_value()) continue;
      if (family == nullptr) family = &list.Gauges(name, help);
      FamilyList::AddTo(family, {{"gpu_uuid", gpu.uuid}}, *(gpu.*value));
    }
  };
  add("nv_gpu_utilization", "Part of the time that the GPU computed, 0 to 1",
      &GpuReading::utilization);
  add("nv_gpu_power_usage", "Power that the GPU takes, watts", &GpuReading::power_watts);
  add("nv_gpu_power_limit", "Power that the GPU may take, watts", &GpuReading::power_limit_watts);
  add("nv_gpu_memory_total_bytes", "Memory of the GPU", &GpuReading::memory_total_bytes);
  add("nv_gpu_memory_used_bytes", "Memory of the GPU in use, by all processes",
      &GpuReading::memory_used_bytes);
  if (!readings.gpus.empty()) {
    FamilyList::AddTo(&list.Gauges("phasor_gpu_readings_age_seconds",
                                   "Since the driver answered for the nv_gpu_* metrics"),
                      {}, readings.age.count());
  }
  return list.Take();
}

}  // namespace phasor::telemetry
