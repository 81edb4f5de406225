// SPDX-License-Identifier: Apache-2.0
// Division by a number that the host knows before a launch, as a multiplication and a shift. A GPU
// has no integer division; the compiler would call a function or write a long sequence.
// Threads: pure functions.
#ifndef PHASOR_KERNELS_CUDA_DIVISOR_H_
#define PHASOR_KERNELS_CUDA_DIVISOR_H_

#include <bit>
#include <cstdint>

#include "kernels/base/host_device.h"
#include "kernels/math/phase.h"

namespace phasor::cuda {

// magic = floor(2^(63 + k) / value) + 1 with 2^(k - 1) < value <= 2^k, shift = k - 1. Exact for
// numbers below 2^63 (Granlund and Montgomery, Division by Invariant Integers, theorem 4.2).
struct Divisor {
  int64_t value = 1;
  uint64_t magic = 0;  // 0: value is 1
  int32_t shift = 0;
};

// Needs 0 < value.
inline Divisor MakeDivisor(int64_t value) {
  if (value == 1) return {};
  const int k = std::bit_width(static_cast<uint64_t>(value - 1));
  const unsigned __int128 power = static_cast<unsigned __int128>(1) << (63 + k);
  const auto magic = static_cast<uint64_t>(power / static_cast<uint64_t>(value)) + 1;
  return {value, magic, k - 1};
}

// floor(n / d) for n >= 0.
PHASOR_HD int64_t Quotient(int64_t n, const Divisor& d) {
  if (d.magic == 0) return n;
  return static_cast<int64_t>(MulHigh(d.magic, static_cast<uint64_t>(n)) >> d.shift);
}

// The same for numbers below 2^31, without a choice: magic = floor(2^shift / value) + 1, and
// shift = 31 + k.
struct SmallDivisor {
  int32_t value = 1;
  uint32_t magic = 0x80000001;
  int32_t shift = 31;
};

// Needs 0 < value.
inline SmallDivisor MakeSmallDivisor(int32_t value) {
  const int shift = 31 + std::bit_width(static_cast<uint32_t>(value - 1));
  const auto magic = ((uint64_t{1} << shift) / static_cast<uint64_t>(value)) + 1;
  return {value, static_cast<uint32_t>(magic), shift};
}

PHASOR_HD int32_t Quotient(int32_t n, const SmallDivisor& d) {
  return static_cast<int32_t>(uint64_t{d.magic} * static_cast<uint32_t>(n) >> d.shift);
}

}  // namespace phasor::cuda

#endif  // PHASOR_KERNELS_CUDA_DIVISOR_H_
