// SPDX-License-Identifier: Apache-2.0
// Asks NVML on a thread of its own: a driver that hangs must hold up neither a scrape nor the end
// of the process.
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
  std::vector<GpuReading> gpus;          // none: there is no GPU, or none has been read yet
  std::chrono::duration<double> age{0};  // since they were read
};

// Threads: any, and one of its own. Owns what `open` gives.
class GpuReader {
 public:
  using Open = std::function<std::unique_ptr<Nvml>()>;

  // Opens and reads on its thread, which others wait for no longer than `patience`.
  explicit GpuReader(
      Open open = [] { return Nvml::Open(); },
      std::chrono::milliseconds patience = std::chrono::milliseconds(500));
  // Leaves the thread to itself when it does not end in time; what it uses is its own.
  ~GpuReader();
  GpuReader(const GpuReader&) = delete;
  GpuReader& operator=(const GpuReader&) = delete;

  // Those of now; those of before when the driver does not answer, at once while it still owes an
  // earlier answer.
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
