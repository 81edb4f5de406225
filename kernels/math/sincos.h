// SPDX-License-Identifier: Apache-2.0
// Sine and cosine of a phase. Every backend computes exactly these operations in this order and so
// returns the same bits; this scalar form is the definition. Error: docs/numerics.md.
//
// f32: an offset is added to the phase so that all three roundings become bit fields. The phase
// then splits into a quadrant, a 24-bit head h, a 6-bit middle d and a signed 32-bit tail l. The
// remainder h + d + l and its parts are in turns. All parts are exact in f32 except l, which is
// rounded to 24 bits (at most 2^-26 of d's unit). With e = d + l, x = rn(h + e),
// z = rn(h*h + 2*h*e) and A = rn(2*pi):
//   sin = h*A + (d*A + (l*A + x*u))
//   cos = 1 + z*(...)
// Coefficients: fpminimax on |x| <= 1/8 turn (bench/sincos_coefficients.sollya).
//
// Threads: pure functions.
#ifndef PHASOR_KERNELS_MATH_SINCOS_H_
#define PHASOR_KERNELS_MATH_SINCOS_H_

#include <cmath>
#include <cstdint>

#include "kernels/base/host_device.h"
#include "kernels/math/convert.h"

namespace phasor {

// Added to a phase before its bits are split: half a quadrant (2^61), half of the head's unit
// (2^37) and half of the tail's range (2^31).
inline constexpr uint64_t kSinCosOffset =
    (uint64_t{1} << 61) + (uint64_t{1} << 37) + (uint64_t{1} << 31);

namespace sincos32 {
inline constexpr uint32_t kHeadMask = 0x3FFFFFC0;        // 24 bits of the high word
inline constexpr uint32_t kMiddleMask = 0x3F;            // 6 bits below them
inline constexpr uint32_t kMiddleExponent = 0x4B000000;  // bits of 2^23: (m | this) is 2^23 + m
inline constexpr float kScale = 0x1p-32f;                // high word to turns
inline constexpr float kHeadBias = -0x1p-3f;             // -2^29 units
inline constexpr float kMiddleBias = -(0x1p23f + 32.0f) * 0x1p-32f;
inline constexpr float kA = 0x1.921fb6p+2f;       // rn(2 pi)
inline constexpr float kTailScale = 0x1p-64f;     // tail to turns
inline constexpr float kTailA = 0x1.921fb6p-62f;  // kA * 2^-64
inline constexpr float kS0 = -0x1.9f4bbcp-23f;    // 2 pi - kA and the following coefficients
inline constexpr float kS1 = -0x1.4abbbap5f;
inline constexpr float kS2 = 0x1.465ee4p6f;
inline constexpr float kS3 = -0x1.2da064p6f;
inline constexpr float kC1 = -0x1.3bd3ccp4f;
inline constexpr float kC2 = 0x1.03c1b6p6f;
inline constexpr float kC3 = -0x1.55b684p6f;
inline constexpr float kC4 = 0x1.d61e28p5f;
}  // namespace sincos32

namespace sincos64 {
inline constexpr double kScale = 0x1p-64;
inline constexpr double kA = 0x1.921fb54442d18p+2;  // rn(2 pi)
inline constexpr double kS0 = 0x1.02d3a7c04122ep-52;
inline constexpr double kS1 = -0x1.4abbce625be41p5;
inline constexpr double kS2 = 0x1.466bc677587a1p6;
inline constexpr double kS3 = -0x1.32d2cce2e0b43p6;
inline constexpr double kS4 = 0x1.50782fd5be1c7p5;
inline constexpr double kS5 = -0x1.e3006e21b0065p3;
inline constexpr double kS6 = 0x1.e3f266a47b6b6p1;
inline constexpr double kC1 = -0x1.3bd3cc9be45dep4;
inline constexpr double kC2 = 0x1.03c1f081b5a65p6;
inline constexpr double kC3 = -0x1.55d3c7e3c2d7cp6;
inline constexpr double kC4 = 0x1.e1f5067b05ae7p5;
inline constexpr double kC5 = -0x1.a6d1e6b560f5bp4;
inline constexpr double kC6 = 0x1.f9c840f8b183bp2;
inline constexpr double kC7 = -0x1.b14b6a5c9ef92p0;
}  // namespace sincos64

template <typename T>
struct SinCos {
  T sin;
  T cos;
};

// Swaps and negates sine and cosine for quadrant k = 0..3.
template <typename T>
PHASOR_HD SinCos<T> ToQuadrant(uint32_t k, T sin, T cos) {
  const T s = (k & 1) ? cos : sin;
  const T c = (k & 1) ? sin : cos;
  return {(k & 2) ? -s : s, ((k + 1) & 2) ? -c : c};
}

// Sine and cosine of a phase in f32. Error <= 0.9 ulp where |remainder| > 2^-24 turns, <= 1.4 ulp
// everywhere, and <= 2^-24.1 absolute.
PHASOR_HD SinCos<float> SinCos32(uint64_t phase) {
  using namespace sincos32;
  const uint64_t p = phase + kSinCosOffset;
  const uint32_t high = static_cast<uint32_t>(p >> 32);
  const int32_t tail = static_cast<int32_t>(static_cast<uint32_t>(p) ^ 0x80000000u);
  const float l = static_cast<float>(tail);
  const float h =
      std::fma(static_cast<float>(static_cast<int32_t>(high & kHeadMask)), kScale, kHeadBias);
  const float middle = FloatFromBits((high & kMiddleMask) | kMiddleExponent);  // 2^23 + m
  const float d = std::fma(middle, kScale, kMiddleBias);
  const float e = std::fma(l, kTailScale, d);
  const float x = h + e;
  const float z = std::fma(h, h, h * (e + e));
  const float u = std::fma(z, std::fma(z, std::fma(z, kS3, kS2), kS1), kS0);
  const float sin = std::fma(h, kA, std::fma(d, kA, std::fma(l, kTailA, x * u)));
  const float cos = std::fma(z, std::fma(z, std::fma(z, std::fma(z, kC4, kC3), kC2), kC1), 1.0f);
  // ToQuadrant of the two top bits, with signs flipped as bits.
  const float s = (high & 0x40000000u) != 0 ? cos : sin;
  const float c = (high & 0x40000000u) != 0 ? sin : cos;
  return {FloatFromBits(BitsFromFloat(s) ^ (high & 0x80000000u)),
          FloatFromBits(BitsFromFloat(c) ^ ((high + 0x40000000u) & 0x80000000u))};
}

// Sine and cosine of a phase in f64. Error <= 2^-51 absolute.
PHASOR_HD SinCos<double> SinCos64(uint64_t phase) {
  using namespace sincos64;
  const uint64_t p = phase + (uint64_t{1} << 61);
  const int64_t r = static_cast<int64_t>(p & 0x3FFFFFFFFFFFFFFFu) - (int64_t{1} << 61);
  const double x = static_cast<double>(r) * kScale;
  const double z = x * x;
  double u = std::fma(z, kS6, kS5);
  u = std::fma(z, u, kS4);
  u = std::fma(z, u, kS3);
  u = std::fma(z, u, kS2);
  u = std::fma(z, u, kS1);
  u = std::fma(z, u, kS0);
  const double sin = std::fma(x, kA, x * u);
  double v = std::fma(z, kC7, kC6);
  v = std::fma(z, v, kC5);
  v = std::fma(z, v, kC4);
  v = std::fma(z, v, kC3);
  v = std::fma(z, v, kC2);
  v = std::fma(z, v, kC1);
  const double cos = std::fma(z, v, 1.0);
  return ToQuadrant(static_cast<uint32_t>(p >> 62), sin, cos);
}

}  // namespace phasor

#endif  // PHASOR_KERNELS_MATH_SINCOS_H_
