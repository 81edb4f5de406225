// SPDX-License-Identifier: Apache-2.0
// Reads NVML on its own thread, so that a driver that hangs delays neither a scrape nor the end of
// the process.
#ifndef PHASOR_SERVER_TELEMETRY_GPU_READER_H_
#define PHASOR_SERVER_TELEMETRY_GPU_READER_H_

#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "server/telemetry/nvml.h"

namespace phasor::telemetry {

struct GpuReadings {
  std::vector<GpuReading> gpus;          // empty: no GPU, or not yet read
  std::chrono::duration<double> age{0};  // time since they were read
};

// Reads all GPUs. Owns the object from `open`. Threads: any, and one of its own.
class GpuReader {
 public:
  using Open = std::function<std::unique_ptr<Nvml>()>;

  // Opens and reads on its thread. Callers wait for the thread for at most `patience`.
  explicit GpuReader(
      Open open = [] { return Nvml::Open(); },
      std::chrono::milliseconds patience = std::chrono::milliseconds(500));
  // If the thread does not end in time, leaves it running; everything it uses is its own.
  ~GpuReader();
  GpuReader(const GpuReader&) = delete;
  GpuReader& operator=(const GpuReader&) = delete;

  // The current readings. The previous ones if the driver does not answer in time, and at once if
  // it has not yet answered an earlier call.
  GpuReadings Read();

 private:
  struct State;
  static void Work(const std::shared_ptr<State>& state, const Open& open);

  const std::chrono::milliseconds patience_;
  const std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace phasor::telemetry

#endif  // PHASOR_SERVER_TELEMETRY_GPU_READER_H_
