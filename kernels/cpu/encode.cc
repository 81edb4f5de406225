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
  uint64_t* phases;  // [tile, entries], slack behind; kSinCosOffset added
  uint64_t* steps;   // [entries]
  double* rows;      // [tile, dim] as float, or [dim] as double; slack behind
  double* trig;      // 2 * [entries], f64 only
  int64_t entries;
};

HWY_INLINE Scratch Carve(const EncodeArgs& args) {
  const int64_t entries = 2 * args.table->half;
  const int64_t tile = EncodeTile(*args.table);
  auto* phases = reinterpret_cast<uint64_t*>(args.scratch);
  uint64_t* steps = phases + tile * entries + kLaneSlack;
  auto* rows = reinterpret_cast<double*>(steps + entries + kLaneSlack);
  return {phases, steps, rows, rows + EncodeRowsWords(tile, args.dim), entries};
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

// Where f32 rows go: the output itself or scratch.
struct Rows32 {
  float* first;
  int64_t stride;  // in floats
};

// Sines and cosines of one block of pairs into `count` rows. Kept out of line: inlined into one
// function, the variants compete for registers and every one spills.
template <Emit kEmit, Layout kLayout, bool kScaled>
HWY_NOINLINE void EmitBlock(const EncodeArgs& args, const EncodeBlock& block,
                            const Scratch& scratch, int64_t count, Rows32 rows) {
  const Df df;
  const Du64 d64;
  const auto amplitude = hn::Set(df, static_cast<float>(args.amplitude));
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(df));
  const int64_t half = args.table->half;
  const bool sin_first = block.sin_begin < block.cos_begin;
  for (int64_t t = 0; t < count; ++t) {
    const uint64_t* HWY_RESTRICT even = scratch.phases + t * scratch.entries + block.first_pair / 2;
    const uint64_t* HWY_RESTRICT odd = even + half;
    float* HWY_RESTRICT row = rows.first + t * rows.stride;
    float* sin_out = row + block.sin_begin;
    float* cos_out = row + (kLayout == Layout::kSineOnly ? 0 : block.cos_begin);
    int64_t i = 0;
    Vf sin, cos;
    for (; i + lanes <= block.pairs; i += lanes) {
      SinCosVector(hn::LoadU(d64, even + i / 2), hn::LoadU(d64, odd + i / 2), sin, cos);
      if constexpr (kScaled) {
        sin = hn::Mul(amplitude, sin);
        cos = hn::Mul(amplitude, cos);
      }
      if constexpr (kLayout == Layout::kInterleaved) {
        if (sin_first) {
          PutInterleaved<kEmit>(sin, cos, sin_out + 2 * i);
        } else {
          PutInterleaved<kEmit>(cos, sin, cos_out + 2 * i);
        }
      } else {
        PutVector<kEmit>(sin, sin_out + i);
        if constexpr (kLayout == Layout::kApart) PutVector<kEmit>(cos, cos_out + i);
      }
    }
    if (i == block.pairs) continue;
    SinCosVector(hn::LoadU(d64, even + i / 2), hn::LoadU(d64, odd + i / 2), sin, cos);
    if constexpr (kScaled) {
      sin = hn::Mul(amplitude, sin);
      cos = hn::Mul(amplitude, cos);
    }
    HWY_ALIGN float s[hn::MaxLanes(Df())];
    HWY_ALIGN float c[hn::MaxLanes(Df())];
    hn::Store(sin, df, s);
    hn::Store(cos, df, c);
    for (int64_t k = 0; i + k < block.pairs; ++k) {
      PutScalar<kEmit>(s[k], sin_out + (i + k) * block.stride);
      if constexpr (kLayout != Layout::kSineOnly) {
        PutScalar<kEmit>(c[k], cos_out + (i + k) * block.stride);
      }
    }
  }
}

template <Emit kEmit, bool kScaled>
HWY_INLINE void EmitBlockOf(const EncodeArgs& args, const EncodeBlock& block,
                            const Scratch& scratch, int64_t count, Rows32 rows) {
  if (block.cos_begin < 0) {
    EmitBlock<kEmit, Layout::kSineOnly, kScaled>(args, block, scratch, count, rows);
  } else if (block.stride == 2) {
    EmitBlock<kEmit, Layout::kInterleaved, kScaled>(args, block, scratch, count, rows);
  } else {
    EmitBlock<kEmit, Layout::kApart, kScaled>(args, block, scratch, count, rows);
  }
}

// Encodings of `count` rows in f32, without add_to.
void EmitRows32(const EncodeArgs& args, const Scratch& scratch, int64_t count, bool stream,
                Rows32 rows) {
  const bool scaled = static_cast<float>(args.amplitude) != 1.0f;
  for (int64_t b = 0; b < args.block_count; ++b) {
    const EncodeBlock& block = args.blocks[b];
    if (block.accumulate) {
      scaled ? EmitBlockOf<Emit::kAccumulate, true>(args, block, scratch, count, rows)
             : EmitBlockOf<Emit::kAccumulate, false>(args, block, scratch, count, rows);
    } else if (scaled) {
      EmitBlockOf<Emit::kStore, true>(args, block, scratch, count, rows);
    } else if (stream) {
      EmitBlockOf<Emit::kStream, false>(args, block, scratch, count, rows);
    } else {
      EmitBlockOf<Emit::kStore, false>(args, block, scratch, count, rows);
    }
  }
  if (args.zero_begin == args.dim) return;
  for (int64_t t = 0; t < count; ++t) {
    for (int64_t c = args.zero_begin; c < args.dim; ++c) rows.first[t * rows.stride + c] = 0.0f;
  }
}

// out = scale * add_to + row for rows [first, first + count), in the element type.
template <typename E>
HWY_NOINLINE void FinishRows32(const EncodeArgs& args, int64_t first, int64_t count, Rows32 rows) {
  using T = typename E::T;
  const Df df;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(df));
  const auto scale = hn::Set(df, static_cast<float>(args.embedding_scale));
  for (int64_t t = 0; t < count; ++t) {
    const float* row = rows.first + t * rows.stride;
    auto* out = reinterpret_cast<T*>(args.out + (first + t) * args.out_row_bytes);
    const auto* add =
        args.add_to == nullptr
            ? nullptr
            : reinterpret_cast<const T*>(args.add_to + (first + t) * args.add_to_row_bytes);
    int64_t c = 0;
    for (; c + lanes <= args.dim; c += lanes) {
      auto v = hn::LoadU(df, row + c);
      if (add != nullptr) v = hn::MulAdd(scale, E::Load(add + c), v);
      E::Store(v, out + c);
    }
    if (c == args.dim) continue;
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
}

// One f64 row, finished. `phases` are the row's.
HWY_NOINLINE void EncodeRow64(const EncodeArgs& args, const Scratch& scratch,
                              const uint64_t* phases, int64_t t) {
  const Dd df;
  const Du64 du;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(df));
  double* sin = scratch.trig;
  double* cos = sin + scratch.entries + kLaneSlack;
  const auto amplitude = hn::Set(df, args.amplitude);
  for (int64_t i = 0; i < scratch.entries; i += lanes) {
    Vd s, c;
    SinCosVector(hn::LoadU(du, phases + i), s, c);
    if (args.amplitude != 1.0) {
      s = hn::Mul(amplitude, s);
      c = hn::Mul(amplitude, c);
    }
    hn::StoreU(s, df, sin + i);
    hn::StoreU(c, df, cos + i);
  }
  double* row = scratch.rows;
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
  uintptr_t bits =
      reinterpret_cast<uintptr_t>(args.out) | static_cast<uintptr_t>(args.out_row_bytes);
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
      if (t > 0 &&
          static_cast<uint64_t>(p[a].whole) - static_cast<uint64_t>(p[a - args.axes].whole) !=
              static_cast<uint64_t>(step[a].whole)) {
        return false;
      }
    }
  }
  return true;
}

// Phases of rows [first, first + count) into scratch. When `stepping`, rows after the first of the
// call advance from the row before.
HWY_NOINLINE void TilePhases(const EncodeArgs& args, const Scratch& scratch, bool stepping,
                             int64_t first, int64_t count, const uint64_t* previous) {
  for (int64_t t = 0; t < count; ++t) {
    uint64_t* row = scratch.phases + t * scratch.entries;
    if (previous == nullptr || !stepping) {
      RowPhases(*args.table, args.positions + (first + t) * args.axes, kSinCosOffset, row);
    } else {
      AddPhases(previous, scratch.steps, scratch.entries, row);
    }
    previous = row;
  }
}

// The phases of a constant step, without offsets.
void StepPhases(const EncodeArgs& args, const Position* step, uint64_t* steps) {
  for (const AxisRun& run : args.table->runs) {
    IntegerPhases(args.table->fraction.data() + run.begin,
                  static_cast<uint64_t>(step[run.axis].whole), 0, run.count, steps + run.begin);
  }
}

void FinishTile(const EncodeArgs& args, int64_t first, int64_t count, Rows32 rows) {
  switch (args.dtype) {
    case Dtype::kFloat32:
      return FinishRows32<F32>(args, first, count, rows);
    case Dtype::kFloat16:
      return FinishRows32<F16>(args, first, count, rows);
    default:
      return FinishRows32<BF16>(args, first, count, rows);
  }
}

void EncodeRows(const EncodeArgs& args) {
  const Scratch scratch = Carve(args);
  const int64_t tile = EncodeTile(*args.table);
  const bool direct = args.dtype == Dtype::kFloat32 && args.add_to == nullptr &&
                      args.out_row_bytes % static_cast<int64_t>(sizeof(float)) == 0;
  const bool stream = direct && args.stream && CanStream(args);
  Position step[kMaxAxes];
  const bool stepping = ConstantStep(args, step);
  if (stepping) StepPhases(args, step, scratch.steps);
  for (int64_t first = 0, count; first < args.rows; first += count) {
    count = HWY_MIN(tile, args.rows - first);
    const uint64_t* previous = first == 0 ? nullptr : scratch.phases + (tile - 1) * scratch.entries;
    TilePhases(args, scratch, stepping, first, count, previous);
    if (args.dtype == Dtype::kFloat64) {
      for (int64_t t = 0; t < count; ++t) {
        EncodeRow64(args, scratch, scratch.phases + t * scratch.entries, first + t);
      }
    } else if (direct) {
      auto* out = reinterpret_cast<float*>(args.out + first * args.out_row_bytes);
      EmitRows32(args, scratch, count, stream,
                 {out, args.out_row_bytes / static_cast<int64_t>(sizeof(float))});
    } else {
      const Rows32 rows{reinterpret_cast<float*>(scratch.rows), args.dim};
      EmitRows32(args, scratch, count, false, rows);
      FinishTile(args, first, count, rows);
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
