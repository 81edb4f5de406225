// SPDX-License-Identifier: Apache-2.0
// Tensors of a request that lie in device memory and that the backend computes on where they lie:
// those that are rotated or added to, and results but for biases. Others are copied, as shared
// memory of the host is.
#ifndef PHASOR_SERVER_OIP_DEVICE_TENSORS_H_
#define PHASOR_SERVER_OIP_DEVICE_TENSORS_H_

#include "absl/status/status.h"
#include "server/oip/prepared_infer.h"

namespace phasor::oip {

// Points the item at its tensors on the device, marks these as direct and counts their bytes as
// such. INVALID_ARGUMENT: a result overlaps another tensor there, unless it is exactly in the place
// of its own input.
absl::Status UseDeviceMemory(PreparedInfer* prepared);

}  // namespace phasor::oip

#endif  // PHASOR_SERVER_OIP_DEVICE_TENSORS_H_
