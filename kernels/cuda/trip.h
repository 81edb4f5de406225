// SPDX-License-Identifier: Apache-2.0
// What a chunk queues on a stream: a copy to the device, its kernels, and a copy back.
#ifndef PHASOR_KERNELS_CUDA_TRIP_H_
#define PHASOR_KERNELS_CUDA_TRIP_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "kernels/cuda/launch_list.h"

namespace phasor::cuda {

class Driver;
// A queue of the device. Its work runs in order.
using Stream = void*;

// A trip's buffers and launches. Threads: a plain value. Borrows the buffers.
struct Trip {
  const std::byte* host_in = nullptr;  // pinned, as is host_out
  std::byte* device_in = nullptr;
  int64_t in_bytes = 0;  // 0: nothing is sent
  std::vector<Launch> launches;
  const std::byte* device_out = nullptr;
  std::byte* host_out = nullptr;
  int64_t out_bytes = 0;  // 0: nothing comes back
};

// Queues a trip call by call. Sets `launched` to the number of kernels that were queued, also after
// an error.
absl::Status QueueTrip(const Trip& trip, Driver& driver, Stream stream, int64_t* launched);

}  // namespace phasor::cuda

#endif  // PHASOR_KERNELS_CUDA_TRIP_H_
