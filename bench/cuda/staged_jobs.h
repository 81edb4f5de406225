// SPDX-License-Identifier: Apache-2.0
// Jobs with tensors in device memory as launches without copies: the cost of the kernels without
// the way to the device.
#ifndef PHASOR_BENCH_CUDA_STAGED_JOBS_H_
#define PHASOR_BENCH_CUDA_STAGED_JOBS_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bench/cuda/device.h"
#include "bench/harness.h"
#include "kernels/backend/backend.h"

namespace phasor::bench {

// Keeps the jobs that it is told to run. They still borrow their tensors. Threads: one thread.
class JobRecorder final : public Backend {
 public:
  std::string_view name() const override { return "recorder"; }
  std::string target() const override { return ""; }
  int threads() const override { return 1; }
  absl::Status Run(absl::Span<const Job> jobs) override {
    jobs_.insert(jobs_.end(), jobs.begin(), jobs.end());
    return absl::OkStatus();
  }
  const std::vector<Job>& jobs() const { return jobs_; }

 private:
  std::vector<Job> jobs_;
};

// The launches of some jobs. Owns what kernels read besides tensors. Threads: one thread at a time.
class StagedJobs {
 public:
  // Dies unless the kernels support every job. The jobs are not needed afterwards.
  StagedJobs(Device& device, absl::Span<const Job> jobs);

  // One launch for each kernel that the jobs need.
  const std::vector<cuda::Launch>& launches() const { return launches_; }

 private:
  std::unique_ptr<Memory> host_;
  std::unique_ptr<DeviceMemory> memory_;
  std::vector<cuda::Launch> launches_;
};

}  // namespace phasor::bench

#endif  // PHASOR_BENCH_CUDA_STAGED_JOBS_H_
