// SPDX-License-Identifier: Apache-2.0
// Queues the copies and kernels of a trip one after another.
#include "kernels/cuda/trip.h"

#include "kernels/base/status_macros.h"
#include "kernels/cuda/driver.h"

namespace phasor::cuda {

absl::Status QueueTrip(const Trip& trip, Driver& driver, Stream stream, int64_t* launched) {
  if (trip.in_bytes > 0) {
    PHASOR_RETURN_IF_ERROR(
        driver.CopyToDevice(trip.device_in, trip.host_in, trip.in_bytes, stream));
  }
  for (const Launch& launch : trip.launches) {
    PHASOR_RETURN_IF_ERROR(driver.Run(launch, stream));
    ++*launched;
  }
  if (trip.out_bytes == 0) return absl::OkStatus();
  return driver.CopyToHost(trip.host_out, trip.device_out, trip.out_bytes, stream);
}

}  // namespace phasor::cuda
