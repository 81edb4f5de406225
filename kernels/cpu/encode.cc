// SPDX-License-Identifier: Apache-2.0
// Encode for every SIMD target. Contract: kernels/ops/encode.h.
#include <cmath>
#include <cstring>

#include "kernels/cpu/kernels.h"
#include "kernels/reference/reference.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/encode.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.h, which includes this file once per target.
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace phasor::cpu {
namespace HWY_NAMESPACE {

#if PHASOR_SCALAR_TARGET

void EncodeRows(const EncodeArgs& args) { reference::Encode(args); }

#else

// Where a vector of sines and cosines goes.
enum class Emit { kStore, kStream, kAccumulate };

// Scratch of one call, carved from args.scratch.
struct Scratch {
  uint64_t* phases;  // [2 * half], slack behind
  uint64_t* steps;   // [2 * half]
  double* row;       // [dim], also as float
  double* trig;      // 2 * [2 * half], f64 only
};

HWY_INLINE Scratch Carve(const EncodeArgs& args) {
  const int64_t entries = 2 * args.table->half + kLaneSlack;
  auto* words = reinterpret_cast<uint64_t*>(args.scratch);
  auto* row = reinterpret_cast<double*>(words + 2 * entries);
  return {words, words + entries, row, row + ((args.dim + kLaneSlack + 7) & ~int64_t{7})};
}

template <Emit kEmit>
HWY_INLINE void PutVector(Vf v, float* p) {
  const Df d;
  if constexpr (kEmit == Emit::kStream) {
    hn::Stream(v, d, p);
  } else if constexpr (kEmit == Emit::kAccumulate) {
    hn::StoreU(hn::Add(hn::LoadU(d, p), v), d, p);
  } else {
    hn::StoreU(v, d, p);
  }
}

template <Emit kEmit>
HWY_INLINE void PutScalar(float v, float* p) {  // the end of a block: never streamed
  *p = kEmit == Emit::kAccumulate ? *p + v : v;
}

// Neighbouring columns first0, second0, first1, ...
template <Emit kEmit>
HWY_INLINE void PutInterleaved(Vf first, Vf second, float* p) {
  const Df d;
#if HWY_HAVE_SCALABLE
  if constexpr (kEmit == Emit::kAccumulate) {
    Vf old_first, old_second;
    hn::LoadInterleaved2(d, p, old_first, old_second);
    first = hn::Add(old_first, first);
    second = hn::Add(old_second, second);
  }
  hn::StoreInterleaved2(first, second, d, p);
#else
  const auto lower = hn::InterleaveLower(d, first, second);
  const auto upper = hn::InterleaveUpper(d, first, second);
  // InterleaveLower/Upper work within 128-bit blocks; put the blocks in order.
  if constexpr (hn::MaxLanes(Df()) == 4) {
    PutVector<kEmit>(lower, p);
    PutVector<kEmit>(upper, p + 4);
  } else if constexpr (hn::MaxLanes(Df()) == 8) {
    PutVector<kEmit>(hn::ConcatLowerLower(d, upper, lower), p);
    PutVector<kEmit>(hn::ConcatUpperUpper(d, upper, lower), p + 8);
  } else {
    if constexpr (kEmit == Emit::kAccumulate) {
      Vf old_first, old_second;
      hn::LoadInterleaved2(d, p, old_first, old_second);
      hn::StoreInterleaved2(hn::Add(old_first, first), hn::Add(old_second, second), d, p);
    } else {
      hn::StoreInterleaved2(first, second, d, p);
    }
  }
#endif
}

enum class Layout { kApart, kInterleaved, kSineOnly };

// Sines and cosines of one block of pairs into an f32 row. When kAdvance, phases move on to the next
// row by `steps` as they are read (whole vectors: only for a row's only block).
template <Emit kEmit, Layout kLayout, bool kScaled, bool kAdvance>
HWY_INLINE void EmitPairs(const EncodeBlock& block, uint64_t* HWY_RESTRICT even, int64_t half,
                          const uint64_t* HWY_RESTRICT steps, float amplitude, float* HWY_RESTRICT row) {
  const Df df;
  const Du64 d64;
  const auto a = hn::Set(df, amplitude);
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(df));
  const bool sin_first = block.sin_begin < block.cos_begin;
  float* sin_out = row + block.sin_begin;
  float* cos_out = row + (kLayout == Layout::kSineOnly ? 0 : block.cos_begin);
  float* pair_out = sin_first ? sin_out : cos_out;
  const auto compute = [&](int64_t i, Vf& sin, Vf& cos) HWY_ATTR {
    const auto even_phase = hn::LoadU(d64, even + i / 2);
    const auto odd_phase = hn::LoadU(d64, even + half + i / 2);
    if constexpr (kAdvance) {
      hn::StoreU(hn::Add(even_phase, hn::LoadU(d64, steps + i / 2)), d64, even + i / 2);
      hn::StoreU(hn::Add(odd_phase, hn::LoadU(d64, steps + half + i / 2)), d64, even + half + i / 2);
    }
    SinCosVector(even_phase, odd_phase, sin, cos);
    if constexpr (kScaled) {
      sin = hn::Mul(a, sin);
      cos = hn::Mul(a, cos);
    }
  };
  Vf sin, cos;
  int64_t i = 0;
  for (; i + lanes <= block.pairs; i += lanes) {
    compute(i, sin, cos);
    if constexpr (kLayout == Layout::kInterleaved) {
      PutInterleaved<kEmit>(sin_first ? sin : cos, sin_first ? cos : sin, pair_out + 2 * i);
    } else {
      PutVector<kEmit>(sin, sin_out + i);
      if constexpr (kLayout == Layout::kApart) PutVector<kEmit>(cos, cos_out + i);
    }
  }
  if (i == block.pairs) return;
  HWY_ALIGN float s[hn::MaxLanes(Df())];
  HWY_ALIGN float c[hn::MaxLanes(Df())];
  compute(i, sin, cos);
  hn::Store(sin, df, s);
  hn::Store(cos, df, c);
  for (int64_t k = 0; i + k < block.pairs; ++k) {
    PutScalar<kEmit>(s[k], sin_out + (i + k) * block.stride);
    if constexpr (kLayout != Layout::kSineOnly) {
      PutScalar<kEmit>(c[k], cos_out + (i + k) * block.stride);
    }
  }
}

template <Emit kEmit, bool kScaled, bool kAdvance = false>
HWY_INLINE void EmitBlock(const EncodeArgs& args, const EncodeBlock& block, const Scratch& scratch,
                          float* row) {
  const float amplitude = static_cast<float>(args.amplitude);
  const int64_t half = args.table->half;
  uint64_t* even = scratch.phases + block.first_pair / 2;
  const uint64_t* steps = scratch.steps + block.first_pair / 2;
  if (block.cos_begin < 0) {
    EmitPairs<kEmit, Layout::kSineOnly, kScaled, kAdvance>(block, even, half, steps, amplitude, row);
  } else if (block.stride == 2) {
    EmitPairs<kEmit, Layout::kInterleaved, kScaled, kAdvance>(block, even, half, steps, amplitude, row);
  } else {
    EmitPairs<kEmit, Layout::kApart, kScaled, kAdvance>(block, even, half, steps, amplitude, row);
  }
}

// Whether EncodeRow32 advances the phases itself.
HWY_INLINE bool AdvancesInPlace(const EncodeArgs& args, bool stepping) {
  return stepping && args.block_count == 1 && static_cast<float>(args.amplitude) == 1.0f;
}

// One f32 row of encodings, without add_to.
template <bool kStream>
HWY_INLINE void EncodeRow32(const EncodeArgs& args, const Scratch& scratch, bool stepping, float* row) {
  constexpr Emit kSet = kStream ? Emit::kStream : Emit::kStore;
  const bool scaled = static_cast<float>(args.amplitude) != 1.0f;
  for (int64_t b = 0; b < args.block_count; ++b) {
    const EncodeBlock& block = args.blocks[b];
    if (block.accumulate) {
      scaled ? EmitBlock<Emit::kAccumulate, true>(args, block, scratch, row)
             : EmitBlock<Emit::kAccumulate, false>(args, block, scratch, row);
    } else if (scaled) {
      EmitBlock<Emit::kStore, true>(args, block, scratch, row);
    } else if (AdvancesInPlace(args, stepping)) {
      EmitBlock<kSet, false, true>(args, block, scratch, row);
    } else {
      EmitBlock<kSet, false>(args, block, scratch, row);
    }
  }
  for (int64_t c = args.zero_begin; c < args.dim; ++c) row[c] = 0.0f;
}

// out = scale * add_to + row, in the element type. `row` has slack behind.
template <typename E>
HWY_INLINE void FinishRow32(const EncodeArgs& args, const float* row, int64_t t) {
  using T = typename E::T;
  const Df df;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(df));
  const auto scale = hn::Set(df, static_cast<float>(args.embedding_scale));
  auto* out = reinterpret_cast<T*>(args.out + t * args.out_row_bytes);
  const auto* add = args.add_to == nullptr
                        ? nullptr
                        : reinterpret_cast<const T*>(args.add_to + t * args.add_to_row_bytes);
  int64_t c = 0;
  for (; c + lanes <= args.dim; c += lanes) {
    auto v = hn::LoadU(df, row + c);
    if (add != nullptr) v = hn::MulAdd(scale, E::Load(add + c), v);
    E::Store(v, out + c);
  }
  if (c == args.dim) return;
  HWY_ALIGN T tail[hn::MaxLanes(Df())] = {};
  const size_t bytes = static_cast<size_t>(args.dim - c) * sizeof(T);
  auto v = hn::LoadU(df, row + c);
  if (add != nullptr) {
    std::memcpy(tail, add + c, bytes);
    v = hn::MulAdd(scale, E::Load(tail), v);
  }
  E::Store(v, tail);
  std::memcpy(out + c, tail, bytes);
}

// One f64 row, finished.
HWY_INLINE void EncodeRow64(const EncodeArgs& args, const Scratch& scratch, int64_t t) {
  const Dd df;
  const Du64 du;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(df));
  const int64_t entries = 2 * args.table->half;
  double* sin = scratch.trig;
  double* cos = sin + entries + kLaneSlack;
  const auto amplitude = hn::Set(df, args.amplitude);
  for (int64_t i = 0; i < entries; i += lanes) {
    Vd s, c;
    SinCosVector(hn::LoadU(du, scratch.phases + i), s, c);
    if (args.amplitude != 1.0) {
      s = hn::Mul(amplitude, s);
      c = hn::Mul(amplitude, c);
    }
    hn::StoreU(s, df, sin + i);
    hn::StoreU(c, df, cos + i);
  }
  double* row = scratch.row;
  for (int64_t c = args.zero_begin; c < args.dim; ++c) row[c] = 0.0;
  for (int64_t b = 0; b < args.block_count; ++b) {
    const EncodeBlock& block = args.blocks[b];
    for (int64_t i = 0; i < block.pairs; ++i) {
      const int64_t e = args.table->Entry(block.first_pair + i);
      double& first = row[block.sin_begin + i * block.stride];
      first = block.accumulate ? first + sin[e] : sin[e];
      if (block.cos_begin < 0) continue;
      double& second = row[block.cos_begin + i * block.stride];
      second = block.accumulate ? second + cos[e] : cos[e];
    }
  }
  std::byte* out = args.out + t * args.out_row_bytes;
  if (args.add_to == nullptr) {
    std::memcpy(out, row, static_cast<size_t>(args.dim) * sizeof(double));
    return;
  }
  const std::byte* add = args.add_to + t * args.add_to_row_bytes;
  for (int64_t c = 0; c < args.dim; ++c) {
    double v;
    std::memcpy(&v, add + 8 * c, sizeof v);
    v = std::fma(args.embedding_scale, v, row[c]);
    std::memcpy(out + 8 * c, &v, sizeof v);
  }
}

// Whether f32 rows can be written with full-vector non-temporal stores.
HWY_INLINE bool CanStream(const EncodeArgs& args) {
  const uintptr_t vector_bytes = hn::Lanes(Df()) * sizeof(float);
  uintptr_t bits = reinterpret_cast<uintptr_t>(args.out) | static_cast<uintptr_t>(args.out_row_bytes);
  for (int64_t b = 0; b < args.block_count; ++b) {
    const EncodeBlock& block = args.blocks[b];
    if (block.accumulate) return false;
    const int64_t begin =
        block.stride == 2 ? HWY_MIN(block.sin_begin, block.cos_begin) : block.sin_begin;
    bits |= static_cast<uintptr_t>(begin) * sizeof(float);
    if (block.stride == 1 && block.cos_begin >= 0) {
      bits |= static_cast<uintptr_t>(block.cos_begin) * sizeof(float);
    }
  }
  return (bits & (vector_bytes - 1)) == 0;
}

// The constant whole step between neighbouring rows on every axis, if there is one: then phases
// advance by addition, which is the same number as the direct formula.
HWY_INLINE bool ConstantStep(const EncodeArgs& args, Position* step) {
  if (args.rows < 3) return false;
  const Position* p = args.positions;
  for (int a = 0; a < args.axes; ++a) {
    step[a] = {static_cast<int64_t>(static_cast<uint64_t>(p[args.axes + a].whole) -
                                    static_cast<uint64_t>(p[a].whole)),
               0};
  }
  for (int64_t t = 0; t < args.rows; ++t, p += args.axes) {
    for (int a = 0; a < args.axes; ++a) {
      if (p[a].fraction != 0) return false;
      if (t > 0 && static_cast<uint64_t>(p[a].whole) - static_cast<uint64_t>(p[a - args.axes].whole) !=
                       static_cast<uint64_t>(step[a].whole)) {
        return false;
      }
    }
  }
  return true;
}

template <bool kStream>
HWY_INLINE void WriteRow32(const EncodeArgs& args, const Scratch& scratch, bool stepping, bool direct,
                           int64_t t) {
  if (direct) {
    EncodeRow32<kStream>(args, scratch, stepping,
                         reinterpret_cast<float*>(args.out + t * args.out_row_bytes));
    return;
  }
  float* row = reinterpret_cast<float*>(scratch.row);
  EncodeRow32<false>(args, scratch, stepping, row);
  switch (args.dtype) {
    case Dtype::kFloat32:
      return FinishRow32<F32>(args, row, t);
    case Dtype::kFloat16:
      return FinishRow32<F16>(args, row, t);
    default:
      return FinishRow32<BF16>(args, row, t);
  }
}

void EncodeRows(const EncodeArgs& args) {
  const Scratch scratch = Carve(args);
  const int64_t entries = 2 * args.table->half;
  const bool direct = args.dtype == Dtype::kFloat32 && args.add_to == nullptr;
  const bool stream = direct && args.stream && CanStream(args);
  Position step[kMaxAxes];
  const bool stepping = ConstantStep(args, step);
  if (stepping) {
    // A step turns without offsets.
    for (const AxisRun& run : args.table->runs) {
      IntegerPhases(args.table->fraction.data() + run.begin,
                    static_cast<uint64_t>(step[run.axis].whole), 0, run.count,
                    scratch.steps + run.begin);
    }
  }
  for (int64_t t = 0; t < args.rows; ++t) {
    if (t == 0 || !stepping) {
      RowPhases(*args.table, args.positions + t * args.axes, kSinCosOffset, scratch.phases);
    } else if (args.dtype == Dtype::kFloat64 || !AdvancesInPlace(args, stepping)) {
      AdvancePhases(scratch.steps, entries, scratch.phases);
    }
    if (args.dtype == Dtype::kFloat64) {
      EncodeRow64(args, scratch, t);
    } else if (stream) {
      WriteRow32<true>(args, scratch, stepping, direct, t);
    } else {
      WriteRow32<false>(args, scratch, stepping, direct, t);
    }
  }
  if (stream) hwy::FlushStream();
}

#endif  // PHASOR_SCALAR_TARGET

}  // namespace HWY_NAMESPACE
}  // namespace phasor::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace phasor::cpu {

EncodeKernel GetEncode(Target target) {
  switch (target) {
#if HWY_ARCH_X86
    case Target::kAvx3:
      return HWY_CHOOSE_AVX3(EncodeRows);
    case Target::kAvx2:
      return HWY_CHOOSE_AVX2(EncodeRows);
    case Target::kArm:
      break;
#else
    case Target::kAvx3:
    case Target::kAvx2:
      break;
    case Target::kArm:
      return HWY_STATIC_DISPATCH(EncodeRows);
#endif
    case Target::kScalar:
      break;
  }
  return &reference::Encode;
}

}  // namespace phasor::cpu
#endif  // HWY_ONCE
