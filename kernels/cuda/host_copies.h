// SPDX-License-Identifier: Apache-2.0
// Turns a job on device memory into one on host memory: copies its tensors from the device run by
// run, and later copies the results back.
#ifndef PHASOR_KERNELS_CUDA_HOST_COPIES_H_
#define PHASOR_KERNELS_CUDA_HOST_COPIES_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend/batch.h"
#include "kernels/cuda/driver.h"
#include "kernels/cuda/job_rows.h"

namespace phasor::cuda {

// The host copies of one job. Borrows what the job borrows, and the driver.
// Threads: one thread at a time.
class HostCopies {
 public:
  // The host memory that the copies of `job` take.
  static int64_t BytesFor(const Job& job, const JobRows& rows);

  // Copies the device tensors that `job` reads; changes nothing on the device.
  // RESOURCE_EXHAUSTED: out of memory. Also the errors of the driver.
  static absl::StatusOr<HostCopies> Make(const Job& job, const JobRows& rows, Driver* driver,
                                         Stream stream);

  // The job on the copies. It is in place if it was before; its other tensors are unchanged.
  const Job& job() const { return job_; }
  // Copies the results back after the job has run. After an error, any part of them may be written.
  absl::Status WriteBack();

 private:
  struct FreeMemory {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  struct Output {
    HostRows rows;
    const std::byte* copy;
  };

  HostCopies(const Job& job, Driver* driver, Stream stream)
      : job_(job), driver_(*driver), stream_(stream) {}
  // The methods below handle tensor i of `rows`.
  absl::Status CopyTensor(const JobRows& rows, size_t i);
  absl::StatusOr<std::byte*> NewCopy(const HostRows& rows);
  void Replace(const JobRows& rows, size_t i, std::byte* in, std::byte* out);

  Job job_;
  Driver& driver_;
  Stream stream_;
  Slice all_;
  std::vector<std::unique_ptr<std::byte, FreeMemory>> memory_;
  std::vector<Output> outputs_;
};

}  // namespace phasor::cuda

#endif  // PHASOR_KERNELS_CUDA_HOST_COPIES_H_
