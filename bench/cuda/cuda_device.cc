// SPDX-License-Identifier: Apache-2.0
// The benchmark's device on the CUDA runtime: graphs, and events for the device's own clock.
#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/cuda/device.h"
#include "bench/harness.h"
#include "kernels/base/text.h"
#include "kernels/cuda/cuda_driver.h"
#include "kernels/cuda/launch.h"

namespace phasor::bench {
namespace {

void Check(cudaError_t error, std::string_view what) {
  if (error == cudaSuccess) return;
  Die(StrCat("cuda: ", what, ": ", cudaGetErrorName(error), ", ", cudaGetErrorString(error)));
}

void Queue(const Step& step, cudaStream_t stream) {
  if (const auto* launch = std::get_if<cuda::Launch>(&step)) {
    Check(static_cast<cudaError_t>(cuda::LaunchKernel(launch->kernel, launch->batch, stream)),
          "launch");
  } else if (const auto* copy = std::get_if<DeviceCopy>(&step)) {
    Check(cudaMemcpyAsync(copy->to, copy->from, static_cast<size_t>(copy->bytes),
                          cudaMemcpyDeviceToDevice, stream),
          "copy within the device");
  } else {
    const auto& fill = std::get<DeviceFill>(step);
    Check(cudaMemsetAsync(fill.to, 0, static_cast<size_t>(fill.bytes), stream), "fill");
  }
}

class TogetherProgram final : public Program {
 public:
  TogetherProgram(absl::Span<const Step> steps, cudaStream_t stream) : stream_(stream) {
    Check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), "capture");
    for (const Step& step : steps) Queue(step, stream);
    Check(cudaStreamEndCapture(stream, &graph_), "end capture");
    Check(cudaGraphInstantiate(&executable_, graph_, 0), "instantiate a graph");
    Check(cudaEventCreate(&begin_), "create an event");
    Check(cudaEventCreate(&end_), "create an event");
  }
  ~TogetherProgram() override {
    cudaEventDestroy(end_);
    cudaEventDestroy(begin_);
    cudaGraphExecDestroy(executable_);
    cudaGraphDestroy(graph_);
  }

  double Run() override {
    Check(cudaEventRecord(begin_, stream_), "record");
    Check(cudaGraphLaunch(executable_, stream_), "launch a graph");
    Check(cudaEventRecord(end_, stream_), "record");
    Check(cudaEventSynchronize(end_), "wait");
    float milliseconds = 0;
    Check(cudaEventElapsedTime(&milliseconds, begin_, end_), "read the clock");
    return milliseconds / 1e3;
  }

 private:
  cudaStream_t stream_;
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

class SeparateProgram final : public Program {
 public:
  SeparateProgram(absl::Span<const Step> steps, cudaStream_t stream)
      : steps_(steps.begin(), steps.end()), stream_(stream) {}

  double Run() override {
    const auto start = std::chrono::steady_clock::now();
    for (const Step& step : steps_) Queue(step, stream_);
    Check(cudaStreamSynchronize(stream_), "wait");
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

 private:
  const std::vector<Step> steps_;
  cudaStream_t stream_;
};

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(std::unique_ptr<cuda::Driver> opened) : opened_(std::move(opened)) {
    Check(cudaSetDevice(0), "select the device");
    Check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "create a stream");
    Check(cudaDeviceGetAttribute(&l2_bytes_, cudaDevAttrL2CacheSize, 0), "read its cache");
    Check(cudaDriverGetVersion(&driver_version_), "read the driver's version");
  }
  ~CudaDevice() override { cudaStreamDestroy(stream_); }

  std::string name() const override {
    const cuda::DeviceInfo& info = opened_->device();
    return StrCat(info.name, ", sm_", info.major, info.minor, ", driver for CUDA ",
                  driver_version_ / 1000, ".", driver_version_ % 1000 / 10);
  }
  int64_t l2_bytes() const override { return l2_bytes_; }
  int processors() const override { return opened_->device().processors; }
  std::byte* Allocate(int64_t bytes) override {
    void* memory = nullptr;
    Check(cudaMalloc(&memory, static_cast<size_t>(bytes + 1)),
          StrCat("allocate ", bytes, " bytes"));
    return static_cast<std::byte*>(memory);
  }
  void Free(std::byte* memory) override { Check(cudaFree(memory), "free"); }
  void Upload(std::byte* to, const std::byte* from, int64_t bytes) override {
    Check(cudaMemcpy(to, from, static_cast<size_t>(bytes), cudaMemcpyHostToDevice), "upload");
    Check(cudaDeviceSynchronize(), "wait");  // our stream does not wait for other streams
  }
  void Download(std::byte* to, const std::byte* from, int64_t bytes) override {
    Check(cudaDeviceSynchronize(), "wait");
    Check(cudaMemcpy(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost), "download");
  }
  std::unique_ptr<Program> Prepare(absl::Span<const Step> steps, Queueing queueing) override {
    if (queueing == Queueing::kTogether) return std::make_unique<TogetherProgram>(steps, stream_);
    return std::make_unique<SeparateProgram>(steps, stream_);
  }
  std::unique_ptr<cuda::Driver> driver() override {
    auto driver = cuda::OpenDevice();
    if (!driver.ok()) Die(driver.status().ToString());
    return *std::move(driver);
  }

 private:
  const std::unique_ptr<cuda::Driver> opened_;
  cudaStream_t stream_ = nullptr;
  int l2_bytes_ = 0;
  int driver_version_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> OpenCudaDevice() {
  // Otherwise a kernel's code is loaded at its first launch, which may be during a graph's capture.
  setenv("CUDA_MODULE_LOADING", "EAGER", /*overwrite=*/0);
  auto driver = cuda::OpenDevice();
  if (!driver.ok()) return driver.status();
  return std::make_unique<CudaDevice>(*std::move(driver));
}

}  // namespace phasor::bench
