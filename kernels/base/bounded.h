// SPDX-License-Identifier: Apache-2.0
// Arithmetic on sizes that a client gives, which may be anything. Threads: pure functions.
#ifndef PHASOR_KERNELS_BASE_BOUNDED_H_
#define PHASOR_KERNELS_BASE_BOUNDED_H_

#include <algorithm>
#include <cstdint>

namespace phasor {

// More bytes than any memory has, so that whatever reaches it is refused. Three fit into 64 bits.
inline constexpr int64_t kUnbounded = int64_t{1} << 61;

// a * b or a + b, but at most kUnbounded. Neither may be negative.
constexpr int64_t BoundedProduct(int64_t a, int64_t b) {
  return b != 0 && a > kUnbounded / b ? kUnbounded : a * b;
}
constexpr int64_t BoundedSum(int64_t a, int64_t b) {
  return std::min(std::min(a, kUnbounded) + std::min(b, kUnbounded), kUnbounded);
}

}  // namespace phasor

#endif  // PHASOR_KERNELS_BASE_BOUNDED_H_
