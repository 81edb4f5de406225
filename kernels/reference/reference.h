// SPDX-License-Identifier: Apache-2.0
// The ops in plain scalar code. This is the definition that every backend must match byte for byte,
// and what runs on machines without a supported SIMD target.
#ifndef PHASOR_KERNELS_REFERENCE_REFERENCE_H_
#define PHASOR_KERNELS_REFERENCE_REFERENCE_H_

#include "kernels/ops/bias.h"
#include "kernels/ops/encode.h"
#include "kernels/ops/key_rows.h"
#include "kernels/ops/lookup.h"
#include "kernels/ops/rotary.h"

namespace phasor::reference {

void Bias(const BiasArgs& args);
void Encode(const EncodeArgs& args);
void DecodeKeys(const DecodeKeysArgs& args);
void EncodeKeys(const EncodeKeysArgs& args);
void Lookup(const LookupArgs& args);
void Rotary(const RotaryArgs& args);

}  // namespace phasor::reference

#endif  // PHASOR_KERNELS_REFERENCE_REFERENCE_H_
