// SPDX-License-Identifier: Apache-2.0
// Jobs in an upstream's arithmetic: scalar loops, which backends cut into tokens. Every product and
// sum is rounded by itself; nothing is fused. With v = sine or cosine rounded to the table's type,
//
//   Encode   out = rn(rn(embedding_scale * add_to) + v); without add_to, v rounded to the dtype
//   Rotary   y1 = rn(rn(x1 c) - rn(x2 s)), y2 = rn(rn(x2 c) + rn(x1 s)), rn to the type `math`
//
// Inverse negates the sine and takes the reciprocal amplitude; there is no delta.
// Threads: pure functions of jobs that share no output.
#ifndef PHASOR_KERNELS_REFERENCE_PARITY_H_
#define PHASOR_KERNELS_REFERENCE_PARITY_H_

#include <cstdint>

#include "kernels/backend/batch.h"

namespace phasor::reference {

// Rows [first, first + count). The job's plan has parity tables.
void EncodeParity(const EncodeJob& job, int64_t first, int64_t count);

// Tokens [first, first + count) of batch * tokens; tensors that came in pieces are in y already.
void RotateParity(const RotaryJob& job, int64_t first, int64_t count);

}  // namespace phasor::reference

#endif  // PHASOR_KERNELS_REFERENCE_PARITY_H_
