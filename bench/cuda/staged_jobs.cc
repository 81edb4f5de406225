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
  for (const Job& job : jobs) {
    if (!cuda::Supports(job)) Die("the kernels do not support a job of the benchmark");
    testing::AddWhereTheyLie(job, kAllRows, counted, count);
  }
  counted.Finish(count);
  const Memory host(std::max<int64_t>(count.used(), 1));
  memory_ = std::make_unique<DeviceMemory>(device, host.size());
  cuda::Arena arena(host.data(), memory_->data(), host.size());
  cuda::LaunchList list;
  for (const Job& job : jobs) testing::AddWhereTheyLie(job, kAllRows, list, arena);
  launches_ = list.Finish(arena);
  device.Upload(memory_->data(), host.data(), host.size());
}

}  // namespace phasor::bench
