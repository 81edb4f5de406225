// SPDX-License-Identifier: Apache-2.0
// What the driver of NVIDIA's GPUs tells of them through its library NVML, where that is installed.
// No hardware has confirmed it: the library's interface is taken from its documentation.
#ifndef PHASOR_SERVER_TELEMETRY_NVML_H_
#define PHASOR_SERVER_TELEMETRY_NVML_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace phasor::telemetry {

// Of one GPU, now. What the driver does not tell is nothing.
struct GpuReading {
  std::string uuid;                   // "GPU-8b6b4d6a-..."
  std::optional<double> utilization;  // part of the time that a kernel ran, [0, 1]
  std::optional<double> power_watts;
  std::optional<double> power_limit_watts;
  std::optional<double> memory_total_bytes;
  std::optional<double> memory_used_bytes;
};

// Threads: any.
class Nvml {
 public:
  static constexpr char kLibrary[] = "libnvidia-ml.so.1";

  // nullptr: there is no such library, it lacks a function, or it finds no driver or no GPU.
  static std::unique_ptr<Nvml> Open(const std::string& library = kLibrary);
  virtual ~Nvml() = default;

  // All GPUs that this process may see, whether the server computes on them or not.
  virtual std::vector<GpuReading> Read() const = 0;
};

}  // namespace phasor::telemetry

#endif  // PHASOR_SERVER_TELEMETRY_NVML_H_
