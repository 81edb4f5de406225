// SPDX-License-Identifier: Apache-2.0
// The CUDA backend on a fake GPU, for tests of the layers above backends.
#ifndef PHASOR_TESTS_SUPPORT_DEVICE_BACKEND_H_
#define PHASOR_TESTS_SUPPORT_DEVICE_BACKEND_H_

#include <chrono>
#include <memory>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/support/fake_driver.h"

namespace phasor::testing {

// Threads: any.
class DeviceBackend {
 public:
  static cuda::CudaBackendOptions Options() {
    return {.chunk_bytes = int64_t{64} << 10,
            .slots = 2,
            .least_bytes = 0,
            .life = {.retry = true, .first_wait = std::chrono::milliseconds(0)}};
  }
  explicit DeviceBackend(const cuda::CudaBackendOptions& options = Options())
      : backend_(std::make_unique<cuda::CudaBackend>(std::make_unique<FakeDriver>(device_),
                                                     cpu::MakeCpuBackend({cpu::Target::kScalar, 1}),
                                                     options)),
        cuda_(*backend_) {}

  FakeDevice& device() { return *device_; }
  cuda::CudaBackend& cuda() { return cuda_; }
  // For whoever is to own it, before this goes.
  std::unique_ptr<Backend> Take() { return std::move(backend_); }

  // Loses the device, which works again in a fresh context.
  void Lose() {
    auto memory = device_->Export(1);
    device_->FailWith([](const std::string& call, int64_t) {
      return call == "OpenIpc" ? absl::UnavailableError("lost") : absl::OkStatus();
    });
    cuda_.Open(memory->handle()).status().IgnoreError();
    device_->FailWith(nullptr);
  }

 private:
  const std::shared_ptr<FakeDevice> device_ = std::make_shared<FakeDevice>();
  std::unique_ptr<cuda::CudaBackend> backend_;
  cuda::CudaBackend& cuda_;
};

}  // namespace phasor::testing

#endif  // PHASOR_TESTS_SUPPORT_DEVICE_BACKEND_H_
