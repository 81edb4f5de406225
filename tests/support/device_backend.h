// SPDX-License-Identifier: Apache-2.0
// The CUDA backend on a fake GPU, for tests of the layers above backends.
#ifndef PHASOR_TESTS_SUPPORT_DEVICE_BACKEND_H_
#define PHASOR_TESTS_SUPPORT_DEVICE_BACKEND_H_

#include <chrono>
#include <memory>

#include "kernels/cuda/cuda_backend.h"
#include "tests/support/device_backends.h"

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
  explicit DeviceBackend(const cuda::CudaBackendOptions& options = Options()) : one_(1, options) {}

  FakeDevice& device() { return one_.device(0); }
  cuda::CudaBackend& cuda() { return one_.cuda(0); }
  // For whoever is to own it, before this goes.
  std::unique_ptr<Backend> Take() { return one_.Take(); }

  // Loses the device, which works again in a fresh context.
  void Lose() { one_.Lose(0); }

 private:
  DeviceBackends one_;
};

}  // namespace phasor::testing

#endif  // PHASOR_TESTS_SUPPORT_DEVICE_BACKEND_H_
