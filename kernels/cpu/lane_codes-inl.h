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
using Du16 = hn::Repartition<uint16_t, Df>;  // two vectors of lanes
using Vu16 = hn::Vec<Du16>;

// The lower halves of two vectors of words, and the upper ones.
HWY_INLINE Vu16 LowerHalves(Vu32 first, Vu32 second) {
  const Du16 d16;
  return hn::ConcatEven(d16, hn::BitCast(d16, second), hn::BitCast(d16, first));
}
HWY_INLINE Vu16 UpperHalves(Vu32 first, Vu32 second) {
  const Du16 d16;
  return hn::ConcatOdd(d16, hn::BitCast(d16, second), hn::BitCast(d16, first));
}
// Stores the lower bytes of 16-bit words.
HWY_INLINE void StoreLowerBytes(Vu16 v, void* p) {
  const hn::Rebind<uint8_t, Du16> d8;
  hn::StoreU(hn::TruncateTo(d8, v), d8, static_cast<uint8_t*>(p));
}

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
  // The same for two vectors of numbers between -128 and 128.
  static HWY_INLINE void StoreTwo(Vf first, Vf second, T* p) {
    const auto code = [](Vf v) HWY_ATTR {  // in the lower byte
      return hn::BitCast(Du32(), hn::Add(hn::Trunc(Shifted(v)), hn::Set(Df(), 0x1.8p23f)));
    };
    StoreLowerBytes(LowerHalves(code(first), code(second)), p);
  }

 private:
  static HWY_INLINE Vf Shifted(Vf v) {
    const Df d;
    const auto shifted = hn::Add(v, hn::CopySign(hn::Set(d, 0x1.fffffep-2f), v));
    return hn::IfThenElseZero(hn::Eq(v, v), shifted);
  }
};

template <Float8 kType>
struct F8 {
  using T = uint8_t;
  static HWY_INLINE Vf Load(const T* p) {
    const hn::Rebind<int16_t, Df> di16;
    const auto codes = hn::LoadU(D8(), reinterpret_cast<const int8_t*>(p));
    const auto value = Value(hn::PromoteTo(di16, codes));
    return kType == Float8::kE5M2 ? value : hn::Mul(value, hn::Set(Df(), kUnit));
  }
  static HWY_INLINE void Store(Vf v, T* p) { StoreFloat8(v, FormatOf(kType), p); }

  // The same for two vectors of lanes in units of kUnit. A rotation commutes with a power of two.
  static HWY_INLINE void LoadTwo(const T* p, Vf& first, Vf& second) {
    const hn::Repartition<int16_t, Df> di16;
    const hn::Half<decltype(di16)> dhalf;
    const hn::Rebind<int8_t, decltype(di16)> d8;
    const auto codes = hn::PromoteTo(di16, hn::LoadU(d8, reinterpret_cast<const int8_t*>(p)));
    const auto bits = Bits(codes);
    first = FromFloat16(hn::LowerHalf(dhalf, bits));
    second = FromFloat16(hn::UpperHalf(dhalf, bits));
  }
  // NaNs must have the upper bit of their payload, as all results of arithmetic do.
  static HWY_INLINE void StoreTwo(Vf first, Vf second, T* p) {
    const Du16 d16;
    const Du32 du;
    const auto low = hn::Set(d16, uint16_t{0x7F});
    const auto upper = UpperHalves(hn::BitCast(du, first), hn::BitCast(du, second));
    const auto number =
        hn::Lt(hn::And(upper, hn::Set(d16, uint16_t{0x7FFF})), hn::Set(d16, uint16_t{0x7F81}));
    const auto sign = hn::AndNot(low, hn::ShiftRight<8>(upper));
    const auto code = hn::Or(hn::And(LowerHalves(Place(first), Place(second)), low), sign);
    StoreLowerBytes(hn::IfThenElse(number, code, low), p);
  }

 private:
  static constexpr float kUnit = kType == Float8::kE5M2 ? 1 : 256;

  // The bits of the float16 numbers that are codes / kUnit.
  template <class V>
  static HWY_INLINE V Bits(V codes) {
    const hn::DFromV<V> d;
    if constexpr (kType == Float8::kE5M2) return hn::ShiftLeft<8>(codes);
    const auto bits = hn::And(hn::ShiftLeft<7>(codes), hn::Set(d, static_cast<int16_t>(0xBF80)));
    const auto exponent_and_more = hn::Set(d, int16_t{0x3F80});
    const auto nan = hn::Eq(hn::And(bits, exponent_and_more), exponent_and_more);
    return hn::IfThenElse(nan, hn::Set(d, int16_t{0x7E00}), bits);
  }
  template <class V>
  static HWY_INLINE Vf FromFloat16(V bits) {
    return hn::PromoteTo(Df(), hn::BitCast(hn::Rebind<hwy::float16_t, Df>(), bits));
  }
  template <class V>
  static HWY_INLINE Vf Value(V codes) {
    return FromFloat16(Bits(codes));
  }
  // The code of a magnitude in the lowest 7 bits, as StoreFloat8 finds it. The power of two has
  // there what StoreFloat8 subtracts from the binade's place.
  static HWY_INLINE Vu32 Place(Vf v) {
    constexpr Float8Format kFormat = FormatOf(kType);
    constexpr uint32_t kLess = kType == Float8::kE5M2 ? 0 : 8 << 23;  // 2^-8
    constexpr uint32_t kMinNormal = kFormat.min_normal - kLess;
    constexpr uint32_t kLargest = kFormat.largest - kLess;
    constexpr uint32_t kPlace = (0u - (kMinNormal >> kFormat.shift)) & 0x7Fu;
    static_assert(kPlace % 2 == 0, "or ties would round to odd");
    const Df d;
    const Du32 du;
    const auto magnitude = hn::Min(hn::Abs(v), hn::BitCast(d, hn::Set(du, kLargest)));
    const auto normal = hn::Max(magnitude, hn::BitCast(d, hn::Set(du, kMinNormal)));
    const auto binade = hn::And(hn::BitCast(du, normal), hn::Set(du, 0x7F800000u));
    const auto power = hn::Add(binade, hn::Set(du, (kFormat.shift << 23) + kPlace));
    const auto units = hn::BitCast(du, hn::Add(magnitude, hn::BitCast(d, power)));
    return hn::Add(units, hn::ShiftRight<static_cast<int>(kFormat.shift)>(binade));
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace phasor::cpu
HWY_AFTER_NAMESPACE();

#endif  // !PHASOR_SCALAR_TARGET
#endif  // include guard
