// SPDX-License-Identifier: Apache-2.0
// Reads and writes lanes of 8-bit codes for each SIMD target, beside simd-inl.h, which has the
// wider ones. It is empty on targets without vectors.
#if defined(PHASOR_KERNELS_CPU_LANE_CODES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PHASOR_KERNELS_CPU_LANE_CODES_INL_H_
#undef PHASOR_KERNELS_CPU_LANE_CODES_INL_H_
#else
#define PHASOR_KERNELS_CPU_LANE_CODES_INL_H_
#endif

#include "kernels/cpu/elements-inl.h"
#include "kernels/cpu/memory-inl.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/math/key_blocks.h"

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
  // key_blocks::Int8Of.
  static HWY_INLINE void Store(Vf v, T* p) {
    hn::StoreU(hn::DemoteTo(D8(), hn::ConvertTo(Di32(), Shifted(v))), D8(), p);
  }
#if HWY_ARCH_X86
  // The same for the lanes of a block of Q8_0, which are numbers between -128 and 128.
  static HWY_INLINE void StoreBlock(const Vf* v, T* p) {
    const auto code = [&](int i) HWY_ATTR {
      const auto magnitude = hn::Set(Df(), key_blocks::kBelowHalf);
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
  static HWY_INLINE Vf Shifted(Vf v) {
    const Df d;
    const auto shifted = hn::Add(v, hn::CopySign(hn::Set(d, key_blocks::kBelowHalf), v));
    return hn::IfThenElseZero(hn::Eq(v, v), shifted);
  }
};

// With kNumbers, no lane is infinite or a NaN, before and after, which saves every tenth
// instruction. An object holds the constants of even and odd lanes.
template <Float8 kType, bool kNumbers = false>
class F8 {
  using Dhalf = hn::Rebind<uint16_t, Df>;
  using Vhalf = hn::Vec<Dhalf>;

 public:
  using T = uint8_t;
  using D8 = hn::Repartition<uint8_t, Dhalf>;
  using Numbers = F8<kType, true>;
  HWY_INLINE F8() {}  // an implicit one would not be compiled for the target
  static HWY_INLINE Vf Load(const T* p) {
    const auto codes = hn::PromoteTo(Dhalf(), hn::LoadU(Du8(), p));
    const auto value = Units(hn::ShiftLeft<8>(codes), hn::Set(Dhalf(), kCodeBits));
    return kType == Float8::kE5M2 ? value : hn::Mul(value, hn::Set(Df(), kUnit));
  }
  static HWY_INLINE void Store(Vf v, T* p) { StoreFloat8(v, FormatOf(kType), p); }

  // Of so many codes, the larger of `largest` and their magnitudes, whose upper bit is set.
  static constexpr int64_t kCodes = static_cast<int64_t>(hn::MaxLanes(D8()));
  static HWY_INLINE hn::Vec<D8> Larger(hn::Vec<D8> largest, const T* p) {
    return hn::Max(largest, hn::Or(hn::LoadU(D8(), p), hn::Set(D8(), uint8_t{0x80})));
  }
  static HWY_INLINE bool AreNumbers(hn::Vec<D8> largest) {
    return hn::AllTrue(D8(), hn::Lt(largest, hn::Set(D8(), uint8_t{0x81 + kLargest})));
  }

  // The even and the odd ones of two vectors of lanes, in units of kUnit. A rotation commutes with
  // a power of two.
  HWY_INLINE void LoadEvenOdd(const T* p, Vf& even, Vf& odd) const {
    const Dhalf d;
    const auto codes = hn::LoadU(d, reinterpret_cast<const uint16_t*>(p));
    even = Units(hn::ShiftLeft<8>(codes), code_bits_);
    odd = Units(kType == Float8::kE5M2 ? hn::AndNot(low_byte_, codes) : codes, code_bits_);
  }
  // NaNs must have the upper bit of their payload, as all results of arithmetic do.
  template <bool kStream>
  HWY_INLINE void StoreEvenOdd(Vf even, Vf odd, T* p) const {
    const D8 d8;
    Vhalf even_half, odd_half;
    const auto e = Rounded(even, even_half), o = Rounded(odd, odd_half);
    const auto bytes = [&](Vhalf in_low, Vhalf in_high) HWY_ATTR {
      return hn::BitCast(D8(), hn::IfVecThenElse(low_byte_, in_low, in_high));
    };
    auto magnitude = bytes(hn::ShiftRight<kCut>(e), hn::ShiftLeft<8 - kCut>(o));
    auto signs = magnitude;
    if constexpr (kType == Float8::kE5M2) {
      magnitude = hn::AndNot(sign_, magnitude);
    } else {
      signs = bytes(hn::ShiftRight<8>(even_half), odd_half);
    }
    auto code = hn::OrAnd(hn::Min(magnitude, largest_), sign_, signs);
    if constexpr (!kNumbers) {  // above infinity are NaNs only
      code = hn::IfThenElse(hn::Gt(magnitude, infinity_), hn::Set(d8, uint8_t{0x7F}), code);
    }
    if constexpr (kStream) {
      StreamTo(code, d8, p);
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
  static constexpr uint16_t kHalf = 1u << (kCut - 1);
  static constexpr uint16_t kCodeBits = 0xBF80;  // of E4M3 in a float16
  static constexpr uint8_t kLargest = kType == Float8::kE5M2 ? 0x7B : 0x7E;
  // The bits of an f32 below the one that decides how it is rounded; on AVX2 also without the
  // highest of them.
  static constexpr uint32_t kBelow = (1u << (kFormat.shift - (HWY_TARGET <= HWY_AVX3 ? 1 : 2))) - 1;

  static HWY_INLINE Vhalf Words(uint16_t bits) { return Opaque(hn::Set(Dhalf(), bits)); }
  static HWY_INLINE hn::Vec<D8> Bytes(uint8_t bits) { return Opaque(hn::Set(D8(), bits)); }

  const Vhalf low_byte_ = Words(0x00FF);
  const Vhalf code_bits_ = Words(kCodeBits);
  const Vhalf half_ = Words(kHalf);
  const Vhalf down_ = Words(kHalf - 1);
  const Vhalf odd_ = Words(1u << kCut);
  const Vu32 below_ = Opaque(hn::Set(Du32(), kBelow));
  const hn::Vec<D8> sign_ = Bytes(0x80);
  const hn::Vec<D8> largest_ = Bytes(kLargest);
  const hn::Vec<D8> infinity_ = Bytes(0x7C00 >> kCut);

  // The values of codes in the upper bytes of words. The lower bytes must be zero for E5M2.
  static HWY_INLINE Vf Units(Vhalf codes, Vhalf code_bits) {
    const Dhalf d;
    auto bits = codes;
    if constexpr (kType == Float8::kE4M3) {
      const auto shifted =
          hn::BitCast(d, hn::ShiftRight<1>(hn::BitCast(hn::RebindToSigned<Dhalf>(), codes)));
      bits = hn::And(shifted, code_bits);
      if constexpr (!kNumbers) {
        const auto magnitude = hn::Set(d, uint16_t{0x3F80});
        const auto is_nan = hn::Eq(hn::And(shifted, magnitude), magnitude);
        bits = hn::IfThenElse(is_nan, hn::Set(d, uint16_t{0x7E00}), bits);
      }
    }
    return hn::PromoteTo(Df(), hn::BitCast(hn::Rebind<hwy::float16_t, Df>(), bits));
  }

  // Cuts v off to float16 (`half`), and rounds that to nearest even before its lowest kCut bits. A
  // tie is one only if the f32 has no bits below it.
  HWY_INLINE Vhalf Rounded(Vf v, Vhalf& half) const {
    const Dhalf d;
    const auto bits = hn::BitCast(Du32(), v);
#if HWY_TARGET <= HWY_AVX3
    half = Vhalf{_mm512_cvtps_ph(v.raw, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC)};
    // To AND masks costs nothing, to OR them an instruction.
    const __mmask16 tie = _mm512_testn_epi32_mask(bits.raw, below_.raw);
    const hn::Mask<Dhalf> even{_mm256_mask_testn_epi16_mask(tie, half.raw, odd_.raw)};
    return hn::IfThenElse(even, hn::Add(half, down_), hn::Add(half, half_));
#else
    // Sets the bit above those that are cut off if one of them is set.
    const auto sticky = hn::Or(bits, hn::Add(hn::And(bits, below_), below_));
    const auto kept = hn::BitCast(Df(), hn::AndNot(below_, sticky));
    half = hn::BitCast(d, hn::DemoteTo(hn::Rebind<hwy::float16_t, Df>(), kept));
    const auto odd = hn::And(hn::ShiftRight<kCut>(half), hn::Set(d, uint16_t{1}));
    return hn::Add(hn::Add(half, down_), odd);
#endif
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace phasor::cpu
HWY_AFTER_NAMESPACE();

#endif  // !PHASOR_SCALAR_TARGET
#endif  // include guard
