// SPDX-License-Identifier: Apache-2.0
// Predicts how long jobs take on the device and on the host, from rates that are measured once.
// With the rates, the backend decides where a batch runs.
#ifndef PHASOR_KERNELS_CUDA_RATES_H_
#define PHASOR_KERNELS_CUDA_RATES_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend/backend.h"
#include "kernels/cuda/driver.h"

namespace phasor::cuda {

// Seconds, and seconds per byte. Zero means no cost.
struct Rates {
  double host_encode = 0;  // per byte that an encoding writes, on the host
  double host_other = 0;   // per byte that any other job writes, on the host
  double to_device = 0;    // per byte: packing and copying
  double to_host = 0;      // per byte: copying and unpacking
  double on_device = 0;    // per byte that kernels write
  double trip = 0;         // of an empty trip
};

// The bytes of the tensors that a job reads besides positions, and of those that it writes. Counts
// whole rows, also where lanes are skipped or not rotated.
struct JobBytes {
  int64_t read = 0;
  int64_t written = 0;
};
JobBytes BytesOf(const Job& job);

// Whether the device, used by nobody else, finishes jobs with tensors on the host sooner. Adds up
// the steps of the trip, although chunks overlap in truth.
bool IsDeviceFaster(const Rates& rates, absl::Span<const Job> jobs);

// Measures copies of some MiB in both directions, a rotation and an encoding on the host, and a
// rotation on the device; the best of a few runs each. Returns the driver's errors.
absl::StatusOr<Rates> MeasureRates(Driver& driver, Backend& host);

}  // namespace phasor::cuda

#endif  // PHASOR_KERNELS_CUDA_RATES_H_
