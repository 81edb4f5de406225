// SPDX-License-Identifier: Apache-2.0
// What the benchmark needs of a GPU beyond kernels/cuda/driver.h: a clock of the device's own,
// copies within it, and many steps queued without a gap. A dry one on the host shows that the
// benchmark works where there is no GPU; its times mean nothing.
#ifndef PHASOR_BENCH_CUDA_DEVICE_H_
#define PHASOR_BENCH_CUDA_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <variant>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/cuda/driver.h"
#include "kernels/cuda/launch_list.h"

namespace phasor::bench {

// Pointers are the device's.
struct DeviceCopy {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  int64_t bytes = 0;
};
struct DeviceFill {
  std::byte* to = nullptr;
  int64_t bytes = 0;
};
using Step = std::variant<cuda::Launch, DeviceCopy, DeviceFill>;

enum class Queueing {
  kTogether,    // one CUDA graph, timed by the device
  kSeparately,  // a call for each step, one wait at the end, timed by the host
};

// Steps that can be run again and again.
class Program {
 public:
  virtual ~Program() = default;
  // Runs all steps, returns how long that took in seconds.
  virtual double Run() = 0;
};

// Threads: one. Errors of the device end the process.
class Device {
 public:
  virtual ~Device() = default;
  // Card, compute capability and versions, e.g. for a table's headline.
  virtual std::string name() const = 0;
  virtual int64_t l2_bytes() const = 0;
  virtual std::byte* Allocate(int64_t bytes) = 0;
  virtual void Free(std::byte* memory) = 0;
  virtual void Upload(std::byte* to, const std::byte* from, int64_t bytes) = 0;
  virtual void Download(std::byte* to, const std::byte* from, int64_t bytes) = 0;
  // The steps and what they point to outlive the program.
  virtual std::unique_ptr<Program> Prepare(absl::Span<const Step> steps, Queueing queueing) = 0;
  // The device as backends see it.
  virtual std::unique_ptr<cuda::Driver> driver() = 0;
};

// FAILED_PRECONDITION: no CUDA device, and why.
absl::StatusOr<std::unique_ptr<Device>> OpenCudaDevice();
std::unique_ptr<Device> MakeDryDevice();

// Memory of a device. Owns it.
class DeviceMemory {
 public:
  DeviceMemory(Device& device, int64_t bytes)
      : device_(&device), bytes_(bytes), data_(device.Allocate(bytes)) {}
  ~DeviceMemory() { device_->Free(data_); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  std::byte* data() const { return data_; }
  int64_t size() const { return bytes_; }

 private:
  Device* device_;
  int64_t bytes_;
  std::byte* data_;
};

}  // namespace phasor::bench

#endif  // PHASOR_BENCH_CUDA_DEVICE_H_
