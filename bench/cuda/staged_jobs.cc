// SPDX-License-Identifier: Apache-2.0
// Stages jobs as chunks on a device and uploads what their kernels read.
#include "bench/cuda/staged_jobs.h"

#include <algorithm>

#include "bench/harness.h"
#include "tests/support/host_grid.h"

namespace phasor::bench {
namespace {

constexpr int64_t kAllRows = int64_t{1} << 40;

}  // namespace

StagedJobs::StagedJobs(Device& device, absl::Span<const Job> jobs) {
  cuda::Arena count;
  cuda::LaunchList counted;
  const int processors = cuda::ShareOf(device.processors(), jobs.size());
  for (const Job& job : jobs) {
    if (!cuda::Supports(job)) Die("the kernels do not support a job of the benchmark");
    testing::AddWhereTheyLie(job, kAllRows, counted, count, processors);
  }
  counted.Finish(count, nullptr);
  host_ = std::make_unique<Memory>(std::max<int64_t>(count.used(), 1));
  memory_ = std::make_unique<DeviceMemory>(device, host_->size());
  cuda::Arena arena(host_->data(), host_->size());
  cuda::LaunchList list;
  for (const Job& job : jobs) {
    testing::AddWhereTheyLie(job, kAllRows, list, arena, processors);
  }
  launches_ = list.Finish(arena, memory_->data());
  device.Upload(memory_->data(), host_->data(), host_->size());
}

}  // namespace phasor::bench
