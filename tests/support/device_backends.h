// SPDX-License-Identifier: Apache-2.0
// A backend over several fake GPUs, for tests of backends and of the layers above them.
#ifndef PHASOR_TESTS_SUPPORT_DEVICE_BACKENDS_H_
#define PHASOR_TESTS_SUPPORT_DEVICE_BACKENDS_H_

#include <memory>
#include <utility>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/devices_backend.h"
#include "tests/support/fake_driver.h"

namespace phasor::testing {

// The CUDA backends of `count` fake GPUs and the backend over them; of one GPU, its own. Threads:
// any.
class DeviceBackends {
 public:
  explicit DeviceBackends(int count, const cuda::CudaBackendOptions& options,
                          int64_t portion_bytes = int64_t{32} << 20) {
    const std::shared_ptr<Backend> cpu = cpu::MakeCpuBackend({cpu::Target::kScalar, 1});
    std::vector<std::unique_ptr<Backend>> backends;
    for (int i = 0; i < count; ++i) {
      devices_.push_back(std::make_shared<FakeDevice>());
      auto driver = std::make_unique<FakeDriver>(devices_.back(), i);
      auto backend = std::make_unique<cuda::CudaBackend>(std::move(driver), cpu, options);
      cuda_.push_back(backend.get());
      backends.push_back(std::move(backend));
    }
    if (count == 1) {
      backend_ = std::move(backends[0]);
    } else {
      backend_ = std::make_unique<DevicesBackend>(std::move(backends), portion_bytes);
    }
    all_ = backend_.get();
  }

  size_t size() const { return devices_.size(); }
  FakeDevice& device(size_t i) { return *devices_[i]; }
  cuda::CudaBackend& cuda(size_t i) { return *cuda_[i]; }
  Backend& backend() { return *all_; }
  // For whoever is to own it, before this goes.
  std::unique_ptr<Backend> Take() { return std::move(backend_); }

  // Loses device `i`.
  void Lose(size_t i) {
    const auto memory = device(i).Export(1);
    device(i).FailWith([](const std::string& call, int64_t) {
      return call == "OpenIpc" ? absl::UnavailableError("lost") : absl::OkStatus();
    });
    cuda(i).Open(memory->handle()).status().IgnoreError();
    device(i).FailWith(nullptr);
  }

 private:
  std::vector<std::shared_ptr<FakeDevice>> devices_;
  std::vector<cuda::CudaBackend*> cuda_;
  std::unique_ptr<Backend> backend_;
  Backend* all_ = nullptr;
};

}  // namespace phasor::testing

#endif  // PHASOR_TESTS_SUPPORT_DEVICE_BACKENDS_H_
