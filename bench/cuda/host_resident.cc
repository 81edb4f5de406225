// SPDX-License-Identifier: Apache-2.0
// Times the CUDA backend on tensors in host memory, and the link's copies in both directions.
#include "bench/cuda/host_resident.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/cuda/staged_jobs.h"
#include "bench/kernels/jobs.h"
#include "kernels/backends.h"
#include "kernels/cuda/cuda_backend.h"

namespace phasor::bench {
namespace {

constexpr double kGiga = 1e9;

void Must(const absl::Status& status) {
  if (!status.ok()) Die(status.ToString());
}

template <typename T>
T Must(absl::StatusOr<T> value) {
  Must(value.status());
  return *std::move(value);
}

// Copies bytes to the device and as many back, in chunks and in both directions at once: the most
// that the link can do. Threads: one thread at a time.
class Link {
 public:
  explicit Link(std::unique_ptr<cuda::Driver> driver) : driver_(std::move(driver)) {
    for (Way* way : {&in_, &out_}) {
      way->stream = Must(driver_->CreateStream());
      way->device = Must(driver_->Allocate(kChunk));
      way->pinned = Must(driver_->AllocatePinned(kChunk));
    }
  }
  ~Link() {
    for (const Way* way : {&in_, &out_}) {
      driver_->FreePinned(way->pinned);
      driver_->Free(way->device);
      driver_->DestroyStream(way->stream);
    }
  }
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  void Copy(int64_t bytes) {
    for (int64_t done = 0; done < bytes; done += kChunk) {
      const int64_t part = std::min(kChunk, bytes - done);
      Must(driver_->CopyToDevice(in_.device, in_.pinned, part, in_.stream));
      Must(driver_->CopyToHost(out_.pinned, out_.device, part, out_.stream));
    }
    Must(driver_->Synchronize(in_.stream));
    Must(driver_->Synchronize(out_.stream));
  }

 private:
  static constexpr int64_t kChunk = int64_t{32} << 20;
  struct Way {
    cuda::Stream stream = nullptr;
    std::byte* device = nullptr;
    std::byte* pinned = nullptr;
  };
  const std::unique_ptr<cuda::Driver> driver_;
  Way in_, out_;
};

std::unique_ptr<Backend> Cpu() { return Must(MakeBackend({.name = "cpu"})); }

void CheckOnDevice(const cuda::CudaBackend& backend) {
  const cuda::CudaState state = backend.state();
  if (state.jobs_rescued > 0 || state.jobs_not_for_device > 0 || state.jobs_on_device == 0) {
    Die(absl::StrCat("the device did not run the jobs: ", state.last_error));
  }
}

void BenchLargeTensor(Device& device, Report& report, const Arguments& arguments) {
  constexpr int64_t kBytes = int64_t{256} << 20;
  const int64_t tokens = arguments.quick ? 128 : kBytes / (40 * 128 * 2);
  std::vector<int64_t> positions(static_cast<size_t>(tokens));
  std::iota(positions.begin(), positions.end(), 0);
  const RopeCase c{"rope-half-split", Dtype::kBFloat16, 32, 8, 128, positions};
  const Memory x(c.bytes()), y(c.bytes());
  FillNormal(c.dtype, x);
  cuda::CudaBackend backend(device.driver(), Cpu(), {.strict = true});
  const auto cpu = Cpu();
  Link link(device.driver());
  const RopeRun rope(c);
  rope.Run(backend, x.data(), y.data());
  CheckRope(c, x.data(), y.data(), true);

  const auto seconds =
      MedianSeconds(arguments, {{[&] { rope.Run(backend, x.data(), y.data()); }, Cache::kAny},
                                {[&] { link.Copy(c.bytes()); }, Cache::kAny},
                                {[&] { rope.Run(*cpu, x.data(), y.data()); }, Cache::kAny}});
  CheckOnDevice(backend);
  const auto rate = [&](double s) { return static_cast<double>(c.bytes()) / s / kGiga; };
  const auto row = [&](std::string baseline) {
    return Row{.name = "host_rope",
               .shape = absl::StrCat(c.bytes() >> 20, " MiB, T=", tokens, " 32q+8k x128"),
               .dtype = "BFLOAT16",
               .threads = 1,
               .cache = "DRAM",
               .unit = "GB/s",
               .baseline = std::move(baseline)};
  };
  report.Add(RateRow(row("link, both ways"), rate(seconds[0]), rate(seconds[1])));
  report.Add(RateRow(row("CPU backend"), rate(seconds[0]), rate(seconds[2])));
}

void BenchSmallRequests(Device& device, Report& report, const Arguments& arguments) {
  constexpr int kRequests = 256;
  std::vector<RopeCase> cases;
  for (int i = 0; i < kRequests; ++i) {
    cases.push_back({"rope-half-split", Dtype::kBFloat16, 32, 8, 128, {i * int64_t{509}}});
  }
  const int64_t bytes = cases[0].bytes();
  const Memory x(kRequests * bytes), y(kRequests * bytes);
  FillNormal(Dtype::kBFloat16, x);
  std::vector<std::unique_ptr<RopeRun>> runs;
  JobRecorder recorder;
  for (int i = 0; i < kRequests; ++i) {
    runs.push_back(std::make_unique<RopeRun>(cases[static_cast<size_t>(i)]));
    runs.back()->Run(recorder, x.data() + i * bytes, y.data() + i * bytes);
  }
  cuda::CudaBackend backend(device.driver(), Cpu(), {.least_bytes = 0, .strict = true});
  const auto merged = [&] { Must(backend.Run(recorder.jobs())); };
  merged();
  for (int i = 0; i < kRequests; ++i) {
    CheckRope(cases[static_cast<size_t>(i)], x.data() + i * bytes, y.data() + i * bytes, false);
  }
  const auto each = [&] {
    for (const Job& job : recorder.jobs()) Must(backend.Run({&job, 1}));
  };
  const auto seconds = MedianSeconds(arguments, {{merged, Cache::kAny}, {each, Cache::kAny}});
  CheckOnDevice(backend);
  const auto row = [](std::string name, std::string shape, std::string baseline) {
    return Row{.name = std::move(name),
               .shape = std::move(shape),
               .dtype = "BFLOAT16",
               .threads = 1,
               .cache = "warm",
               .unit = "calls/s",
               .baseline = std::move(baseline)};
  };
  report.Add(RateRow(row("host_merged", "256 x 1 token, one run", "256 runs"),
                     kRequests / seconds[0], kRequests / seconds[1]));
}

}  // namespace

void BenchHostResident(Device& device, Report& report, const Arguments& arguments) {
  BenchLargeTensor(device, report, arguments);
  BenchSmallRequests(device, report, arguments);
}

}  // namespace phasor::bench
