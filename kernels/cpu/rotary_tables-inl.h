// SPDX-License-Identifier: Apache-2.0
// The sines and cosines of a tile of tokens, for each SIMD target. They are computed once and
// shared by all heads of all tensors. They are stored in each order that a rotation reads: natural
// (pair j at j), split (even pairs, then odd pairs, because two bfloat16 lanes share a 32-bit word)
// and interleaved ([c s ...] and [-s c ...]).
//
// kernels/cpu/rotary.cc includes this once per SIMD target. It is empty on targets without vectors.
#if defined(PHASOR_KERNELS_CPU_ROTARY_TABLES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PHASOR_KERNELS_CPU_ROTARY_TABLES_INL_H_
#undef PHASOR_KERNELS_CPU_ROTARY_TABLES_INL_H_
#else
#define PHASOR_KERNELS_CPU_ROTARY_TABLES_INL_H_
#endif

#include "kernels/cpu/rotate_head-inl.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/ops/rotary.h"

#if !PHASOR_SCALAR_TARGET

HWY_BEFORE_NAMESPACE();
namespace phasor::cpu {
namespace HWY_NAMESPACE {

// The scratch of one call, parts of args.scratch.
struct Scratch {
  uint64_t* phases;
  uint64_t* from_phases;
  float* tables32;   // 8 * stride per token
  double* tables64;  // 2 * stride per token
  double* lanes_in;  // one head, also as float
  double* lanes_out;
  double* amplitudes;    // per pair, xPos only
  float* amplitudes_32;  // the same, rounded
  int64_t stride;
};

HWY_INLINE Scratch Carve(const RotaryArgs& args) {
  const int64_t entries = args.table->entries() + kLaneSlack;
  const int64_t stride = RotaryTableStride(args.pairs);
  const int64_t rows = RotaryTile(args.frequency_heads * args.pairs) * args.frequency_heads;
  auto* words = reinterpret_cast<uint64_t*>(args.scratch);
  auto* tables32 = reinterpret_cast<float*>(words + 2 * entries);
  auto* tables64 = reinterpret_cast<double*>(tables32 + 8 * rows * stride);
  double* lanes = tables64 + 2 * rows * stride;
  double* amplitudes = lanes + 4 * stride;
  return {words, words + entries,    tables32,   tables64,
          lanes, lanes + 2 * stride, amplitudes, reinterpret_cast<float*>(amplitudes + entries),
          stride};
}

// The tables of row t * frequency_heads + h, which belong to token t and head h.
HWY_INLINE Trig32 RowTrig32(const Scratch& s, int64_t row) {
  float* p = s.tables32 + 8 * s.stride * row;
  return {p, p + s.stride, p + 2 * s.stride, p + 3 * s.stride, p + 4 * s.stride, p + 6 * s.stride};
}
HWY_INLINE Trig64 RowTrig64(const Scratch& s, int64_t row) {
  double* p = s.tables64 + 2 * s.stride * row;
  return {p, p + s.stride};
}

// Which tables the tensors of a call read.
struct Needs {
  bool f32 = false;
  bool split = false;
  bool interleaved = false;
  bool f64 = false;
};

HWY_INLINE Needs NeedsOf(const RotaryArgs& args) {
  Needs needs;
  const bool same = args.pairing_in == args.pairing_out;
  for (int64_t i = 0; i < args.tensor_count; ++i) {
    const Dtype dtype = args.tensors[i].dtype;
    const bool float8 = args.tensors[i].float8 != Float8::kNone;
    const bool half_split = args.pairing_in != Pairing::kInterleaved;
    needs.f64 |= dtype == Dtype::kFloat64;
    needs.f32 |= dtype != Dtype::kFloat64;
    const KeyRows* const rows = args.tensors[i].rows;
    const bool float8_rows = rows != nullptr && (rows->form->code == KeyCode::kFloat8E4M3 ||
                                                 rows->form->code == KeyCode::kFloat8E5M2);
    needs.split |= same && half_split && ((dtype == Dtype::kBFloat16 && !float8) || float8_rows);
    needs.interleaved |=
        same && !half_split && (dtype == Dtype::kFloat32 || dtype == Dtype::kFloat16 || float8);
  }
  return needs;
}

// The phases of token t plus kSinCosOffset, as SinCosVector expects them.
HWY_NOINLINE void TokenPhases(const RotaryArgs& args, const Scratch& scratch, int64_t t) {
  // The negation below would also negate the offset, so its negative is added then.
  const uint64_t add = args.inverse ? 0 - kSinCosOffset : kSinCosOffset;
  RowPhases(*args.table, args.positions + t * args.axes, add, scratch.phases);
  const Du64 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t entries = args.table->entries();
  if (args.from_table != nullptr) {
    RowPhases(*args.from_table, args.from_positions + t * args.from_axes, 0, scratch.from_phases);
    for (int64_t i = 0; i < entries; i += lanes) {
      const auto to = hn::LoadU(d, scratch.phases + i);
      hn::StoreU(hn::Sub(to, hn::LoadU(d, scratch.from_phases + i)), d, scratch.phases + i);
    }
  }
  if (!args.inverse) return;
  for (int64_t i = 0; i < entries; i += lanes) {
    hn::StoreU(hn::Sub(hn::Zero(d), hn::LoadU(d, scratch.phases + i)), d, scratch.phases + i);
  }
}

// Whether amplitudes differ from pair to pair.
HWY_INLINE bool HasXpos(const RotaryArgs& args) {
  return args.xpos != nullptr || args.from_xpos != nullptr;
}

// The amplitudes of every pair of token t.
HWY_NOINLINE void TokenAmplitudes(const RotaryArgs& args, const Scratch& scratch, int64_t t) {
  const auto exponent = [](const Xpos* xpos, int64_t j, Position p) {
    return xpos == nullptr ? Exponent{0}
                           : XposExponent(p, xpos->center, xpos->rate[j], xpos->inverse);
  };
  const int64_t count = (args.frequency_heads - 1) * args.head_pairs + args.pairs;
  for (int64_t j = 0; j < count; ++j) {
    Exponent e = exponent(args.xpos, j, args.positions[t * args.axes]);
    if (args.from_xpos != nullptr) {
      e -= exponent(args.from_xpos, j, args.from_positions[t * args.from_axes]);
    }
    scratch.amplitudes[j] = args.amplitude * Exp2(args.inverse ? -e : e);
    scratch.amplitudes_32[j] = static_cast<float>(scratch.amplitudes[j]);
  }
}

// Fills the tables with the pairs from `first` on, which is even or 0.
HWY_NOINLINE void FillTrig32(const RotaryArgs& args, const Scratch& scratch, const Needs& needs,
                             int64_t first, const Trig32& out) {
  const Df df;
  const Du64 d64;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(df));
  auto amplitude = hn::Set(df, static_cast<float>(args.amplitude));
  const bool per_pair = HasXpos(args);
  const bool scaled = per_pair || static_cast<float>(args.amplitude) != 1.0f;
  const uint64_t* even = scratch.phases + first / 2;
  const uint64_t* odd = even + args.table->half;
  for (int64_t j = 0; j < args.pairs; j += lanes) {
    Vf sin, cos;
    SinCosVector(hn::LoadU(d64, even + j / 2), hn::LoadU(d64, odd + j / 2), sin, cos);
    if (scaled) {
      if (per_pair) amplitude = hn::LoadU(df, scratch.amplitudes_32 + first + j);
      sin = hn::Mul(amplitude, sin);
      cos = hn::Mul(amplitude, cos);
    }
    hn::StoreU(sin, df, out.sin + j);
    hn::StoreU(cos, df, out.cos + j);
    if (needs.interleaved) {
      hn::StoreInterleaved2(cos, sin, df, out.cos_sin + 2 * j);
      hn::StoreInterleaved2(hn::Neg(sin), cos, df, out.neg_cos + 2 * j);
    }
  }
  if (!needs.split) return;
  const int64_t half = scratch.stride / 2;
  const auto split = [&](const float* natural, int64_t j, float* even_then_odd) HWY_ATTR {
    Vf even_pairs, odd_pairs;
    hn::LoadInterleaved2(df, natural + j, even_pairs, odd_pairs);
    hn::StoreU(even_pairs, df, even_then_odd + j / 2);
    hn::StoreU(odd_pairs, df, even_then_odd + half + j / 2);
  };
  for (int64_t j = 0; j < args.pairs; j += 2 * lanes) {  // slack after the last pair
    split(out.sin, j, out.sin_split);
    split(out.cos, j, out.cos_split);
  }
}

HWY_NOINLINE void FillTrig64(const RotaryArgs& args, const Scratch& scratch, int64_t first,
                             const Trig64& out) {
  const Dd df;
  const Du64 du;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(df));
  const bool per_pair = HasXpos(args);
  auto amplitude0 = hn::Set(df, args.amplitude);
  auto amplitude1 = amplitude0;
  const uint64_t* even = scratch.phases + first / 2;
  const uint64_t* odd = even + args.table->half;
  for (int64_t j = 0; 2 * j < args.pairs; j += lanes) {
    Vd sin0, cos0, sin1, cos1;
    SinCosVector(hn::LoadU(du, even + j), sin0, cos0);
    SinCosVector(hn::LoadU(du, odd + j), sin1, cos1);
    if (per_pair) {
      hn::LoadInterleaved2(df, scratch.amplitudes + first + 2 * j, amplitude0, amplitude1);
    }
    if (per_pair || args.amplitude != 1.0) {
      sin0 = hn::Mul(amplitude0, sin0);
      cos0 = hn::Mul(amplitude0, cos0);
      sin1 = hn::Mul(amplitude1, sin1);
      cos1 = hn::Mul(amplitude1, cos1);
    }
    hn::StoreInterleaved2(sin0, sin1, df, out.sin + 2 * j);
    hn::StoreInterleaved2(cos0, cos1, df, out.cos + 2 * j);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace phasor::cpu
HWY_AFTER_NAMESPACE();

#endif  // !PHASOR_SCALAR_TARGET
#endif  // include guard
