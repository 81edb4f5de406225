// SPDX-License-Identifier: Apache-2.0
// Readings of NVIDIA GPUs from the driver's library NVML, if it is installed. Written from the
// library's documentation; not confirmed on real hardware.
#ifndef PHASOR_SERVER_TELEMETRY_NVML_H_
#define PHASOR_SERVER_TELEMETRY_NVML_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace phasor::telemetry {

// The current values of a GPU. A value that the driver does not report is not set.
struct GpuReading {
  std::string uuid;                   // "GPU-8b6b4d6a-..."
  std::optional<double> utilization;  // fraction of the time in which a kernel ran, [0, 1]
  std::optional<double> power_watts;
  std::optional<double> power_limit_watts;
  std::optional<double> memory_total_bytes;
  std::optional<double> memory_used_bytes;
};

// The NVML library. Threads: any.
class Nvml {
 public:
  static constexpr char kLibrary[] = "libnvidia-ml.so.1";

  // nullptr: the library is missing, lacks a function, or finds no driver or GPU.
  static std::unique_ptr<Nvml> Open(const std::string& library = kLibrary);
  virtual ~Nvml() = default;

  // Reads all GPUs that this process can see, including those that the server does not use.
  virtual std::vector<GpuReading> Read() const = 0;
};

}  // namespace phasor::telemetry

#endif  // PHASOR_SERVER_TELEMETRY_NVML_H_
