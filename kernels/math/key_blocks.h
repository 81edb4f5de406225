// SPDX-License-Identifier: Apache-2.0
// ggml's blocks of 32 quantised lanes: Q8_0, Q4_0, Q4_1, Q5_0, Q5_1. Encoding gives the bytes of
// ggml's reference functions (quantize_row_*_ref in ggml-quants.c) for finite lanes; a NaN gets
// the smallest code. This scalar code is the definition; every backend returns the same bytes.
// Threads: pure functions.
#ifndef PHASOR_KERNELS_MATH_KEY_BLOCKS_H_
#define PHASOR_KERNELS_MATH_KEY_BLOCKS_H_

#include <cfloat>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/base/host_device.h"
#include "kernels/math/convert.h"
#include "kernels/math/quotient.h"

namespace phasor::key_blocks {

inline constexpr int kLanes = 32;

PHASOR_HD float LoadFloat16(const std::byte* p) {
  uint16_t bits;
  std::memcpy(&bits, p, sizeof bits);
  return FloatFromFloat16(bits);
}

PHASOR_HD void StoreFloat16(float value, std::byte* p) {
  const uint16_t bits = Float16FromFloat(value);
  std::memcpy(p, &bits, sizeof bits);
}

// 1 / d, and 0 for a block of zeros.
PHASOR_HD float InverseOf(float d) { return d != 0 ? QuotientOf(1.0f, d) : 0.0f; }

// The integer below v, in [0, largest].
PHASOR_HD uint8_t CodeOf(float v, float largest) {
  if (!(v > 0)) return 0;
  return static_cast<uint8_t>(v < largest ? v : largest);
}

// The largest float below 1/2. Added to a magnitude, it carries halves, and nothing less, to the
// next integer.
inline constexpr float kBelowHalf = 0x1.fffffep-2f;

// v to the nearest integer in [-128, 127], halves away from zero; NaN gives 0.
PHASOR_HD int8_t Int8Of(float v) {
  const float beyond = v + std::copysign(kBelowHalf, v);
#ifdef __CUDA_ARCH__
  const int whole = __float2int_rz(beyond);  // saturates; NaN gives 0
  return static_cast<int8_t>(whole < -128 ? -128 : whole > 127 ? 127 : whole);
#else
  if (!(beyond > -128.0f)) return beyond <= -128.0f ? int8_t{-128} : int8_t{0};
  return static_cast<int8_t>(beyond < 127.0f ? beyond : 127.0f);
#endif
}

PHASOR_HD float LargestMagnitude(const float* x, int64_t count) {
  float largest = 0;
  PHASOR_UNROLL
  for (int64_t i = 0; i < count; ++i) {
    if (std::fabs(x[i]) > largest) largest = std::fabs(x[i]);
  }
  return largest;
}

// Q8_0: d, then 32 codes. x = code * d.
PHASOR_HD void EncodeQ8_0(const float* x, std::byte* block) {
  const float d = QuotientOf(LargestMagnitude(x, kLanes), 127.0f);
  const float id = InverseOf(d);
  StoreFloat16(d, block);
  PHASOR_UNROLL
  for (int i = 0; i < kLanes; ++i) block[2 + i] = static_cast<std::byte>(Int8Of(x[i] * id));
}

PHASOR_HD void DecodeQ8_0(const std::byte* block, float* x) {
  const float d = LoadFloat16(block);
  PHASOR_UNROLL
  for (int i = 0; i < kLanes; ++i) {
    x[i] = static_cast<float>(static_cast<int8_t>(block[2 + i])) * d;
  }
}

// Codes of 4 bits: byte i has those of lanes i and i + 16. The fifth bit of lane i, if there is
// one, is bit i of a 32-bit word.
PHASOR_HD void StoreCodes(const uint8_t* codes, std::byte* fifth_bits, std::byte* nibbles) {
  uint32_t bits = 0;
  PHASOR_UNROLL
  for (int i = 0; i < kLanes / 2; ++i) {
    const uint32_t low = codes[i], high = codes[i + 16];
    nibbles[i] = static_cast<std::byte>((low & 15u) | ((high & 15u) << 4));
    bits |= (low >> 4) << i | (high >> 4) << (i + 16);
  }
  if (fifth_bits != nullptr) std::memcpy(fifth_bits, &bits, sizeof bits);
}

PHASOR_HD void LoadCodes(const std::byte* fifth_bits, const std::byte* nibbles, uint8_t* codes) {
  uint32_t bits = 0;
  if (fifth_bits != nullptr) std::memcpy(&bits, fifth_bits, sizeof bits);
  PHASOR_UNROLL
  for (int i = 0; i < kLanes / 2; ++i) {
    const auto both = static_cast<uint32_t>(nibbles[i]);
    codes[i] = static_cast<uint8_t>((both & 15u) | ((bits >> i & 1u) << 4));
    codes[i + 16] = static_cast<uint8_t>((both >> 4) | ((bits >> (i + 16) & 1u) << 4));
  }
}

// Q4_0 (bits 4) and Q5_0 (bits 5): x = (code - 2^(bits-1)) * d. The lane of largest magnitude has
// code 0.
template <int kBits>
PHASOR_HD void EncodeCentred(const float* x, std::byte* block) {
  constexpr float kHalf = 1 << (kBits - 1);
  float largest = 0, signed_largest = 0;
  PHASOR_UNROLL
  for (int i = 0; i < kLanes; ++i) {
    if (!(std::fabs(x[i]) > largest)) continue;
    largest = std::fabs(x[i]);
    signed_largest = x[i];
  }
  const float d = signed_largest * (-1 / kHalf);  // a power of two
  const float id = InverseOf(d);
  StoreFloat16(d, block);
  uint8_t codes[kLanes];
  PHASOR_UNROLL
  for (int i = 0; i < kLanes; ++i) codes[i] = CodeOf(x[i] * id + (kHalf + 0.5f), 2 * kHalf - 1);
  StoreCodes(codes, kBits == 5 ? block + 2 : nullptr, block + (kBits == 5 ? 6 : 2));
}

template <int kBits>
PHASOR_HD void DecodeCentred(const std::byte* block, float* x) {
  constexpr int kHalf = 1 << (kBits - 1);
  uint8_t codes[kLanes];
  LoadCodes(kBits == 5 ? block + 2 : nullptr, block + (kBits == 5 ? 6 : 2), codes);
  const float d = LoadFloat16(block);
  PHASOR_UNROLL
  for (int i = 0; i < kLanes; ++i) x[i] = static_cast<float>(codes[i] - kHalf) * d;
}

// Q4_1 and Q5_1: x = code * d + smallest.
template <int kBits>
PHASOR_HD void EncodeOffset(const float* x, std::byte* block) {
  constexpr float kLargestCode = (1 << kBits) - 1;
  float smallest = FLT_MAX, largest = -FLT_MAX;
  PHASOR_UNROLL
  for (int i = 0; i < kLanes; ++i) {
    if (x[i] < smallest) smallest = x[i];
    if (x[i] > largest) largest = x[i];
  }
  const float d = QuotientOf(largest - smallest, kLargestCode);
  const float id = InverseOf(d);
  StoreFloat16(d, block);
  StoreFloat16(smallest, block + 2);
  uint8_t codes[kLanes];
  PHASOR_UNROLL
  for (int i = 0; i < kLanes; ++i) codes[i] = CodeOf((x[i] - smallest) * id + 0.5f, kLargestCode);
  StoreCodes(codes, kBits == 5 ? block + 4 : nullptr, block + (kBits == 5 ? 8 : 4));
}

template <int kBits>
PHASOR_HD void DecodeOffset(const std::byte* block, float* x) {
  uint8_t codes[kLanes];
  LoadCodes(kBits == 5 ? block + 4 : nullptr, block + (kBits == 5 ? 8 : 4), codes);
  const float d = LoadFloat16(block), smallest = LoadFloat16(block + 2);
  PHASOR_UNROLL
  for (int i = 0; i < kLanes; ++i) x[i] = static_cast<float>(codes[i]) * d + smallest;
}

}  // namespace phasor::key_blocks

#endif  // PHASOR_KERNELS_MATH_KEY_BLOCKS_H_
