// SPDX-License-Identifier: Apache-2.0
// Converts between f32 and the narrower floats. Widening is exact. Narrowing rounds once, to
// nearest even, and keeps subnormals. A NaN stays a NaN with unspecified payload (8-bit floats:
// 0x7F). This scalar code is the definition; every backend returns the same bits.
#ifndef PHASOR_KERNELS_MATH_CONVERT_H_
#define PHASOR_KERNELS_MATH_CONVERT_H_

#include <bit>
#include <cstdint>

#include "kernels/base/dtype.h"
#include "kernels/base/host_device.h"

namespace phasor {

PHASOR_HD float FloatFromBits(uint32_t bits) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(bits);
#else
  return std::bit_cast<float>(bits);
#endif
}

PHASOR_HD uint32_t BitsFromFloat(float value) {
#ifdef __CUDA_ARCH__
  return __float_as_uint(value);
#else
  return std::bit_cast<uint32_t>(value);
#endif
}

PHASOR_HD float FloatFromBFloat16(uint16_t bits) { return FloatFromBits(uint32_t{bits} << 16); }

PHASOR_HD uint16_t BFloat16FromFloat(float value) {
  const uint32_t bits = BitsFromFloat(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

PHASOR_HD float FloatFromFloat16(uint16_t bits) {
  const uint32_t sign = uint32_t{bits & 0x8000u} << 16;
  const uint32_t magnitude = bits & 0x7FFFu;
  if (magnitude >= 0x7C00u) return FloatFromBits(sign | 0x7F800000u | ((magnitude & 0x3FFu) << 13));
  if (magnitude >= 0x400u) return FloatFromBits(sign | ((magnitude << 13) + 0x38000000u));
  const float tiny = static_cast<float>(magnitude) * 0x1p-24f;  // exact
  return FloatFromBits(sign | BitsFromFloat(tiny));
}

PHASOR_HD uint16_t Float16FromFloat(float value) {
  const uint32_t bits = BitsFromFloat(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<uint16_t>(sign | 0x7E00u);
  if (magnitude >= 0x477FF000u) return static_cast<uint16_t>(sign | 0x7C00u);  // rounds to infinity
  if (magnitude < 0x38800000u) {
    // Subnormal result: adding 0.5 aligns the last kept bit to 2^-24 and rounds to nearest even.
    const float aligned = FloatFromBits(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (BitsFromFloat(aligned) - 0x3F000000u));
  }
  const uint32_t rounded = magnitude + 0xFFFu + ((magnitude >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

// The numbers in which the two 8-bit types differ. Exponents are those of f32.
struct Float8Format {
  uint32_t shift;       // fraction bits of an f32 that do not fit
  uint32_t largest;     // f32 bits of the largest finite value
  uint32_t min_normal;  // f32 bits of the smallest normal value
  uint32_t rebias;      // difference of the exponent biases, in the exponent field of an f32
  uint32_t align;       // f32 bits of the power of two whose last place is the smallest subnormal
};

// Largest, smallest normal, smallest subnormal. E4M3: 448, 2^-6, 2^-9. E5M2: 57344, 2^-14, 2^-16.
PHASOR_HD constexpr Float8Format FormatOf(Float8 type) {
  if (type == Float8::kE4M3) return {20, 0x43E00000u, 0x3C800000u, 0x3C000000u, 0x46800000u};
  return {21, 0x47600000u, 0x38800000u, 0x38000000u, 0x43000000u};
}

// Rounds to nearest even. Larger magnitudes, infinity included, become the largest finite value. A
// NaN becomes 0x7F. `type` must not be kNone. Always computes the normal and the subnormal
// rounding, so that the threads of a GPU do not diverge.
PHASOR_HD uint8_t Float8FromFloat(float value, Float8 type) {
  const Float8Format format = FormatOf(type);
  const uint32_t bits = BitsFromFloat(value);
  const uint32_t sign = (bits >> 24) & 0x80u;
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  const uint32_t finite = magnitude < format.largest ? magnitude : format.largest;
  // Subnormal result: the addition rounds to a multiple of the smallest subnormal.
  const float aligned = FloatFromBits(finite) + FloatFromBits(format.align);
  const uint32_t subnormal = BitsFromFloat(aligned) - format.align;
  const uint32_t half = (1u << (format.shift - 1)) - 1 + ((finite >> format.shift) & 1u);
  const uint32_t normal = (finite + half - format.rebias) >> format.shift;
  const uint32_t rounded = finite < format.min_normal ? subnormal : normal;
  return static_cast<uint8_t>(magnitude > 0x7F800000u ? 0x7Fu : sign | rounded);
}

// Exact. E5M2 has infinities; Float8FromFloat never produces them.
PHASOR_HD float FloatFromFloat8(uint8_t bits, Float8 type) {
  if (type == Float8::kE5M2) return FloatFromFloat16(static_cast<uint16_t>(bits << 8));
  const uint32_t sign = uint32_t{bits & 0x80u} << 24;
  const uint32_t magnitude = bits & 0x7Fu;
  if (magnitude == 0x7Fu) return FloatFromBits(sign | 0x7FC00000u);
  if (magnitude >= 8u) return FloatFromBits(sign | ((magnitude << 20) + 0x3C000000u));
  return FloatFromBits(sign | BitsFromFloat(static_cast<float>(magnitude) * 0x1p-9f));
}

}  // namespace phasor

#endif  // PHASOR_KERNELS_MATH_CONVERT_H_
