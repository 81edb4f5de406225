// SPDX-License-Identifier: Apache-2.0
// The CUDA backend. It packs jobs into chunks, sends them to a device and brings the results back;
// runs jobs on the device's own memory in place; and gives another backend the jobs that are too
// small for the device, not supported there, or failed there. The bytes are the same either way.
#ifndef PHASOR_KERNELS_CUDA_CUDA_BACKEND_H_
#define PHASOR_KERNELS_CUDA_CUDA_BACKEND_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "kernels/backend/backend.h"
#include "kernels/cuda/device_life.h"
#include "kernels/cuda/device_memory.h"
#include "kernels/cuda/driver.h"
#include "kernels/cuda/slots.h"

namespace phasor::cuda {

// Limits and choices of a CUDA backend.
struct CudaBackendOptions {
  // The largest trip to the device, each way. A job with larger rows goes to the other backend.
  int64_t chunk_bytes = int64_t{32} << 20;
  // Chunks in flight for all callers together. Each has four buffers of up to chunk_bytes, two of
  // them on the device.
  int slots = 4;
  // Batches that write less stay on the host: a trip to the device and back takes longer than they
  // do.
  int64_t least_bytes = int64_t{1} << 20;
  // The most memory for copies of one job's device tensors, when the other backend must compute it.
  int64_t copied_bytes = int64_t{1} << 30;
  DeviceLifeOptions life = {};
  // Whether batches in host memory go to the device. The way there and back takes longer than the
  // CPU does (docs/cuda.md), so this is for those who want the CPU idle.
  bool host_tensors = true;
  // For tests and benchmarks: what the device fails is an error, and nobody computes it in its
  // place.
  bool strict = false;
};

// Whether a batch of jobs in host memory goes to the device, and if not, why.
enum class Travel { kYes, kTooSmall, kSoonerOnHost };

// What a backend has done since it was made.
struct CudaState {
  std::string last_error;  // of the device; empty: none
  int64_t chunks = 0;      // finished on the device
  int64_t launches = 0;
  int64_t jobs_on_device = 0;       // computed wholly there
  int64_t jobs_sooner_on_host = 0;  // in host memory, and those stay there
  // Small, not supported, a row larger than a chunk, or no lanes to compute.
  int64_t jobs_not_for_device = 0;
  int64_t jobs_rescued = 0;           // failed on the device, computed on the host
  int64_t jobs_in_device_memory = 0;  // of jobs_on_device: their tensors were there already
  int64_t jobs_failed = 0;            // in device memory, and neither backend could compute them
};

// Runs jobs on a device. Threads: as Backend and DevicePort say. Owns its memory on the device.
class CudaBackend final : public Backend, public DevicePort {
 public:
  // `other` runs the jobs that the device does not run. Backends of several devices may share it.
  CudaBackend(std::unique_ptr<Driver> driver, std::shared_ptr<Backend> other,
              const CudaBackendOptions& options);
  ~CudaBackend() override;

  std::string_view name() const override { return "cuda"; }
  // The other backend's: instruction sets are those of the CPU.
  std::string target() const override { return other_->target(); }
  int threads() const override { return other_->threads(); }
  // A chunk has the cost of its trip and its launches, however small it is, so calls are batched;
  // not once the device is lost.
  BatchPolicy batch_policy() const override;
  // Returns the first error of RunEach.
  absl::Status Run(absl::Span<const Job> jobs) override;
  // A job in host memory never fails because of the device: the other backend runs it. If it
  // rotates in place and had begun, the kernels' own code finishes it on the host. A job in device
  // memory also runs on the other backend, on copies, if nothing was begun in place and the memory
  // can be read. Otherwise its error is one of
  //
  //   ABORTED      the device was lost, or failed a job in place that it had begun
  //   UNAVAILABLE  the memory could not be copied, or there is no room for copies at the moment;
  //                the job may be tried again
  //   RESOURCE_EXHAUSTED  its copies would be too large
  //
  // Moves of keys in device memory never run on copies. Their errors are ABORTED, UNAVAILABLE, and
  // UNIMPLEMENTED for moves that Supports() refuses.
  void RunEach(absl::Span<const Job> jobs, absl::Span<JobResult> results) override;
  DeviceList devices() override { return {this}; }

  int device_number() const override { return driver_->device().number; }
  std::string device_name() const override { return driver_->device().name; }
  std::string device_uuid() const override;
  absl::StatusOr<std::shared_ptr<const DeviceAllocation>> Open(const IpcHandle& handle) override {
    return memory_.Open(handle);
  }
  bool Holds(const std::byte* begin, int64_t bytes) const override {
    return memory_.Holds(begin, bytes);
  }
  absl::Status Read(const std::byte* from, int64_t bytes, std::byte* out) const override {
    return memory_.Read(from, bytes, out);
  }
  void SetCopyBudget(CopyBudget budget) override { copy_budget_ = std::move(budget); }
  DeviceState device_state() const override { return life_.state(); }
  DeviceCounts device_counts() const override;
  void Retry() override { life_.Enter(); }
  void WatchDevice(std::function<void()> changed) override { life_.Watch(std::move(changed)); }

  CudaState state() const;

 private:
  friend class BatchRun;

  // Two, so that the next batch is staged while one is on the device.
  static constexpr int kRuns = 2;

  // Whether a batch in host memory goes to the device. `written`: its bytes; -1: it has no jobs.
  Travel ShouldTravel(int64_t written) const;
  // Reserves memory for copies of a job's device tensors. RESOURCE_EXHAUSTED: more than one job may
  // have. Also the errors of the budget.
  absl::StatusOr<HostMemoryShare> TakeForCopies(int64_t bytes) const;
  // Makes a fresh context. Nobody may use the device meanwhile.
  absl::Status Revive();
  // Records an error of the device. UNAVAILABLE means that the device is lost.
  void Note(const absl::Status& error);
  void Add(const CudaState& counts);

  const std::unique_ptr<Driver> driver_;
  const std::shared_ptr<Backend> other_;
  const CudaBackendOptions options_;
  Slots slots_;
  DeviceLife life_;
  DeviceMemory memory_{driver_.get(), &life_};
  CopyBudget copy_budget_;  // may be empty
  mutable std::mutex mutex_;
  CudaState state_;
};

}  // namespace phasor::cuda

#endif  // PHASOR_KERNELS_CUDA_CUDA_BACKEND_H_
