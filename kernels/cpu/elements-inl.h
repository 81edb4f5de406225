// SPDX-License-Identifier: Apache-2.0
// Loads and stores vectors of elements of each type. Rounds as kernels/math/convert.h does, bit for
// bit. Compiled per target, like kernels/cpu/simd-inl.h.
#if defined(PHASOR_KERNELS_CPU_ELEMENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PHASOR_KERNELS_CPU_ELEMENTS_INL_H_
#undef PHASOR_KERNELS_CPU_ELEMENTS_INL_H_
#else
#define PHASOR_KERNELS_CPU_ELEMENTS_INL_H_
#endif

#include <cstdint>

#include "kernels/cpu/memory-inl.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/math/convert.h"

#if !PHASOR_SCALAR_TARGET

HWY_BEFORE_NAMESPACE();
namespace phasor::cpu {
namespace HWY_NAMESPACE {

// 16-bit floats -----------------------------------------------------------------------------------

// Rounds f32 to the upper 16 bits, to nearest even, in the upper half of each lane; the lower half
// is garbage. NaNs stay NaNs: here they come from bfloat16 inputs and so have a zero lower half,
// and the carry cannot leave the payload.
HWY_INLINE Vu32 RoundToBFloat16(Vf v) {
  const Du32 du;
  const auto bits = hn::BitCast(du, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  return hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7FFFu)));
}

// The same for two vectors, whose upper halves (`kept`) and lower ones (`cut`) are words. A number
// rounds up if the half that is cut off exceeds 2^15, or equals it and the other half is odd: if
// the cut half with that bit in its lowest place exceeds 2^15.
using Du16 = hn::Repartition<uint16_t, Df>;
HWY_INLINE Vu32 RoundHalves(hn::Vec<Du16> kept, hn::Vec<Du16> cut) {
  const Du16 d;
  const auto one = hn::Set(d, uint16_t{1});
  const auto up = hn::Gt(hn::Or(cut, hn::And(kept, one)), hn::Set(d, uint16_t{0x8000}));
#if HWY_TARGET <= HWY_AVX3
  return hn::BitCast(Du32(), hn::IfThenElse(up, hn::Add(kept, one), kept));
#else
  return hn::BitCast(Du32(), hn::Sub(kept, hn::VecFromMask(d, up)));
#endif
}

#if HWY_TARGET <= HWY_AVX3
// Rounds a and b. Word i of the result is from the lane whose lower half is word places[i] of both
// together.
HWY_INLINE Vu32 RoundWords(Vf a, Vf b, const uint16_t* places) {
  const Du16 d;
  const auto low = hn::Load(d, places);
  const auto high = hn::Or(low, hn::Set(d, uint16_t{1}));
  const auto words = [&](hn::Vec<Du16> which) HWY_ATTR {
    return hn::Vec<Du16>{_mm512_permutex2var_epi16(_mm512_castps_si512(a.raw), which.raw,
                                                   _mm512_castps_si512(b.raw))};
  };
  return RoundHalves(words(high), words(low));
}
#endif

// Rounds two vectors: `low` in the lower half of each word, `high` in the upper one.
HWY_INLINE Vu32 PackBFloat16(Vf low, Vf high) {
#if HWY_TARGET <= HWY_AVX3
  HWY_ALIGN static constexpr uint16_t kPlaces[32] = {0,  32, 2,  34, 4,  36, 6,  38, 8,  40, 10,
                                                     42, 12, 44, 14, 46, 16, 48, 18, 50, 20, 52,
                                                     22, 54, 24, 56, 26, 58, 28, 60, 30, 62};
  return RoundWords(low, high, kPlaces);
#else
  const Du32 du;
  const Du16 d16;
  const auto low_bits = hn::BitCast(du, low), high_bits = hn::BitCast(du, high);
  return RoundHalves(
      hn::OddEven(hn::BitCast(d16, high_bits), hn::BitCast(d16, hn::ShiftRight<16>(low_bits))),
      hn::OddEven(hn::BitCast(d16, hn::ShiftLeft<16>(high_bits)), hn::BitCast(d16, low_bits)));
#endif
}

// Rounds two vectors, one behind the other.
HWY_INLINE Vu32 ConcatBFloat16(Vf first, Vf second) {
#if HWY_TARGET <= HWY_AVX3
  HWY_ALIGN static constexpr uint16_t kPlaces[32] = {0,  2,  4,  6,  8,  10, 12, 14, 16, 18, 20,
                                                     22, 24, 26, 28, 30, 32, 34, 36, 38, 40, 42,
                                                     44, 46, 48, 50, 52, 54, 56, 58, 60, 62};
  return RoundWords(first, second, kPlaces);
#else
  const Df d;
  return PackBFloat16(hn::ConcatEven(d, second, first), hn::ConcatOdd(d, second, first));
#endif
}

// Each struct loads and stores Lanes(Df) elements as f32 (F64: Lanes(Dd) as f64), at any alignment.
struct F32 {
  using T = float;
  static HWY_INLINE Vf Load(const T* p) { return hn::LoadU(Df(), p); }
  static HWY_INLINE void Store(Vf v, T* p) { hn::StoreU(v, Df(), p); }
};
struct BF16 {
  using T = uint16_t;
  static HWY_INLINE Vf Load(const T* p) {
    const hn::Rebind<uint16_t, Df> dh;
    return hn::BitCast(Df(), hn::ShiftLeft<16>(hn::PromoteTo(Du32(), hn::LoadU(dh, p))));
  }
  static HWY_INLINE void Store(Vf v, T* p) {
    const hn::Rebind<uint16_t, Df> dh;
    const auto bits = hn::BitCast(Di32(), hn::ShiftRight<16>(RoundToBFloat16(v)));
    hn::StoreU(hn::DemoteTo(dh, bits), dh, p);
  }
  // The even and the odd ones of two vectors of lanes.
  static HWY_INLINE void LoadEvenOdd(const T* p, Vf& even, Vf& odd) {
    const Du32 du;
    const auto words = Opaque(hn::LoadU(du, reinterpret_cast<const uint32_t*>(p)));
    even = hn::BitCast(Df(), hn::ShiftLeft<16>(words));
    odd = hn::BitCast(Df(), hn::And(words, hn::Set(du, 0xFFFF0000u)));
  }
  template <bool kStream>
  static HWY_INLINE void StoreEvenOdd(Vf even, Vf odd, T* p) {
    Put<kStream>(PackBFloat16(even, odd), Du32(), reinterpret_cast<uint32_t*>(p));
  }
  // Two vectors, one behind the other.
  static HWY_INLINE hn::Vec<Du16> Concat(Vf first, Vf second) {
    return hn::BitCast(Du16(), ConcatBFloat16(first, second));
  }
};
struct F16 {
  using T = uint16_t;
  static HWY_INLINE Vf Load(const T* p) {
    const hn::Rebind<uint16_t, Df> dh;
    const hn::Rebind<hwy::float16_t, Df> df16;
    return hn::PromoteTo(Df(), hn::BitCast(df16, hn::LoadU(dh, p)));
  }
  static HWY_INLINE void Store(Vf v, T* p) {
    const hn::Rebind<uint16_t, Df> dh;
    const hn::Rebind<hwy::float16_t, Df> df16;
    hn::StoreU(hn::BitCast(dh, hn::DemoteTo(df16, v)), dh, p);
  }
  // Two vectors, one behind the other.
  static HWY_INLINE hn::Vec<Du16> Concat(Vf first, Vf second) {
    const hn::Rebind<uint16_t, Df> dh;
    const hn::Rebind<hwy::float16_t, Df> df16;
    return hn::Combine(Du16(), hn::BitCast(dh, hn::DemoteTo(df16, second)),
                       hn::BitCast(dh, hn::DemoteTo(df16, first)));
  }
};
struct F64 {
  using T = double;
  static HWY_INLINE Vd Load(const T* p) { return hn::LoadU(Dd(), p); }
  static HWY_INLINE void Store(Vd v, T* p) { hn::StoreU(v, Dd(), p); }
};

// 8-bit floats ------------------------------------------------------------------------------------

// Writes Float8FromFloat(v) of every lane. The sum of a magnitude and a power of two has the
// magnitude in units of the last place of its binade, rounded, in its lowest bits. A code is that
// number plus the place of the binade. Only the lowest 8 bits of a word are kept, so what the power
// and the exponent leave above them does not matter. Min returns its second argument for a NaN.
HWY_INLINE void StoreFloat8(Vf v, const Float8Format& format, uint8_t* p) {
  const Df d;
  const Du32 du;
  const hn::Rebind<uint8_t, Df> d8;
  const int shift = static_cast<int>(format.shift);
  const auto number = hn::Eq(v, v);
  const auto magnitude = hn::Min(hn::Abs(v), hn::BitCast(d, hn::Set(du, format.largest)));
  const auto binade =
      hn::And(hn::BitCast(du, hn::Max(magnitude, hn::BitCast(d, hn::Set(du, format.min_normal)))),
              hn::Set(du, 0x7F800000u));
  const auto power = hn::BitCast(d, hn::Add(binade, hn::Set(du, format.shift << 23)));
  const auto units = hn::BitCast(du, hn::Add(magnitude, power));
  const auto place =
      hn::Sub(hn::ShiftRightSame(binade, shift), hn::Set(du, format.min_normal >> format.shift));
  const auto low = hn::Set(du, 0x7Fu);
  const auto sign = hn::AndNot(low, hn::ShiftRight<24>(hn::BitCast(du, v)));
  const auto code = hn::Or(hn::And(hn::Add(units, place), low), sign);
  hn::StoreU(hn::TruncateTo(d8, hn::IfThenElse(hn::RebindMask(du, number), code, low)), d8, p);
}

}  // namespace HWY_NAMESPACE
}  // namespace phasor::cpu
HWY_AFTER_NAMESPACE();

#endif  // !PHASOR_SCALAR_TARGET
#endif  // include guard
