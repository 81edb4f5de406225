// SPDX-License-Identifier: Apache-2.0
// Which two lanes of a head form a pair.
#ifndef PHASOR_KERNELS_OPS_PAIRING_H_
#define PHASOR_KERNELS_OPS_PAIRING_H_

#include <cstdint>

namespace phasor {

// Pair j of n: lanes j and j + n, or lanes 2j and 2j + 1.
enum class Pairing : uint8_t { kHalfSplit, kInterleaved };

}  // namespace phasor

#endif  // PHASOR_KERNELS_OPS_PAIRING_H_
