// SPDX-License-Identifier: Apache-2.0
// Jobs in an upstream's arithmetic, as scalar loops over tokens; backends split them by tokens.
// Every product and sum is rounded on its own; nothing is fused. With v = sine or cosine rounded to
// the table's type:
//
//   Encode   out = rn(rn(embedding_scale * add_to) + v); without add_to, v rounded to the dtype
//   Rotary   y1 = rn(rn(x1 c) - rn(x2 s)), y2 = rn(rn(x2 c) + rn(x1 s)), rn to the type `math`
//
// Inverse negates the sine and takes the reciprocal amplitude. There is no delta.
// Threads: pure functions of jobs that share no output.
#ifndef PHASOR_KERNELS_REFERENCE_PARITY_H_
#define PHASOR_KERNELS_REFERENCE_PARITY_H_

#include <cstdint>

#include "kernels/backend/batch.h"

namespace phasor::reference {

// Computes rows [first, first + count). The job's plan must have parity tables.
void EncodeParity(const EncodeJob& job, int64_t first, int64_t count);

// Rotates tokens [first, first + count) of batch * tokens. Tensors that arrived in pieces must
// already be in y.
void RotateParity(const RotaryJob& job, int64_t first, int64_t count);

}  // namespace phasor::reference

#endif  // PHASOR_KERNELS_REFERENCE_PARITY_H_
