// SPDX-License-Identifier: Apache-2.0
// Runs jobs on tensors in memory that another process exported.
#ifndef PHASOR_TESTS_KERNELS_CUDA_DEVICE_TWIN_H_
#define PHASOR_TESTS_KERNELS_CUDA_DEVICE_TWIN_H_

#include <cstring>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "kernels/backend/batch.h"
#include "kernels/cuda/arena.h"
#include "tests/support/fake_export.h"
#include "tests/support/random_jobs.h"

namespace phasor::testing {

// Copies of some of a job's tensors in device memory. Threads: one thread at a time.
class DeviceTwin {
 public:
  explicit DeviceTwin(std::shared_ptr<FakeExport> memory) : memory_(std::move(memory)) {}

  // Moves a tensor to the device with the same misalignment. Drops those moved before if there is
  // no room.
  void Move(Tensor* tensor) {
    const auto misalign =
        static_cast<int64_t>(reinterpret_cast<uintptr_t>(tensor->data()) % uint64_t{64});
    const int64_t at = cuda::AlignUp(used_, 256) + misalign;
    if (at + tensor->size_bytes() > memory_->bytes()) std::abort();
    used_ = at + tensor->size_bytes();
    moved_.push_back({tensor, at});
    std::memcpy(memory_->data() + at, tensor->data(), static_cast<size_t>(tensor->size_bytes()));
  }

  // `job` with the addresses on the device.
  Job Moved(Job job) const {
    std::visit([this](auto& j) { MovePointers(j); }, job);
    return job;
  }

  // Copies the contents of the device's memory back to the tensors that were moved there.
  void Fetch() const {
    for (const auto& [tensor, at] : moved_) {
      std::memcpy(tensor->data(), memory_->data() + at, static_cast<size_t>(tensor->size_bytes()));
    }
  }

 private:
  struct Entry {
    Tensor* tensor;
    int64_t at;
  };

  template <typename P>
  void MovePointer(P*& pointer) const {
    for (const auto& [tensor, at] : moved_) {
      if (pointer == nullptr || pointer < tensor->data() ||
          pointer >= tensor->data() + std::max<int64_t>(tensor->size_bytes(), 1)) {
        continue;
      }
      pointer = memory_->device_view() + at + (pointer - tensor->data());
      return;
    }
  }
  template <typename J>
  void MovePointers(J& job) const {
    MovePointer(job.out);
    MovePointer(job.add_to);
  }
  void MovePointers(RotaryJob& job) const {
    for (RotaryTensor& tensor : job.tensors) {
      MovePointer(tensor.x);
      MovePointer(tensor.y);
    }
  }
  void MovePointers(phasor::MoveJob& job) const {
    for (std::byte*& pool : job.pools) MovePointer(pool);
  }

  const std::shared_ptr<FakeExport> memory_;
  std::vector<Entry> moved_;
  int64_t used_ = 0;
};

}  // namespace phasor::testing

#endif  // PHASOR_TESTS_KERNELS_CUDA_DEVICE_TWIN_H_
