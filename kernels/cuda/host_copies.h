// SPDX-License-Identifier: Apache-2.0
// A job on device memory, made one on the host's: its tensors on the device are copied, run by run,
// and its results copied back.
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

// Threads: one. Borrows what the job borrows, and the driver.
class HostCopies {
 public:
  // Memory of the host that the copies of `job` take.
  static int64_t BytesFor(const Job& job, const JobRows& rows);

  // Copies what `job` reads on the device, which changes nothing there. RESOURCE_EXHAUSTED: no
  // memory; errors of the driver.
  static absl::StatusOr<HostCopies> Make(const Job& job, const JobRows& rows, Driver* driver,
                                         Stream stream);

  // The job on the copies: in place where it was, its other tensors as they were.
  const Job& job() const { return job_; }
  // Copies the results back, after it was run. On an error, any part of them may be there.
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
  // All methods below are for tensor i of `rows`.
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
