// SPDX-License-Identifier: Apache-2.0
// A server on a fake GPU, memory that a client exports there, and its clients. Only the fake GPU
// can access its address range of that memory, so code that mistakes it for host memory crashes.
#ifndef PHASOR_TESTS_E2E_DEVICE_SERVER_H_
#define PHASOR_TESTS_E2E_DEVICE_SERVER_H_

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/tensor/tensor_desc.h"
#include "tests/e2e/client_server.h"
#include "tests/support/device_backend.h"

namespace phasor {

class ClientDeviceTest : public ClientServerTest {
 protected:
  static constexpr int64_t kHead = 64;
  // Where the registered part begins in the exported allocation.
  static constexpr int64_t kOffset = 8192;

  void SetUp() override { StartOnDevice(); }
  void StartOnDevice() {
    ServerOptions options = Options();
    options.shared_memory = true;
    Start(options, backend_->Take());
  }

  testing::FakeDevice& device() { return backend_->device(); }
  CudaIpcAllocation Allocation(bool read_only = false) const {
    return {.handle = memory_->handle_bytes(),
            .offset_bytes = kOffset,
            .size_bytes = memory_->bytes() - kOffset,
            .device_uuid = "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f",
            .read_only = read_only};
  }
  static DeviceMemory Register(const Client& client, const CudaIpcAllocation& allocation) {
    auto memory = client.RegisterDeviceMemory(allocation);
    EXPECT_TRUE(memory.ok()) << memory.status();
    return memory.ok() ? *std::move(memory) : DeviceMemory();
  }
  // What the exporting process sees of the registered part.
  std::byte* data() const { return memory_->data() + kOffset; }
  // Floats of the registered part from byte `offset` on.
  std::vector<float> Floats(int64_t offset, size_t count) const {
    std::vector<float> floats(count);
    std::memcpy(floats.data(), data() + offset, count * sizeof(float));
    return floats;
  }
  void Put(int64_t offset, const std::vector<float>& floats) const {
    std::memcpy(data() + offset, floats.data(), floats.size() * sizeof(float));
  }
  static std::vector<float> Ramp(int64_t count) {
    std::vector<float> floats(static_cast<size_t>(count));
    for (size_t i = 0; i < floats.size(); ++i) floats[i] = 1.0F + static_cast<float>(i % 997) / 997;
    return floats;
  }
  static TensorDesc Heads(int64_t tokens, int64_t heads, std::vector<int64_t> strides = {}) {
    return {Dtype::kFloat32, {tokens, heads, kHead}, std::move(strides)};
  }

  std::unique_ptr<testing::DeviceBackend> backend_ = std::make_unique<testing::DeviceBackend>();
  const std::shared_ptr<testing::FakeExport> memory_ = device().Export(int64_t{1} << 20);
};

}  // namespace phasor

#endif  // PHASOR_TESTS_E2E_DEVICE_SERVER_H_
