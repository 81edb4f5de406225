// SPDX-License-Identifier: Apache-2.0
// What the benchmark needs from a GPU beyond kernels/cuda/driver.h: the device's own clock, copies
// within the device, and many steps queued without a gap. A dry device on the host shows that the
// benchmark works without a GPU; its times mean nothing.
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

// A copy within the device. Pointers are addresses on the device.
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
  kSeparately,  // one call per step and one wait at the end, timed by the host
};

// Steps that can be run repeatedly.
class Program {
 public:
  virtual ~Program() = default;
  // Runs all steps and returns the seconds that they took.
  virtual double Run() = 0;
};

// A GPU, or the host in its place. Errors of the device end the process.
// Threads: one thread at a time.
class Device {
 public:
  virtual ~Device() = default;
  // Card, compute capability and versions, for the headline of a table.
  virtual std::string name() const = 0;
  virtual int64_t l2_bytes() const = 0;
  virtual int processors() const = 0;
  virtual std::byte* Allocate(int64_t bytes) = 0;
  virtual void Free(std::byte* memory) = 0;
  virtual void Upload(std::byte* to, const std::byte* from, int64_t bytes) = 0;
  virtual void Download(std::byte* to, const std::byte* from, int64_t bytes) = 0;
  // The steps and the memory that they point to must outlive the program.
  virtual std::unique_ptr<Program> Prepare(absl::Span<const Step> steps, Queueing queueing) = 0;
  // The device as backends use it.
  virtual std::unique_ptr<cuda::Driver> driver() = 0;
};

// FAILED_PRECONDITION: no CUDA device, with the reason.
absl::StatusOr<std::unique_ptr<Device>> OpenCudaDevice();
std::unique_ptr<Device> MakeDryDevice();

// Device memory. Owns it.
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
