// SPDX-License-Identifier: Apache-2.0
// The CUDA backend: packs jobs into chunks, sends them to a device and brings the results back,
// runs jobs on the device's own memory where it lies, and gives to another backend whatever the
// device cannot or could not do. Same bytes either way.
#ifndef PHASOR_KERNELS_CUDA_CUDA_BACKEND_H_
#define PHASOR_KERNELS_CUDA_CUDA_BACKEND_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "kernels/backend/backend.h"
#include "kernels/cuda/device_life.h"
#include "kernels/cuda/device_memory.h"
#include "kernels/cuda/driver.h"
#include "kernels/cuda/rates.h"
#include "kernels/cuda/slots.h"

namespace phasor::cuda {

struct CudaBackendOptions {
  // Largest trip to the device, each way. Rows that do not fit are for the other backend.
  int64_t chunk_bytes = int64_t{32} << 20;
  // Chunks in flight, of all callers together: four buffers of up to chunk_bytes each, two of them
  // of the device.
  int slots = 4;
  // Batches that write less stay here: the way to a device and back takes longer than they do.
  int64_t least_bytes = int64_t{1} << 20;
  // Most that one job's tensors on the device may take when the other backend must compute it.
  int64_t copied_bytes = int64_t{1} << 30;
  DeviceLifeOptions life = {};
  // Trips of up to this much each way are queued as one graph, see AreGraphsSooner. 0: none.
  int64_t graph_bytes = 0;
  // With these, a batch in the host's memory runs where it is done sooner; else on the device.
  std::optional<Rates> rates = {};
};

// Whether jobs in the host's memory go to the device.
enum class Travel { kYes, kTooSmall, kSoonerOnHost };

// What a backend has done since it was made.
struct CudaState {
  std::string last_error;  // of the device, empty: none
  int64_t chunks = 0;      // finished on the device
  int64_t launches = 0;
  int64_t graphs = 0;               // chunks that went as one
  int64_t jobs_on_device = 0;       // wholly
  int64_t jobs_sooner_on_host = 0;  // by the rates
  // Small, not supported, larger than a chunk by the row, or without lanes to compute.
  int64_t jobs_not_for_device = 0;
  int64_t jobs_rescued = 0;           // that the device failed, and the other backend did
  int64_t jobs_in_device_memory = 0;  // of those wholly on the device: packed nothing
  int64_t jobs_failed = 0;            // on device memory: nobody could do them
};

// Threads: as Backend says. Owns its memory on the device.
class CudaBackend final : public Backend, public DevicePort {
 public:
  // `other` runs what the device does not.
  CudaBackend(std::unique_ptr<Driver> driver, std::unique_ptr<Backend> other,
              const CudaBackendOptions& options);
  ~CudaBackend() override;

  std::string_view name() const override { return "cuda"; }
  // Of the backend that stands in: instruction sets are the CPU's.
  std::string target() const override { return other_->target(); }
  int threads() const override { return other_->threads(); }
  // A chunk costs its trip and its launches, however little is in it. None once the device is lost.
  BatchPolicy batch_policy() const override;
  // The first error of RunEach.
  absl::Status Run(absl::Span<const Job> jobs) override;
  // A job in the host's memory takes no error from the device: it runs elsewhere. One that is in
  // place and was begun is finished here, by the kernels' own code. Jobs on device memory, too, run
  // elsewhere, on copies, when nothing was begun in place and the memory can be read, else
  //   ABORTED      the device was lost, or failed a job in place that it had begun
  //   UNAVAILABLE  the memory could not be copied, or there is no room for copies at the moment;
  //                the job may be tried again
  //   RESOURCE_EXHAUSTED  its copies would be too large
  void RunEach(absl::Span<const Job> jobs, absl::Span<JobResult> results) override;
  DevicePort* device_port() override { return this; }

  std::string device_name() const override { return driver_->device().name; }
  std::string device_uuid() const override;
  absl::StatusOr<std::shared_ptr<const DeviceAllocation>> Open(const IpcHandle& handle) override {
    return memory_.Open(handle);
  }
  void SetCopyBudget(CopyBudget budget) override { copy_budget_ = std::move(budget); }
  DeviceState device_state() const override { return life_.state(); }
  void Retry() override { life_.Enter(); }
  void WatchDevice(std::function<void()> changed) override { life_.Watch(std::move(changed)); }

  std::optional<DeviceCounts> device_counts() const override;
  CudaState state() const;

 private:
  friend class BatchRun;

  // While one batch is on the device, the next is staged.
  static constexpr int kRuns = 2;

  // Whether a batch in the host's memory is for the device.
  Travel ShouldTravel(absl::Span<const Job> jobs) const;
  // Whether a trip is for a graph.
  bool GoesAsGraph(const Trip& trip) const;
  // Room for copies of a job's tensors on the device. RESOURCE_EXHAUSTED: more than one job may
  // have; errors of the budget.
  absl::StatusOr<HostMemoryShare> TakeForCopies(int64_t bytes) const;
  // Makes a fresh context. Nobody uses the device.
  absl::Status Revive();
  // Remembers an error; UNAVAILABLE: the device is lost.
  void Note(const absl::Status& error);
  void Add(const CudaState& counts);

  const std::unique_ptr<Driver> driver_;
  const std::unique_ptr<Backend> other_;
  const CudaBackendOptions options_;
  const bool gathers_;  // some batch of a chunk's size is for the device
  Slots slots_;
  DeviceLife life_;
  DeviceMemory memory_{driver_.get(), &life_};
  CopyBudget copy_budget_;  // or none
  mutable std::mutex mutex_;
  CudaState state_;
};

}  // namespace phasor::cuda

#endif  // PHASOR_KERNELS_CUDA_CUDA_BACKEND_H_
