// SPDX-License-Identifier: Apache-2.0
// Reads, rotates and writes blocks of Q8_0 for each SIMD target (kernels/math/key_blocks.h), four
// at a time in registers where vectors have a known length.
//
// kernels/cpu/rotary.cc includes this once per SIMD target. It is empty on targets without vectors.
#if defined(PHASOR_KERNELS_CPU_Q8_BLOCKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PHASOR_KERNELS_CPU_Q8_BLOCKS_INL_H_
#undef PHASOR_KERNELS_CPU_Q8_BLOCKS_INL_H_
#else
#define PHASOR_KERNELS_CPU_Q8_BLOCKS_INL_H_
#endif

#include <cstring>
#include <limits>

#include "kernels/cpu/lane_codes-inl.h"
#include "kernels/cpu/rotate_head-inl.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/math/key_blocks.h"
#include "kernels/ops/key_form.h"

#if !PHASOR_SCALAR_TARGET

HWY_BEFORE_NAMESPACE();
namespace phasor::cpu {
namespace HWY_NAMESPACE {

// key_blocks::LoadFloat16, in all lanes, and StoreFloat16.
HWY_INLINE Vf LoadFloat16(const std::byte* p) {
  const hn::Rebind<hwy::float16_t, Df> df16;
  const hn::Rebind<uint16_t, Df> d16;
  uint16_t bits;
  std::memcpy(&bits, p, sizeof bits);
  return hn::PromoteTo(Df(), hn::BitCast(df16, hn::Set(d16, bits)));
}
HWY_INLINE void StoreFloat16(float value, std::byte* p) {
  const hn::Rebind<hwy::float16_t, Df> df16;
  const hn::Rebind<uint16_t, Df> d16;
  const uint16_t bits = hn::GetLane(hn::BitCast(d16, hn::DemoteTo(df16, hn::Set(Df(), value))));
  std::memcpy(p, &bits, sizeof bits);
}

// key_blocks::LargestMagnitude.
HWY_INLINE float LargestMagnitude(const float* x, int64_t count) {
  const Df d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto largest = hn::Zero(d);
  int64_t i = 0;
  // Max returns its second argument for a NaN.
  for (; i + lanes <= count; i += lanes) largest = hn::Max(hn::Abs(hn::LoadU(d, x + i)), largest);
  const float rest = key_blocks::LargestMagnitude(x + i, count - i);
  const float found = hn::GetLane(hn::MaxOfLanes(d, largest));
  return rest > found ? rest : found;
}

// One block. Every target's vector divides half a block.
HWY_INLINE void DecodeBlockQ8(const std::byte* block, float* x) {
  const Df d;
  const auto scale = LoadFloat16(block);
  const auto* codes = reinterpret_cast<const int8_t*>(block + 2);
  for (int64_t i = 0; i < key_blocks::kLanes; i += static_cast<int64_t>(hn::Lanes(d))) {
    hn::StoreU(hn::Mul(I8::Load(codes + i), scale), d, x + i);
  }
}
HWY_NOINLINE void EncodeBlockQ8(const float* x, std::byte* block) {
  const float scale = LargestMagnitude(x, key_blocks::kLanes) / 127.0f;
  StoreFloat16(scale, block);
  const Df d;
  const auto factor = hn::Set(d, key_blocks::InverseOf(scale));
  auto* codes = reinterpret_cast<int8_t*>(block + 2);
  for (int64_t i = 0; i < key_blocks::kLanes; i += static_cast<int64_t>(hn::Lanes(d))) {
    I8::Store(hn::Mul(hn::LoadU(d, x + i), factor), codes + i);
  }
}

#if HWY_ARCH_X86

// Four blocks in registers: two from `first` on, and two from `second` on. GCC keeps all vectors in
// memory unless it is told to unroll the loops over them.
struct FourBlocksQ8 {
  static constexpr int kBytes = 34;
  static constexpr int kOfBlock = key_blocks::kLanes / static_cast<int>(hn::MaxLanes(Df()));
  static constexpr int kVectors = 4 * kOfBlock;
  using D4 = hn::FixedTag<float, 4>;

  Vf v[kVectors];
  hn::Vec<D4> scale, inverse;

  HWY_INLINE void Decode(const std::byte* first, const std::byte* second) {
#pragma GCC unroll 4
    for (int b = 0; b < 4; ++b) {
      const std::byte* const block = (b < 2 ? first : second) + b % 2 * kBytes;
      const auto* codes = reinterpret_cast<const int8_t*>(block + 2);
      const auto factor = LoadFloat16(block);
      for (int i = 0; i < kOfBlock; ++i) {
        v[b * kOfBlock + i] = hn::Mul(I8::Load(codes + i * LanesOf()), factor);
      }
    }
  }

  HWY_INLINE void Load(const float* x) {
    for (int i = 0; i < kVectors; ++i) v[i] = hn::LoadU(Df(), x + i * LanesOf());
  }

  // key_blocks::EncodeQ8_0 of each, in two steps: divisions take long, so that other blocks can be
  // read meanwhile.
  HWY_INLINE void FindScales() {
    const D4 d4;
    scale = hn::Div(LargestMagnitudes(), hn::Set(d4, 127.0f));
    inverse = hn::IfThenElseZero(hn::Ne(scale, hn::Zero(d4)),  // key_blocks::InverseOf
                                 hn::Div(hn::Set(d4, 1.0f), scale));
  }
  HWY_INLINE void Store(std::byte* first, std::byte* second) const {
    const Df d;
    const D4 d4;
    const auto infinity = hn::Set(d4, std::numeric_limits<float>::infinity());
    const auto finite = hn::And(hn::Lt(scale, infinity), hn::Lt(inverse, infinity));
    if (HWY_UNLIKELY(!hn::AllTrue(d4, finite))) {
      HWY_ALIGN float x[4 * key_blocks::kLanes];
#pragma GCC unroll 16
      for (int i = 0; i < kVectors; ++i) hn::Store(v[i], d, x + i * LanesOf());
      return EncodeOneByOne(x, first, second);
    }
    HWY_ALIGN float inverses[4];
    HWY_ALIGN uint16_t halves[4];
    hn::Store(inverse, d4, inverses);
    const hn::Rebind<hwy::float16_t, D4> df16;
    const hn::Rebind<uint16_t, D4> d16;
    hn::Store(hn::BitCast(d16, hn::DemoteTo(df16, scale)), d16, halves);
#pragma GCC unroll 4
    for (int b = 0; b < 4; ++b) {
      std::byte* const block = (b < 2 ? first : second) + b % 2 * kBytes;
      std::memcpy(block, &halves[b], sizeof halves[b]);
      const auto factor = hn::Set(d, inverses[b]);
      Vf scaled[kOfBlock];
      for (int i = 0; i < kOfBlock; ++i) scaled[i] = hn::Mul(v[b * kOfBlock + i], factor);
      I8::StoreBlock(scaled, reinterpret_cast<int8_t*>(block + 2));
    }
  }

 private:
  static constexpr int LanesOf() { return static_cast<int>(hn::MaxLanes(Df())); }

  // For blocks with NaNs, infinities or scales whose inverse is infinite.
  static HWY_NOINLINE void EncodeOneByOne(const float* x, std::byte* first, std::byte* second) {
    for (int b = 0; b < 4; ++b) {
      EncodeBlockQ8(x + b * key_blocks::kLanes, (b < 2 ? first : second) + b % 2 * kBytes);
    }
  }

  // The largest magnitude of each block; infinity or a NaN if it has one. Magnitudes are in the
  // order of their bits.
  HWY_INLINE hn::Vec<D4> LargestMagnitudes() const {
    const Du32 d;
    const auto largest = [&](int block) HWY_ATTR {
      auto found = hn::BitCast(d, hn::Abs(v[block * kOfBlock]));
      for (int i = 1; i < kOfBlock; ++i) {
        found = hn::Max(found, hn::BitCast(d, hn::Abs(v[block * kOfBlock + i])));
      }
      return found;
    };
    const auto larger = [&](auto dw, Vu32 a, Vu32 b) HWY_ATTR {
      const auto x = hn::BitCast(dw, a), y = hn::BitCast(dw, b);
      return hn::Max(hn::BitCast(d, hn::InterleaveLower(dw, x, y)),
                     hn::BitCast(d, hn::InterleaveUpper(dw, x, y)));
    };
    // Lane b of every four belongs to block b.
    auto four =
        larger(Du64(), larger(d, largest(0), largest(1)), larger(d, largest(2), largest(3)));
    if constexpr (hn::MaxLanes(Df()) > 8) four = hn::Max(four, hn::ConcatLowerUpper(d, four, four));
    four = hn::Max(four, hn::SwapAdjacentBlocks(four));
    HWY_ALIGN uint32_t all[hn::MaxLanes(d)];
    hn::Store(four, d, all);
    return hn::BitCast(D4(), hn::Load(hn::RebindToUnsigned<D4>(), all));
  }
};

// Rotates pairs [first, first + 64): of two blocks and two others, which are halves, or of four
// blocks whose lanes are neighbours.
constexpr int64_t kPairsQ8 = 64;
HWY_INLINE void RotateFourBlocksQ8(const Trig32& trig, bool halves, int64_t first, Vf* v) {
  const Df d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  constexpr int kHalf = FourBlocksQ8::kVectors / 2;
  if (halves) {
    for (int i = 0; i < kHalf; ++i) {
      const auto cos = hn::LoadU(d, trig.cos + first + i * lanes);
      const auto sin = hn::LoadU(d, trig.sin + first + i * lanes);
      RotatePair(v[i], v[i + kHalf], cos, sin, v[i], v[i + kHalf]);
    }
  } else {
    for (int i = 0; i < 2 * kHalf; ++i) {
      const int64_t lane = 2 * first + i * lanes;
      v[i] = RotateNeighbours(trig.cos_sin + lane, trig.neg_cos + lane, v[i]);
    }
  }
}

#endif  // HWY_ARCH_X86

}  // namespace HWY_NAMESPACE
}  // namespace phasor::cpu
HWY_AFTER_NAMESPACE();

#endif  // !PHASOR_SCALAR_TARGET
#endif  // include guard
