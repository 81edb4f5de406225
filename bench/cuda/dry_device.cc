// SPDX-License-Identifier: Apache-2.0
// A device in host memory that runs the kernels' own code, for --dry.
#include <chrono>
#include <cstring>
#include <vector>

#include "bench/cuda/device.h"
#include "bench/harness.h"
#include "kernels/cuda/run_on_host.h"
#include "tests/support/fake_driver.h"

namespace phasor::bench {
namespace {

class DryProgram final : public Program {
 public:
  explicit DryProgram(absl::Span<const Step> steps) : steps_(steps.begin(), steps.end()) {}

  double Run() override {
    const auto start = std::chrono::steady_clock::now();
    for (const Step& step : steps_) RunStep(step);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

 private:
  static void RunStep(const Step& step) {
    if (const auto* launch = std::get_if<cuda::Launch>(&step)) {
      cuda::RunOnHost(launch->kernel, launch->batch);
    } else if (const auto* copy = std::get_if<DeviceCopy>(&step)) {
      std::memcpy(copy->to, copy->from, static_cast<size_t>(copy->bytes));
    } else {
      const auto& fill = std::get<DeviceFill>(step);
      std::memset(fill.to, 0, static_cast<size_t>(fill.bytes));
    }
  }

  const std::vector<Step> steps_;
};

class DryDevice final : public Device {
 public:
  std::string name() const override { return "no device, kernels on the host"; }
  int64_t l2_bytes() const override { return int64_t{64} << 10; }
  int processors() const override { return 1; }
  std::byte* Allocate(int64_t bytes) override {
    auto* const memory = static_cast<std::byte*>(
        std::aligned_alloc(256, static_cast<size_t>(cuda::AlignUp(bytes + 1, 256))));
    if (memory == nullptr) Die("no memory");
    return memory;
  }
  void Free(std::byte* memory) override { std::free(memory); }
  void Upload(std::byte* to, const std::byte* from, int64_t bytes) override {
    std::memcpy(to, from, static_cast<size_t>(bytes));
  }
  void Download(std::byte* to, const std::byte* from, int64_t bytes) override {
    std::memcpy(to, from, static_cast<size_t>(bytes));
  }
  std::unique_ptr<Program> Prepare(absl::Span<const Step> steps, Queueing) override {
    return std::make_unique<DryProgram>(steps);
  }
  std::unique_ptr<cuda::Driver> driver() override {
    return std::make_unique<testing::FakeDriver>(std::make_shared<testing::FakeDevice>());
  }
};

}  // namespace

std::unique_ptr<Device> MakeDryDevice() { return std::make_unique<DryDevice>(); }

}  // namespace phasor::bench
