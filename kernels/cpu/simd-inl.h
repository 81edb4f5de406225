// SPDX-License-Identifier: Apache-2.0
// Building blocks for each SIMD target: phases of a row, sine and cosine. Every function does the
// operations of its scalar definition (kernels/math/phase.h, kernels/math/sincos.h) in the same
// order, so vectors and scalars agree bit for bit.
//
// kernels/cpu/*.cc include this once per SIMD target. It is empty on targets without vectors.
#if defined(PHASOR_KERNELS_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PHASOR_KERNELS_CPU_SIMD_INL_H_
#undef PHASOR_KERNELS_CPU_SIMD_INL_H_
#else
#define PHASOR_KERNELS_CPU_SIMD_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "kernels/base/dtype.h"
#include "kernels/math/phase.h"
#include "kernels/math/sincos.h"
#include "kernels/plan/plan.h"

// Targets without vectors or fused multiply-add run the scalar reference instead.
#undef PHASOR_SCALAR_TARGET
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
#define PHASOR_SCALAR_TARGET 1
#else
#define PHASOR_SCALAR_TARGET 0
#endif

#if !PHASOR_SCALAR_TARGET

HWY_BEFORE_NAMESPACE();
namespace phasor::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Df = hn::ScalableTag<float>;
using Dd = hn::ScalableTag<double>;
using Du32 = hn::RebindToUnsigned<Df>;
using Di32 = hn::RebindToSigned<Df>;
using Du64 = hn::RebindToUnsigned<Dd>;
using Vf = hn::Vec<Df>;
using Vd = hn::Vec<Dd>;
using Vu32 = hn::Vec<Du32>;
using Vu64 = hn::Vec<Du64>;
using Vi32 = hn::Vec<Di32>;

// The same vector, of which the compiler does not know how it came about. It would make constants
// anew in every step of a loop, and load a vector again for each of its uses.
template <class V>
HWY_INLINE V Opaque(V v) {
#if HWY_ARCH_X86
  __asm__("" : "+v"(v.raw));
#endif
  return v;
}

// Opaque(v), which is loaded before what is loaded from p later. Compilers would change that order,
// and processors read ahead of loads in the order of their addresses.
template <class V, typename T>
HWY_INLINE V LoadedBefore(V v, [[maybe_unused]] const T*& p) {
#if HWY_ARCH_X86
  __asm__("" : "+v"(v.raw), "+r"(p));
#endif
  return v;
}

// The lanes 0, n / 2, 1, n / 2 + 1, ... of n.
HWY_INLINE Vu64 AlternateHalves(Vu64 v) {
  const Du64 d;
  const uint64_t lanes = hn::Lanes(d);
  HWY_ALIGN uint64_t from[hn::MaxLanes(Du64())];
  for (uint64_t i = 0; i < lanes; ++i) from[i] = i / 2 + i % 2 * (lanes / 2);
  return hn::TableLookupLanes(v, hn::SetTableIndices(d, from));
}

// Phases ------------------------------------------------------------------------------------------

// The lower halves of the 128-bit products of v and a number, whose upper half is zero if `narrow`.
HWY_INLINE Vu64 MulLow(Vu64 v, Vu32 number_low, Vu32 number_high, bool narrow) {
  const Du32 d;
  const auto low = hn::BitCast(d, v);
  auto cross = hn::MulEven(hn::BitCast(d, hn::ShiftRight<32>(v)), number_low);
  if (!narrow) cross = hn::Add(cross, hn::MulEven(low, number_high));
  return hn::Add(hn::MulEven(low, number_low), hn::ShiftLeft<32>(cross));
}

// The upper halves. No sum overflows: (2^32 - 1)^2 + 2 (2^32 - 1) is below 2^64.
HWY_INLINE Vu64 MulHigh(Vu64 v, Vu32 number_low, Vu32 number_high) {
  const Du32 d;
  const auto low = hn::BitCast(d, v);
  const auto high = hn::BitCast(d, hn::ShiftRight<32>(v));
  const auto first =
      hn::Add(hn::MulEven(high, number_low), hn::ShiftRight<32>(hn::MulEven(low, number_low)));
  const auto second =
      hn::Add(hn::MulEven(low, number_high), hn::And(first, hn::Set(Du64(), 0xFFFFFFFFu)));
  return hn::Add(hn::MulEven(high, number_high),
                 hn::Add(hn::ShiftRight<32>(first), hn::ShiftRight<32>(second)));
}

// phases[i] = add + PhaseOf(p, frequency i); with kMore, plus the old phases[i]. kReal: p has a
// fraction.
template <bool kMore, bool kReal>
HWY_INLINE void PhasesAt(Position p, const uint64_t* HWY_RESTRICT whole,
                         const uint64_t* HWY_RESTRICT fraction, uint64_t add, int64_t count,
                         uint64_t* HWY_RESTRICT phases) {
  const Du64 d;
  const Du32 d32;
  const auto bias = hn::Set(d, add);
  const auto n = static_cast<uint64_t>(p.whole);
  const auto n_low = hn::Set(d32, static_cast<uint32_t>(n));
  const auto n_high = hn::Set(d32, static_cast<uint32_t>(n >> 32));
  const bool narrow = (n >> 32) == 0;
  const auto part_low = hn::Set(d32, static_cast<uint32_t>(p.fraction));
  const auto part_high = hn::Set(d32, static_cast<uint32_t>(p.fraction >> 32));
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto f = hn::LoadU(d, fraction + i);
    auto sum = MulLow(f, n_low, n_high, narrow);
    if constexpr (kReal) {
      const auto turns = MulLow(hn::LoadU(d, whole + i), part_low, part_high, false);
      sum = hn::Add(sum, hn::Add(turns, MulHigh(f, part_low, part_high)));
    }
    if constexpr (kMore) sum = hn::Add(sum, hn::LoadU(d, phases + i));
    hn::StoreU(hn::Add(sum, bias), d, phases + i);
  }
  for (; i < count; ++i) {
    phases[i] =
        (kMore ? phases[i] : 0) + add + PhaseOf(p, {static_cast<int64_t>(whole[i]), fraction[i]});
  }
}

// PhasesAt for one run of a row.
template <bool kMore>
HWY_INLINE void RunPhases(const PhaseTable& table, const AxisRun& run, Position position,
                          uint64_t add, uint64_t* HWY_RESTRICT phases) {
  const int64_t first = run.layer * table.entries() + run.begin;
  const uint64_t* const whole = table.whole.data() + first;
  const uint64_t* const fraction = table.fraction.data() + first;
  if (position.fraction == 0) {
    PhasesAt<kMore, false>(position, whole, fraction, add, run.count, phases);
  } else {
    PhasesAt<kMore, true>(position, whole, fraction, add, run.count, phases);
  }
}

// The phases of every table entry for a token at p[axes], plus `add`.
HWY_INLINE void RowPhases(const PhaseTable& table, const Position* p, uint64_t add,
                          uint64_t* HWY_RESTRICT phases) {
  for (const AxisRun& run : table.runs) {
    if (run.layer == 0) {
      RunPhases<false>(table, run, p[run.axis], add, phases + run.begin);
    } else {
      RunPhases<true>(table, run, p[run.axis], 0, phases + run.begin);
    }
  }
  if (table.offset.empty()) return;
  for (int64_t i = 0; i < table.entries(); ++i) phases[i] += table.offset[i];
}

// out = a + b. `count` must be a multiple of 32.
HWY_INLINE void AddPhases(const uint64_t* a, const uint64_t* b, int64_t count, uint64_t* out) {
  const Du64 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < count; i += lanes) {
    hn::StoreU(hn::Add(hn::LoadU(d, a + i), hn::LoadU(d, b + i)), d, out + i);
  }
}

// Sine and cosine ---------------------------------------------------------------------------------

// `yes` where bit 30 of v is set, else `no`.
HWY_INLINE Vu32 IfBit30(Vu32 v, Vu32 yes, Vu32 no) {
  const Du32 du;
#if HWY_TARGET == HWY_AVX2
  // A blend reads the top bit of each lane. GCC 12 would compare the vector with zero first,
  // because two blends read it.
  const auto top = hn::ShiftLeft<1>(v);
  Vu32 out;
  __asm__("vblendvps %3, %2, %1, %0" : "=x"(out.raw) : "x"(no.raw), "x"(yes.raw), "x"(top.raw));
  return out;
#else
  return hn::IfThenElse(hn::TestBit(v, hn::Set(du, 0x40000000u)), yes, no);
#endif
}

// The phases of a vector of pairs in words: lane k is pair k. Those of a token have kSinCosOffset
// added and the top bit of `low` flipped, which makes it the tail of SinCos32. Those of a step are
// plain.
struct PhaseWords {
  Vu32 high;
  Vi32 low;
};

// The phases of a step: even[i] is pair 2i, odd[i] is pair 2i+1.
HWY_INLINE PhaseWords StepWords(Vu64 even, Vu64 odd) {
  const Du32 du;
  const auto even_32 = hn::BitCast(du, even);
  const auto odd_32 = hn::BitCast(du, odd);
  return {hn::OddEven(odd_32, hn::DupOdd(even_32)),
          hn::BitCast(Di32(), hn::OddEven(hn::DupEven(odd_32), even_32))};
}

// The phases of a token. They must have kSinCosOffset added.
HWY_INLINE PhaseWords TokenWords(Vu64 even, Vu64 odd) {
  const auto words = StepWords(even, odd);
  return {words.high, hn::Xor(words.low, hn::Set(Di32(), INT32_MIN))};
}

// The phases of the token that is a step further. A low word that has wrapped around is less than
// it was, also with both top bits flipped.
HWY_INLINE PhaseWords Advance(PhaseWords token, PhaseWords step) {
  const Du32 du;
  const auto low = hn::Add(token.low, step.low);
  const auto high = hn::Add(token.high, step.high);
  const auto carry = hn::RebindMask(du, hn::Lt(low, token.low));
#if HWY_TARGET <= HWY_AVX3
  return {hn::IfThenElse(carry, hn::Add(high, hn::Set(du, 1u)), high), low};
#else
  return {hn::Sub(high, hn::VecFromMask(du, carry)), low};
#endif
}

// SinCos32 of a token. Does the same roundings with fewer operations: g is h / 2 and w is z / 4, so
// the coefficients of w carry powers of 4. The middle bits are placed below 2^-9, where they
// already have their value. The steps of sine and cosine alternate, so that neither waits for its
// own previous step.
HWY_INLINE void SinCosWords(PhaseWords token, Vf& sin, Vf& cos) {
  using namespace sincos32;
  const Df df;
  const Du32 du;
  const Di32 di;
  const auto high = token.high;
  const auto sign = hn::Set(du, 0x80000000u);
  const auto l = hn::ConvertTo(df, token.low);
  const auto head = hn::BitCast(di, hn::And(high, hn::Set(du, kHeadMask)));
  const auto head_f = hn::ConvertTo(df, head);
  const auto middle = hn::BitCast(
      df, hn::Or(hn::And(high, hn::Set(du, kMiddleMask)), hn::Set(du, 0x3B000000u)));  // 2^-9
  const auto d = hn::Sub(middle, hn::Set(df, 0x1p-9f + 0x1p-27f));
  const auto g = hn::MulAdd(head_f, hn::Set(df, kScale / 2), hn::Set(df, kHeadBias / 2));
  const auto e = hn::MulAdd(l, hn::Set(df, kTailScale), d);
  const auto w = hn::MulAdd(g, g, hn::Mul(g, e));
  const auto x = hn::MulAdd(g, hn::Set(df, 2.0f), e);
  auto u = hn::MulAdd(w, hn::Set(df, 64 * kS3), hn::Set(df, 16 * kS2));
  auto c = hn::MulAdd(w, hn::Set(df, 256 * kC4), hn::Set(df, 64 * kC3));
  u = hn::MulAdd(w, u, hn::Set(df, 4 * kS1));
  c = hn::MulAdd(w, c, hn::Set(df, 16 * kC2));
  u = hn::MulAdd(w, u, hn::Set(df, kS0));
  c = hn::MulAdd(w, c, hn::Set(df, 4 * kC1));
  auto s = hn::Mul(x, u);
  c = hn::MulAdd(w, c, hn::Set(df, 1.0f));
  s = hn::MulAdd(l, hn::Set(df, kTailA), s);
  s = hn::MulAdd(d, hn::Set(df, kA), s);
  s = hn::MulAdd(g, hn::Set(df, 2 * kA), s);
  // Bit 31 of `high` negates both; then bit 30 turns (sin, cos) into (cos, -sin). Done on integers,
  // because integer instructions combine more inputs in one operation.
  const auto negate = hn::And(high, sign);
  const auto s_bits = hn::Xor(hn::BitCast(du, s), negate);
  const auto c_bits = hn::Xor(hn::BitCast(du, c), negate);
  sin = hn::BitCast(df, IfBit30(high, c_bits, s_bits));
  cos = hn::BitCast(df, IfBit30(high, hn::Xor(s_bits, sign), c_bits));
}

HWY_INLINE void SinCosVector(Vu64 even, Vu64 odd, Vf& sin, Vf& cos) {
  SinCosWords(TokenWords(even, odd), sin, cos);
}

// SinCos64 of each lane. The phases must have kSinCosOffset added.
HWY_INLINE void SinCosVector(Vu64 phase, Vd& sin, Vd& cos) {
  using namespace sincos64;
  const Dd df;
  const Du64 du;
  const hn::RebindToSigned<Dd> di;
  const auto p = hn::Sub(phase, hn::Set(du, kSinCosOffset - (uint64_t{1} << 61)));
  const auto r = hn::Sub(hn::BitCast(di, hn::And(p, hn::Set(du, 0x3FFFFFFFFFFFFFFFu))),
                         hn::Set(di, int64_t{1} << 61));
  const auto x = hn::Mul(hn::ConvertTo(df, r), hn::Set(df, kScale));
  const auto z = hn::Mul(x, x);
  auto u = hn::MulAdd(z, hn::Set(df, kS6), hn::Set(df, kS5));
  u = hn::MulAdd(z, u, hn::Set(df, kS4));
  u = hn::MulAdd(z, u, hn::Set(df, kS3));
  u = hn::MulAdd(z, u, hn::Set(df, kS2));
  u = hn::MulAdd(z, u, hn::Set(df, kS1));
  u = hn::MulAdd(z, u, hn::Set(df, kS0));
  const auto s = hn::MulAdd(x, hn::Set(df, kA), hn::Mul(x, u));
  auto v = hn::MulAdd(z, hn::Set(df, kC7), hn::Set(df, kC6));
  v = hn::MulAdd(z, v, hn::Set(df, kC5));
  v = hn::MulAdd(z, v, hn::Set(df, kC4));
  v = hn::MulAdd(z, v, hn::Set(df, kC3));
  v = hn::MulAdd(z, v, hn::Set(df, kC2));
  v = hn::MulAdd(z, v, hn::Set(df, kC1));
  const auto c = hn::MulAdd(z, v, hn::Set(df, 1.0));
  const auto shifted = hn::ShiftLeft<1>(p);
  const auto one_bit = hn::Set(du, uint64_t{1} << 63);
  const auto swap = hn::RebindMask(df, hn::TestBit(p, hn::Set(du, uint64_t{1} << 62)));
  const auto sin_sign = hn::BitCast(df, hn::And(p, one_bit));
  const auto cos_sign = hn::BitCast(df, hn::And(hn::Xor(p, shifted), one_bit));
  sin = hn::Xor(hn::IfThenElse(swap, c, s), sin_sign);
  cos = hn::Xor(hn::IfThenElse(swap, s, c), cos_sign);
}

}  // namespace HWY_NAMESPACE
}  // namespace phasor::cpu
HWY_AFTER_NAMESPACE();

#endif  // !PHASOR_SCALAR_TARGET
#endif  // include guard
