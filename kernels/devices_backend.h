// SPDX-License-Identifier: Apache-2.0
// A backend over several devices. A job runs on the device that has its memory. Jobs in host memory
// go to the device with the fewest bytes in progress.
#ifndef PHASOR_KERNELS_DEVICES_BACKEND_H_
#define PHASOR_KERNELS_DEVICES_BACKEND_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend/backend.h"
#include "kernels/cpu/thread_pool.h"

namespace phasor {

// Runs jobs on the backends of single devices, each of which runs on the CPU what its device does
// not. Threads: as Backend. Owns the backends, and threads that run parts of one call at once.
class DevicesBackend final : public Backend {
 public:
  // Each of `backends` has one device; there is at least one, in the order of their numbers. Jobs
  // in host memory of one call stay together up to `portion_bytes`, read and written.
  explicit DevicesBackend(std::vector<std::unique_ptr<Backend>> backends,
                          int64_t portion_bytes = int64_t{32} << 20);

  std::string_view name() const override { return lanes_[0].backend->name(); }
  std::string target() const override { return lanes_[0].backend->target(); }
  int threads() const override { return lanes_[0].backend->threads(); }
  BatchPolicy batch_policy() const override;
  // Returns the first error of RunEach.
  absl::Status Run(absl::Span<const Job> jobs) override;
  // Errors of a job are those of its device's backend, and INVALID_ARGUMENT: its tensors are on two
  // devices; nothing is changed then. Jobs in host memory go to lost devices only if all are lost.
  void RunEach(absl::Span<const Job> jobs, absl::Span<JobResult> results) override;
  DeviceList devices() override { return devices_; }

 private:
  // A device's backend, and the bytes of the jobs that it was given and has not finished.
  struct Lane {
    std::unique_ptr<Backend> backend;
    int64_t queued_bytes = 0;
  };
  // The jobs of one call for one device.
  struct Part {
    std::vector<size_t> jobs;
    int64_t bytes = 0;
  };

  // The device that has the job's memory; nullopt: all of it is host memory. INVALID_ARGUMENT: it
  // is on two devices.
  absl::StatusOr<std::optional<size_t>> LaneOf(const Job& job) const;
  bool IsOn(size_t lane, const std::byte* address) const;
  size_t ShortestQueue() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // One part for each device. The results of jobs without a part are set.
  std::vector<Part> Deal(absl::Span<const Job> jobs, absl::Span<JobResult> results);
  void RunPart(size_t lane, const Part& part, absl::Span<const Job> jobs,
               absl::Span<JobResult> results);

  std::mutex mutex_;
  std::vector<Lane> lanes_;  // `queued_bytes` are guarded by mutex_
  const DeviceList devices_;
  const int64_t portion_bytes_;
  cpu::ThreadPool helpers_;
};

// The numbers to open: `wanted`, or those of all `names` if it is empty. INVALID_ARGUMENT: a number
// is given twice, or no device has it; the message lists what there is.
absl::StatusOr<std::vector<int>> ChooseDevices(absl::Span<const int> wanted,
                                               absl::Span<const std::string> names);

// Makes the backend of one device.
using OpenDeviceBackend = absl::FunctionRef<absl::StatusOr<std::unique_ptr<Backend>>(int number)>;

// Makes a backend of the devices that ChooseDevices names. If there are several, each must pass the
// self-test. Returns the first error, but if `wanted` is empty, devices with errors are left out as
// long as one has none; `left_out`, if set, is told of each.
absl::StatusOr<std::unique_ptr<Backend>> OpenDevices(
    absl::Span<const int> wanted, absl::Span<const std::string> names, OpenDeviceBackend open,
    const std::function<void(const std::string&)>& left_out);

}  // namespace phasor

#endif  // PHASOR_KERNELS_DEVICES_BACKEND_H_
