// SPDX-License-Identifier: Apache-2.0
// Sine and cosine of a phase in the fewest instructions of a GPU. Same bits as the definition,
// kernels/math/sincos.h. Threads: pure functions.
#ifndef PHASOR_KERNELS_CUDA_TRIG_H_
#define PHASOR_KERNELS_CUDA_TRIG_H_

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "kernels/base/host_device.h"
#include "kernels/math/convert.h"
#include "kernels/math/sincos.h"

namespace phasor::cuda {

PHASOR_HD bool HasBit30(uint32_t word) {
  uint32_t bit = word & 0x40000000u;
#ifdef __CUDA_ARCH__
  asm("and.b32 %0, %1, 0x40000000;" : "=r"(bit) : "r"(word));  // or nvcc shifts, too
#endif
  return bit != 0;
}

// SinCos32(p - kSinCosOffset). Does the same roundings as the definition with fewer instructions: g
// is h / 2 and w is z / 4, so the coefficients of w carry powers of 4. The middle bits are those of
// a subnormal number, which a multiply-add takes at full speed, so they need no exponent.
PHASOR_HD SinCos<float> OffsetSinCos32(uint64_t p) {
  using namespace sincos32;
  const auto high = static_cast<uint32_t>(p >> 32);
  const auto low = static_cast<uint32_t>(p);
  const auto l = static_cast<float>(static_cast<int32_t>(low ^ 0x80000000u));
  const auto head = static_cast<float>(static_cast<int32_t>(high & kHeadMask));
  const float g = std::fma(head, kScale / 2, kHeadBias / 2);
  const float d = std::fma(FloatFromBits(high & kMiddleMask), 0x1p117f, -32 * kScale);
  const float e = std::fma(l, kTailScale, d);
  const float w = std::fma(g, g, g * e);
  const float x = std::fma(g, 2.0f, e);
  const float u = std::fma(w, std::fma(w, std::fma(w, 64 * kS3, 16 * kS2), 4 * kS1), kS0);
  const float sin = std::fma(g, 2 * kA, std::fma(d, kA, std::fma(l, kTailA, x * u)));
  const float v = std::fma(w, std::fma(w, std::fma(w, 256 * kC4, 64 * kC3), 16 * kC2), 4 * kC1);
  const float cos = std::fma(w, v, 1.0f);
  // Bit 31 negates both. Then bit 30 turns (sin, cos) into (cos, -sin): a choice negates for free.
  const uint32_t sign = high & 0x80000000u;
  const float s = FloatFromBits(BitsFromFloat(sin) ^ sign);
  const float c = FloatFromBits(BitsFromFloat(cos) ^ sign);
  const bool odd = HasBit30(high);
  return {odd ? c : s, odd ? -s : c};
}

// Element::Trig(phase), times the amplitude.
template <typename Element>
PHASOR_HD SinCos<typename Element::Math> ScaledTrig(uint64_t phase, double amplitude) {
  using T = typename Element::Math;
  SinCos<T> v;
  if constexpr (std::is_same_v<T, float>) {
    v = OffsetSinCos32(phase + kSinCosOffset);
  } else {
    v = Element::Trig(phase);
  }
  const T a = static_cast<T>(amplitude);
  if (a != T{1}) v = {a * v.sin, a * v.cos};
  return v;
}

}  // namespace phasor::cuda

#endif  // PHASOR_KERNELS_CUDA_TRIG_H_
