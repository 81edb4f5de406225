// SPDX-License-Identifier: Apache-2.0
// A few neighbouring elements in a thread's registers. They are held in 32-bit words, because a GPU
// has no narrower registers. On the device, conversions are the machine's own instructions where
// the architecture has them. These round as kernels/math/convert.h does, so the bytes are the same;
// only the payload of a NaN may differ. Threads: pure functions.
#ifndef PHASOR_KERNELS_CUDA_LANES_H_
#define PHASOR_KERNELS_CUDA_LANES_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/base/dtype.h"
#include "kernels/base/host_device.h"
#include "kernels/cuda/aligned.h"
#include "kernels/math/convert.h"
#include "kernels/math/element.h"
#include "kernels/math/key_blocks.h"

namespace phasor::cuda {

// The bytes that a thread moves at once where everything is aligned to them.
inline constexpr int kVectorBytes = 16;

// kBytes bytes of memory that is aligned to kBytes, moved in one instruction. Power of two, <= 16.
template <int kBytes>
struct Words {
  using Word =
      std::conditional_t<kBytes >= 4, uint32_t, std::conditional_t<kBytes == 2, uint16_t, uint8_t>>;
  alignas(kBytes) Word word[kBytes >= 4 ? kBytes / 4 : 1];
};

// Tensors are in global memory, which the compiler cannot see of an address in an item.
PHASOR_HD void AssumeGlobal([[maybe_unused]] const std::byte* p) {
#ifdef __CUDA_ARCH__
  __builtin_assume(__isGlobal(p));
#endif
}

template <int kBytes>
PHASOR_HD Words<kBytes> LoadWords(const std::byte* p) {
  Words<kBytes> words;
  AssumeGlobal(p);
  std::memcpy(&words, Aligned<kBytes>(p), kBytes);
  return words;
}

template <int kBytes>
PHASOR_HD void StoreWords(const Words<kBytes>& words, std::byte* p) {
  AssumeGlobal(p);
  std::memcpy(Aligned<kBytes>(p), &words, kBytes);
}

// An 8-bit float without a scale, as an element (kernels/math/element.h).
template <Float8 kType>
struct Float8Element {
  using Math = float;
  static constexpr int64_t kBytes = 1;
  static PHASOR_HD float Load(const std::byte* p) {
    return FloatFromFloat8(static_cast<uint8_t>(*p), kType);
  }
  static PHASOR_HD void Store(float v, std::byte* p) {
    *p = static_cast<std::byte>(Float8FromFloat(v, kType));
  }
  static PHASOR_HD SinCos<float> Trig(uint64_t phase) { return SinCos32(phase); }
};
template <typename Element>
inline constexpr Float8 kFloat8Of = Float8::kNone;
template <Float8 kType>
inline constexpr Float8 kFloat8Of<Float8Element<kType>> = kType;

PHASOR_HD float WidenFloat16(uint32_t bits) {
#ifdef __CUDA_ARCH__
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(static_cast<uint16_t>(bits)));
  return value;
#else
  return FloatFromFloat16(static_cast<uint16_t>(bits));
#endif
}

// Two elements in one word, `low` in the lower half.
PHASOR_HD uint32_t PackFloat16(float low, float high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  uint32_t word;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
#else
  return Float16FromFloat(low) | uint32_t{Float16FromFloat(high)} << 16;
#endif
}

PHASOR_HD uint32_t PackBFloat16(float low, float high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  uint32_t word;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
#else
  return BFloat16FromFloat(low) | uint32_t{BFloat16FromFloat(high)} << 16;
#endif
}

PHASOR_HD uint32_t PackFloat8(float low, float high, Float8 type) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  uint16_t pair;
  if (type == Float8::kE4M3) {
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
  }
  return pair;
#else
  return Float8FromFloat(low, type) | uint32_t{Float8FromFloat(high, type)} << 8;
#endif
}

// Byte i of a word.
PHASOR_HD float WidenFloat8(uint32_t word, int i, Float8 type) {
  const uint32_t byte = word >> (8 * i) & 0xFFu;
  if (type == Float8::kE5M2) return WidenFloat16(byte << 8);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  uint32_t both;
  const auto pair = static_cast<uint16_t>(word >> (i / 2 * 16));
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(both) : "h"(pair));
  return WidenFloat16(both >> (i % 2 * 16));
#else
  // The exponent is 120 too low; subnormals keep all of their bits.
  const uint32_t bits = (byte & 0x80u) << 24 | (byte & 0x7Fu) << 20;
  return FloatFromBits((byte & 0x7Fu) == 0x7Fu ? 0x7FC00000u : bits) * 0x1p120f;
#endif
}

// Byte i of a word, as a signed integer.
PHASOR_HD float WidenInt8(uint32_t word, int i) {
#ifdef __CUDA_ARCH__
  // The byte plus 128 becomes the lowest bits of 2^23.
  const uint32_t bits =
      __byte_perm(word ^ 0x80808080u, 0x4B000000u, 0x7540u | static_cast<uint32_t>(i));
  return FloatFromBits(bits) - (0x1p23f + 128.0f);
#else
  return static_cast<float>(static_cast<int8_t>(word >> (8 * i)));
#endif
}

// Rounds kCount values as key_blocks::Int8Of does.
template <int kCount>
PHASOR_HD Words<kCount> PackInt8Lanes(const float (&values)[kCount]) {
  Words<kCount> words = {};
  PHASOR_UNROLL
  for (int i = 0; i < kCount; i += 4) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 720
    int whole[4];
    PHASOR_UNROLL
    for (int k = 0; k < 4; ++k) {
      const float v = values[i + k];
      whole[k] = __float2int_rz(v + std::copysign(key_blocks::kBelowHalf, v));
    }
    uint32_t high;
    asm("cvt.pack.sat.s8.s32.b32 %0, %1, %2, 0;" : "=r"(high) : "r"(whole[3]), "r"(whole[2]));
    asm("cvt.pack.sat.s8.s32.b32 %0, %1, %2, %3;"
        : "=r"(words.word[i / 4])
        : "r"(whole[1]), "r"(whole[0]), "r"(high));
#else
    for (int k = 0; k < 4; ++k) {
      words.word[i / 4] |= uint32_t{static_cast<uint8_t>(key_blocks::Int8Of(values[i + k]))}
                           << (8 * k);
    }
#endif
  }
  return words;
}

// Stores codes where they are aligned to 2 bytes.
template <int kCount>
PHASOR_HD void StoreInt8Pairs(const Words<kCount>& codes, std::byte* p) {
  PHASOR_UNROLL
  for (int k = 0; k < kCount; k += 2) {
    const auto pair = static_cast<uint16_t>(codes.word[k / 4] >> (k % 4 * 8));
    std::memcpy(Aligned<2>(p + k), &pair, 2);
  }
}

// Element i of the lanes.
template <typename Element, int kBytes>
PHASOR_HD typename Element::Math LaneOf(const Words<kBytes>& words, int i) {
  if constexpr (std::is_same_v<Element, scalar::F64>) {
    const uint64_t low = words.word[2 * i], high = words.word[2 * i + 1];
    const uint64_t bits = low | high << 32;
    double value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  } else if constexpr (std::is_same_v<Element, scalar::F32>) {
    return FloatFromBits(words.word[i]);
  } else if constexpr (kFloat8Of<Element> != Float8::kNone) {
    return WidenFloat8(words.word[i / 4], i % 4, kFloat8Of<Element>);
  } else if constexpr (std::is_same_v<Element, scalar::F16>) {
    return WidenFloat16(uint32_t{words.word[i / 2]} >> (i % 2 * 16));
  } else {
    const uint32_t word = words.word[i / 2];
    return FloatFromBits(i % 2 == 0 ? word << 16 : word & 0xFFFF0000u);
  }
}

// Rounds kCount values times `inv_scale` to 8-bit floats.
template <int kCount>
PHASOR_HD Words<kCount> PackFloat8Lanes(const float (&values)[kCount], float inv_scale,
                                        Float8 type) {
  Words<kCount> words = {};
  if constexpr (kCount == 1) {
    words.word[0] = static_cast<uint8_t>(PackFloat8(values[0] * inv_scale, 0.0f, type));
  } else {
    PHASOR_UNROLL
    for (int i = 0; i < kCount; i += 2) {
      const uint32_t pair = PackFloat8(values[i] * inv_scale, values[i + 1] * inv_scale, type);
      words.word[i / 4] |= pair << (i % 4 * 8);
    }
  }
  return words;
}

// Rounds kCount values to the lanes of an element.
template <typename Element, int kCount>
PHASOR_HD Words<kCount* static_cast<int>(Element::kBytes)> PackLanes(
    const typename Element::Math (&values)[kCount]) {
  Words<kCount* static_cast<int>(Element::kBytes)> words;
  if constexpr (std::is_same_v<Element, scalar::F64>) {
    std::memcpy(&words, values, sizeof words);
  } else if constexpr (kFloat8Of<Element> != Float8::kNone) {
    words = PackFloat8Lanes(values, 1.0f, kFloat8Of<Element>);
  } else if constexpr (std::is_same_v<Element, scalar::F32>) {
    PHASOR_UNROLL
    for (int i = 0; i < kCount; ++i) words.word[i] = BitsFromFloat(values[i]);
  } else {
    constexpr bool kIsFloat16 = std::is_same_v<Element, scalar::F16>;
    PHASOR_UNROLL
    for (int i = 0; i < (kCount + 1) / 2; ++i) {
      const float low = values[2 * i], high = kCount == 1 ? 0.0f : values[2 * i + 1];
      const uint32_t word = kIsFloat16 ? PackFloat16(low, high) : PackBFloat16(low, high);
      words.word[i] = static_cast<typename decltype(words)::Word>(word);
    }
  }
  return words;
}

}  // namespace phasor::cuda

#endif  // PHASOR_KERNELS_CUDA_LANES_H_
