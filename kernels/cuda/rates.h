// SPDX-License-Identifier: Apache-2.0
// How long jobs take on the device and on the host, from rates that were measured once: what
// decides where a batch runs when somebody lets the backend choose.
#ifndef PHASOR_KERNELS_CUDA_RATES_H_
#define PHASOR_KERNELS_CUDA_RATES_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend/backend.h"
#include "kernels/cuda/driver.h"

namespace phasor::cuda {

// Seconds, and seconds per byte. Zero costs nothing.
struct Rates {
  double host_encode = 0;  // of what an encoding writes, on the host
  double host_other = 0;   // of what any other job writes there
  double to_device = 0;    // packed and copied
  double to_host = 0;      // copied and unpacked
  double on_device = 0;    // of what is written, by kernels
  double trip = 0;         // with nothing in it
};

// What a job reads besides positions, and what it writes, with room for what it leaves.
struct JobBytes {
  int64_t read = 0;
  int64_t written = 0;
};
JobBytes BytesOf(const Job& job);

// Whether jobs whose tensors are on the host are done sooner by the device, alone there: their trip
// counts as one after the other, though chunks overlap.
bool IsDeviceFaster(const Rates& rates, absl::Span<const Job> jobs);

// Measures: some MiB there and back, a rotation and an encoding here, a rotation there, the best of
// a few each. Errors of the driver.
absl::StatusOr<Rates> MeasureRates(Driver& driver, Backend& host);

}  // namespace phasor::cuda

#endif  // PHASOR_KERNELS_CUDA_RATES_H_
