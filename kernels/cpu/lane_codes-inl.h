// SPDX-License-Identifier: Apache-2.0
// Reads and writes lanes of 8-bit codes for each SIMD target, beside simd-inl.h, which has the
// wider ones. It is empty on targets without vectors.
#if defined(PHASOR_KERNELS_CPU_LANE_CODES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PHASOR_KERNELS_CPU_LANE_CODES_INL_H_
#undef PHASOR_KERNELS_CPU_LANE_CODES_INL_H_
#else
#define PHASOR_KERNELS_CPU_LANE_CODES_INL_H_
#endif

#include <cstring>

#include "kernels/cpu/simd-inl.h"

#if !PHASOR_SCALAR_TARGET

HWY_BEFORE_NAMESPACE();
namespace phasor::cpu {
namespace HWY_NAMESPACE {

using D8 = hn::Rebind<int8_t, Df>;
using Du8 = hn::Rebind<uint8_t, Df>;

// One struct per code of a lane: loads and stores Lanes(Df) lanes, at any alignment.
struct I8 {
  using T = int8_t;
  static HWY_INLINE Vf Load(const T* p) {
    return hn::ConvertTo(Df(), hn::PromoteTo(Di32(), hn::LoadU(D8(), p)));
  }
  // key_blocks::Int8Of. Adding the number below 1/2 and cutting off rounds halves away from zero.
  static HWY_INLINE void Store(Vf v, T* p) {
    hn::StoreU(hn::DemoteTo(D8(), hn::ConvertTo(Di32(), Shifted(v))), D8(), p);
  }
#if HWY_ARCH_X86
  // The same for the lanes of a block of Q8_0, which are numbers between -128 and 128.
  static HWY_INLINE void StoreBlock(const Vf* v, T* p) {
    const auto code = [&](int i) HWY_ATTR {
      const auto magnitude = hn::Set(Df(), kBelowHalf);
      const auto shifted = hn::Add(v[i], hn::CopySignToAbs(magnitude, v[i])).raw;
#if HWY_TARGET <= HWY_AVX3
      return _mm512_cvtepi32_epi8(_mm512_cvttps_epi32(shifted));
#else
      return _mm256_cvttps_epi32(shifted);
#endif
    };
#if HWY_TARGET <= HWY_AVX3
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), code(0));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 16), code(1));
#else
    const auto words = _mm256_packs_epi16(_mm256_packs_epi32(code(0), code(1)),
                                          _mm256_packs_epi32(code(2), code(3)));
    const auto order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permutevar8x32_epi32(words, order));
#endif
  }
#endif

 private:
  static constexpr float kBelowHalf = 0x1.fffffep-2f;
  static HWY_INLINE Vf Shifted(Vf v) {
    const Df d;
    const auto shifted = hn::Add(v, hn::CopySign(hn::Set(d, kBelowHalf), v));
    return hn::IfThenElseZero(hn::Eq(v, v), shifted);
  }
};

template <Float8 kType>
struct F8 {
  using T = uint8_t;
  static HWY_INLINE Vf Load(const T* p) {
    const auto codes = hn::PromoteTo(Dhalf(), hn::LoadU(Du8(), p));
    const auto value = Units(hn::ShiftLeft<8>(codes));
    return kType == Float8::kE5M2 ? value : hn::Mul(value, hn::Set(Df(), kUnit));
  }
  static HWY_INLINE void Store(Vf v, T* p) { StoreFloat8(v, FormatOf(kType), p); }

  // The even and the odd ones of two vectors of lanes, in units of kUnit. A rotation commutes with
  // a power of two.
  static HWY_INLINE void LoadEvenOdd(const T* p, Vf& even, Vf& odd) {
    const Dhalf d;
    const auto codes = hn::LoadU(d, reinterpret_cast<const uint16_t*>(p));
    even = Units(hn::ShiftLeft<8>(codes));
    odd = Units(hn::And(codes, hn::Set(d, uint16_t{0xFF00})));
  }
  // NaNs must have the upper bit of their payload, as all results of arithmetic do.
  template <bool kStream>
  static HWY_INLINE void StoreEvenOdd(Vf even, Vf odd, T* p) {
    const D8 d8;
    Vhalf even_half, odd_half;
    const auto e = Rounded(even, even_half), o = Rounded(odd, odd_half);
    const auto bytes = [](Vhalf in_low, Vhalf in_high) HWY_ATTR {
      return hn::BitCast(D8(),
                         hn::IfVecThenElse(hn::Set(Dhalf(), uint16_t{0x00FF}), in_low, in_high));
    };
    const auto sign = hn::Set(d8, uint8_t{0x80});
    auto magnitude = bytes(hn::ShiftRight<kCut>(e), hn::ShiftLeft<8 - kCut>(o));
    auto signs = magnitude;
    if constexpr (kType == Float8::kE5M2) {
      magnitude = hn::AndNot(sign, magnitude);
    } else {
      signs = bytes(hn::ShiftRight<8>(even_half), odd_half);
    }
    // Above infinity are NaNs only.
    const auto is_nan = hn::Gt(magnitude, hn::Set(d8, uint8_t{0x7C00 >> kCut}));
    const auto finite = hn::Min(magnitude, hn::Set(d8, kLargest));
    const auto nan = hn::Set(d8, uint8_t{0x7F});
    const auto code = hn::IfThenElse(is_nan, nan, hn::OrAnd(finite, sign, signs));
    if constexpr (kStream) {
      hn::Stream(code, d8, p);
    } else {
      hn::StoreU(code, d8, p);
    }
  }

 private:
  static constexpr Float8Format kFormat = FormatOf(kType);
  static constexpr float kUnit = kType == Float8::kE5M2 ? 1 : 256;
  // In these units a code is what is left of a float16 without its lowest bits, subnormals
  // included: float16 and FLOAT8 have their smallest normal numbers at the same bits.
  static constexpr int kCut = kType == Float8::kE5M2 ? 8 : 7;
  static constexpr uint8_t kLargest = kType == Float8::kE5M2 ? 0x7B : 0x7E;
  using Dhalf = hn::Rebind<uint16_t, Df>;
  using Vhalf = hn::Vec<Dhalf>;
  using D8 = hn::Repartition<uint8_t, Dhalf>;

  // The values of codes in the upper bytes of words, whose lower bytes are zero.
  static HWY_INLINE Vf Units(Vhalf codes) {
    const Dhalf d;
    auto bits = codes;
    if constexpr (kType == Float8::kE4M3) {
      const auto magnitude = hn::Set(d, uint16_t{0x3F80});
      bits = hn::BitCast(d, hn::ShiftRight<1>(hn::BitCast(hn::RebindToSigned<Dhalf>(), codes)));
      const auto is_nan = hn::Eq(hn::And(bits, magnitude), magnitude);
      bits = hn::IfThenElse(is_nan, hn::Set(d, uint16_t{0x7E00}),
                            hn::And(bits, hn::Set(d, uint16_t{0xBF80})));
    }
    return hn::PromoteTo(Df(), hn::BitCast(hn::Rebind<hwy::float16_t, Df>(), bits));
  }

  // Cuts v off to float16 (`half`), and rounds that to nearest even before its lowest kCut bits. A
  // tie is one only if the f32 has no bits below it.
  static HWY_INLINE Vhalf Rounded(Vf v, Vhalf& half) {
    const Dhalf d;
    const Du32 du;
    constexpr uint16_t kHalf = 1u << (kCut - 1);
    const auto bits = hn::BitCast(du, v);
    const auto down = hn::Set(d, uint16_t{kHalf - 1});
#if HWY_TARGET <= HWY_AVX3
    half = Vhalf{_mm512_cvtps_ph(v.raw, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC)};
    const auto below = hn::TestBit(bits, hn::Set(du, (1u << (kFormat.shift - 1)) - 1));
    const auto odd = hn::TestBit(half, hn::Set(d, uint16_t{1u << kCut}));
    const decltype(odd) up{static_cast<decltype(odd.raw)>(odd.raw | below.raw)};
    return hn::IfThenElse(up, hn::Add(half, hn::Set(d, kHalf)), hn::Add(half, down));
#else
    // Sets the bit above those that are cut off if one of them is set.
    const auto cut = hn::Set(du, (1u << (kFormat.shift - 2)) - 1);
    const auto sticky = hn::Or(bits, hn::Add(hn::And(bits, cut), cut));
    const auto kept = hn::BitCast(Df(), hn::AndNot(cut, sticky));
    half = hn::BitCast(d, hn::DemoteTo(hn::Rebind<hwy::float16_t, Df>(), kept));
    const auto odd = hn::And(hn::ShiftRight<kCut>(half), hn::Set(d, uint16_t{1}));
    return hn::Add(hn::Add(half, down), odd);
#endif
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace phasor::cpu
HWY_AFTER_NAMESPACE();

#endif  // !PHASOR_SCALAR_TARGET
#endif  // include guard
