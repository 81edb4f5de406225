// SPDX-License-Identifier: Apache-2.0
// Converts the layers of a model between the wire and values. Threads: pure functions.
#ifndef PHASOR_PROTO_CONVERT_MODEL_H_
#define PHASOR_PROTO_CONVERT_MODEL_H_

#include "absl/status/statusor.h"
#include "kernels/plan/model_details.h"
#include "phasor/v1/resolve.pb.h"

namespace phasor {

v1::ResolveModelResponse ToWire(const ModelDetails& details);

// INVALID_ARGUMENT: a spec with an unknown enum value; a layer whose spec is not listed.
absl::StatusOr<ModelDetails> ModelDetailsFromWire(const v1::ResolveModelResponse& wire);

}  // namespace phasor

#endif  // PHASOR_PROTO_CONVERT_MODEL_H_
