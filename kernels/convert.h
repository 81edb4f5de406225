// SPDX-License-Identifier: Apache-2.0
// Conversions between 16-bit floats and f32: widening is exact; narrowing rounds once, to nearest
// even, and keeps subnormals. A NaN stays a NaN with unspecified payload. Scalar definition that
// every backend matches.
#ifndef PHASOR_KERNELS_CONVERT_H_
#define PHASOR_KERNELS_CONVERT_H_

#include <bit>
#include <cstdint>

#include "kernels/host_device.h"

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
    // Subnormal result: adding 0.5 aligns the last bit kept to 2^-24 and rounds to nearest even.
    const float aligned = FloatFromBits(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (BitsFromFloat(aligned) - 0x3F000000u));
  }
  const uint32_t rounded = magnitude + 0xFFFu + ((magnitude >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

}  // namespace phasor

#endif  // PHASOR_KERNELS_CONVERT_H_
