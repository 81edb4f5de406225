// SPDX-License-Identifier: Apache-2.0
// Writes the sines and cosines of blocks of pairs to f32 rows. Compiled per target, like
// kernels/cpu/simd-inl.h; included by kernels/cpu/encode.cc.
#if defined(PHASOR_KERNELS_CPU_ENCODE_BLOCK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PHASOR_KERNELS_CPU_ENCODE_BLOCK_INL_H_
#undef PHASOR_KERNELS_CPU_ENCODE_BLOCK_INL_H_
#else
#define PHASOR_KERNELS_CPU_ENCODE_BLOCK_INL_H_
#endif

#include <cstdlib>
#include <cstring>

#include "kernels/cpu/memory-inl.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/ops/encode.h"

#if !PHASOR_SCALAR_TARGET

HWY_BEFORE_NAMESPACE();
namespace phasor::cpu {
namespace HWY_NAMESPACE {

// How a vector of sines or cosines is written. kEdge: into the caches, without fetching what
// follows, which is written past them.
enum class Emit { kStore, kEdge, kStream, kAccumulate };

// The scratch of one call, parts of args.scratch.
struct EncodeScratch {
  uint64_t* phases;      // [tile, entries], then slack; kSinCosOffset is added. Stepping: one row
  uint64_t* steps;       // [entries]
  double* rows;          // [EncodeRowsAtOnce, width] as float, or [width] as double; then slack
  double* sin;           // [entries], f64 only
  double* cos;           // [entries], f64 only
  double* amplitudes;    // [entries], xPos only
  float* amplitudes_32;  // the same, rounded
  int64_t entries;
};

HWY_INLINE EncodeScratch CarveEncode(const EncodeArgs& args) {
  const int64_t entries = args.table->entries();
  const int64_t row = entries + kLaneSlack;
  const int64_t tile = EncodeTile(*args.table);
  auto* phases = reinterpret_cast<uint64_t*>(args.scratch);
  uint64_t* steps = phases + tile * entries + kLaneSlack;
  auto* rows = reinterpret_cast<double*>(steps + row);
  double* sin = rows + EncodeRowsWords(*args.table, args.layout->width);
  double* amplitudes = sin + 2 * row;
  return {
      phases, steps, rows, sin, sin + row, amplitudes, reinterpret_cast<float*>(amplitudes + row),
      entries};
}

// The amplitudes of a block's pairs for a token at p.
HWY_INLINE void BlockAmplitudes(const EncodeArgs& args, const EncodeBlock& block, Position p,
                                const EncodeScratch& scratch) {
  for (int64_t j = block.first_pair; j < block.first_pair + block.pairs; ++j) {
    const Exponent e = XposExponent(p, args.xpos->center, args.xpos->rate[j], args.xpos->inverse);
    scratch.amplitudes[j] = args.amplitude * Exp2(e);
    scratch.amplitudes_32[j] = static_cast<float>(scratch.amplitudes[j]);
  }
}

template <Emit kEmit>
HWY_INLINE void PutVector(Vf v, float* p) {
  const Df d;
  if constexpr (kEmit == Emit::kStream) {
    StreamTo(v, d, p);
  } else if constexpr (kEmit == Emit::kAccumulate) {
    hn::StoreU(hn::Add(hn::LoadU(d, p), v), d, p);
  } else {
    hn::StoreU(v, d, p);
  }
}

// Writes the first n lanes, at the end of a block. Never streams.
template <Emit kEmit>
HWY_INLINE void PutFirst(Vf v, int64_t n, float* p) {
  HWY_ALIGN float lanes[hn::MaxLanes(Df())];
  hn::Store(v, Df(), lanes);
  for (int64_t k = 0; k < n; ++k) p[k] = kEmit == Emit::kAccumulate ? p[k] + lanes[k] : lanes[k];
}

// kAny: strides up to 4, missing components, a bias, amplitudes that differ. The others are fast.
enum class Layout { kApart, kInterleaved, kSineOnly, kAny };

HWY_INLINE Layout LayoutOf(const EncodeArgs& args, const EncodeBlock& block) {
  const bool plain = args.xpos == nullptr && args.layout->cos_bias == 0 && !block.negate_sin;
  if (!plain || block.sin_begin < 0) return Layout::kAny;
  if (block.stride == 1) return block.cos_begin < 0 ? Layout::kSineOnly : Layout::kApart;
  const bool neighbours = block.cos_begin >= 0 && std::abs(block.sin_begin - block.cos_begin) == 1;
  return block.stride == 2 && neighbours ? Layout::kInterleaved : Layout::kAny;
}

// Where rows go: the output itself or scratch.
struct RowsOut {
  std::byte* first;
  int64_t row_bytes;  // from one row to the next
};

// The same of f32 rows.
struct Rows32 {
  float* first;
  int64_t stride;  // in floats
};

HWY_INLINE Rows32 Rows32Of(RowsOut rows) {
  return {reinterpret_cast<float*>(rows.first),
          rows.row_bytes / static_cast<int64_t>(sizeof(float))};
}

// Loads the phases from p on. For kInterleaved, orders the n lanes as 0, n / 2, 1, n / 2 + 1, ...:
// interleaving sines and cosines within 128-bit blocks then puts neighbours side by side.
template <Layout kLayout>
HWY_INLINE Vu64 LoadPhases(const uint64_t* p) {
  const auto v = hn::LoadU(Du64(), p);
  return kLayout == Layout::kInterleaved ? AlternateHalves(v) : v;
}

// Where the sines and cosines of a vector of pairs go in the first row.
struct Column {
  float* first;    // kInterleaved: of 2 * pairs neighbours; else of the sines
  float* second;   // of the cosines, if they lie apart
  bool sin_first;  // kInterleaved
  int64_t pairs;   // at most a vector
};

template <Emit kEmit, Layout kLayout>
HWY_INLINE void PutColumn(const Column& column, Vf sin, Vf cos, int64_t at) {
  const Df df;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(df));
  float* first = column.first + at;
  float* second = column.second + at;
  if constexpr (kLayout == Layout::kInterleaved) {
    const auto s = sin;
    if (column.sin_first) {
      sin = hn::InterleaveLower(df, s, cos);
      cos = hn::InterleaveUpper(df, s, cos);
    } else {
      sin = hn::InterleaveLower(df, cos, s);
      cos = hn::InterleaveUpper(df, cos, s);
    }
    second = first + lanes;
  }
  if (HWY_LIKELY(column.pairs == lanes)) {
    PutVector<kEmit>(sin, first);
    if constexpr (kLayout != Layout::kSineOnly) PutVector<kEmit>(cos, second);
    return;
  }
  const int64_t n = kLayout == Layout::kInterleaved ? 2 * column.pairs : column.pairs;
  PutFirst<kEmit>(sin, HWY_MIN(n, lanes), first);
  if constexpr (kLayout == Layout::kApart) PutFirst<kEmit>(cos, n, second);
  if constexpr (kLayout == Layout::kInterleaved) {
    if (n > lanes) PutFirst<kEmit>(cos, n - lanes, second);
  }
}

// Fetches what the next vector of pairs writes to a row. Other rows come in between: a processor
// foresees writes to a few places, not to one in each of 64 rows.
template <Emit kEmit, Layout kLayout>
HWY_INLINE void FetchNextColumn(const Column& column, int64_t at) {
  if constexpr (kEmit == Emit::kStore) {
    constexpr auto kLanes = static_cast<int64_t>(hn::MaxLanes(Df()));
    constexpr int64_t kLine = kLineBytes / static_cast<int64_t>(sizeof(float));
    constexpr int64_t kWritten = kLayout == Layout::kInterleaved ? 2 * kLanes : kLanes;
    const int64_t next = at + HWY_MAX(kWritten, kLine);
    for (int64_t i = 0; i < kWritten; i += kLine) FetchToWrite(column.first + next + i);
    if constexpr (kLayout == Layout::kApart) FetchToWrite(column.second + next);
  }
}

template <Emit kEmit, Layout kLayout, bool kScaled>
HWY_INLINE void EmitVector(PhaseWords phases, Vf amplitude, const Column& column, int64_t at) {
  FetchNextColumn<kEmit, kLayout>(column, at);
  Vf sin, cos;
  SinCosWords(phases, sin, cos);
  if constexpr (kScaled) {
    sin = hn::Mul(amplitude, sin);
    cos = hn::Mul(amplitude, cos);
  }
  PutColumn<kEmit, kLayout>(column, sin, cos, at);
}

// Writes the sines and cosines of one block of pairs to `count` rows, one vector of pairs after the
// other. kStepping: scratch has the phases of the first row; those of each next row are a step
// further and stay in registers. Otherwise scratch has the phases of every row. Not inlined: in one
// function, the variants compete for registers and all of them spill.
template <Emit kEmit, Layout kLayout, bool kScaled, bool kStepping>
HWY_NOINLINE void EmitBlock(const EncodeArgs& args, const EncodeBlock& block,
                            const EncodeScratch& scratch, int64_t count, Rows32 rows) {
  constexpr int64_t kColumns = kLayout == Layout::kInterleaved ? 2 : 1;
  const Df df;
  const auto amplitude = hn::Set(df, static_cast<float>(args.amplitude));
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(df));
  const int64_t half = args.table->half;
  const bool sin_first = kLayout != Layout::kInterleaved || block.sin_begin < block.cos_begin;
  const int64_t first_column = sin_first ? block.sin_begin : block.cos_begin;
  for (int64_t i = 0; i < block.pairs; i += lanes) {
    const uint64_t* HWY_RESTRICT phases = scratch.phases + (block.first_pair + i) / 2;
    const uint64_t* HWY_RESTRICT steps = scratch.steps + (block.first_pair + i) / 2;
    const Column column{rows.first + first_column + kColumns * i,
                        rows.first + (kLayout == Layout::kApart ? block.cos_begin + i : 0),
                        sin_first, HWY_MIN(lanes, block.pairs - i)};
    if constexpr (kStepping) {
      auto words = TokenWords(LoadPhases<kLayout>(phases), LoadPhases<kLayout>(phases + half));
      const auto step = StepWords(LoadPhases<kLayout>(steps), LoadPhases<kLayout>(steps + half));
      for (int64_t t = 0; t < count; ++t) {
        EmitVector<kEmit, kLayout, kScaled>(words, amplitude, column, t * rows.stride);
        words = Advance(words, step);
      }
    } else {
      for (int64_t t = 0; t < count; ++t, phases += scratch.entries) {
        const auto words =
            TokenWords(LoadPhases<kLayout>(phases), LoadPhases<kLayout>(phases + half));
        EmitVector<kEmit, kLayout, kScaled>(words, amplitude, column, t * rows.stride);
      }
    }
  }
}

// Writes up to a vector of one component to columns begin, begin + stride, ...
HWY_INLINE void PutAny(const EncodeBlock& block, Vf v, int64_t count, float* p) {
  const Df df;
  if (block.stride == 1 && count == static_cast<int64_t>(hn::Lanes(df))) {
    return block.accumulate ? PutVector<Emit::kAccumulate>(v, p) : PutVector<Emit::kStore>(v, p);
  }
  HWY_ALIGN float lanes[hn::MaxLanes(Df())];
  hn::Store(v, df, lanes);
  for (int64_t k = 0; k < count; ++k, p += block.stride) {
    *p = block.accumulate ? *p + lanes[k] : lanes[k];
  }
}

// EmitBlock for every layout, for rows [first, first + count) of the call.
HWY_NOINLINE void EmitAnyBlock(const EncodeArgs& args, const EncodeBlock& block,
                               const EncodeScratch& scratch, int64_t first, int64_t count,
                               Rows32 rows) {
  const Df df;
  const Du64 d64;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(df));
  const float bias = static_cast<float>(args.layout->cos_bias);
  for (int64_t t = 0; t < count; ++t) {
    const uint64_t* even = scratch.phases + t * scratch.entries + block.first_pair / 2;
    const uint64_t* odd = even + args.table->half;
    float* row = rows.first + t * rows.stride;
    auto amplitude = hn::Set(df, static_cast<float>(args.amplitude));
    if (args.xpos != nullptr) {
      BlockAmplitudes(args, block, args.positions[(first + t) * args.axes], scratch);
    }
    for (int64_t i = 0; i < block.pairs; i += lanes) {
      const int64_t n = HWY_MIN(lanes, block.pairs - i);
      Vf sin, cos;
      SinCosVector(hn::LoadU(d64, even + i / 2), hn::LoadU(d64, odd + i / 2), sin, cos);
      if (args.xpos != nullptr) {
        amplitude = hn::LoadU(df, scratch.amplitudes_32 + block.first_pair + i);
      }
      sin = hn::Mul(amplitude, sin);
      cos = hn::Mul(amplitude, cos);
      if (bias != 0) cos = hn::Add(cos, hn::Set(df, bias));
      if (block.negate_sin) sin = hn::Neg(sin);
      if (block.sin_begin >= 0) PutAny(block, sin, n, row + block.sin_begin + i * block.stride);
      if (block.cos_begin >= 0) PutAny(block, cos, n, row + block.cos_begin + i * block.stride);
    }
  }
}

template <Emit kEmit, Layout kLayout, bool kScaled>
HWY_INLINE void EmitBlockFrom(const EncodeArgs& args, const EncodeBlock& block,
                              const EncodeScratch& scratch, bool stepping, int64_t count,
                              Rows32 rows) {
  stepping ? EmitBlock<kEmit, kLayout, kScaled, true>(args, block, scratch, count, rows)
           : EmitBlock<kEmit, kLayout, kScaled, false>(args, block, scratch, count, rows);
}

template <Emit kEmit, bool kScaled>
HWY_INLINE void EmitBlockOf(const EncodeArgs& args, const EncodeBlock& block, Layout layout,
                            const EncodeScratch& scratch, bool stepping, int64_t count,
                            Rows32 rows) {
  if (layout == Layout::kSineOnly) {
    EmitBlockFrom<kEmit, Layout::kSineOnly, kScaled>(args, block, scratch, stepping, count, rows);
  } else if (layout == Layout::kInterleaved) {
    EmitBlockFrom<kEmit, Layout::kInterleaved, kScaled>(args, block, scratch, stepping, count,
                                                        rows);
  } else {
    EmitBlockFrom<kEmit, Layout::kApart, kScaled>(args, block, scratch, stepping, count, rows);
  }
}

// Rows may begin anywhere, so it writes bytes.
template <typename T>
HWY_INLINE void ZeroPadding(const RowLayout& layout, int64_t count, T* row, int64_t stride) {
  if (layout.content_begin == 0 && layout.content_end == layout.width) return;
  for (int64_t t = 0; t < count; ++t, row += stride) {
    const auto zero = [row](int64_t begin, int64_t end) {
      std::memset(row + begin, 0, static_cast<size_t>(end - begin) * sizeof(T));
    };
    zero(0, layout.content_begin);
    zero(layout.content_end, layout.width);
  }
}

// Computes `count` rows of blocks beside those that are written past the caches. Scratch has the
// phases of the first one.
void EmitEdges32(const EncodeArgs& args, const RowLayout& row, const EncodeScratch& scratch,
                 int64_t count, Rows32 rows) {
  for (const EncodeBlock& block : row.blocks) {
    EmitBlockOf<Emit::kEdge, false>(args, block, LayoutOf(args, block), scratch, true, count, rows);
  }
  ZeroPadding(row, count, rows.first, rows.stride);
}

// Computes rows [first, first + count) of the call in f32, without add_to.
void EmitRows32(const EncodeArgs& args, const RowLayout& row, const EncodeScratch& scratch,
                bool stepping, int64_t first, int64_t count, bool stream, Rows32 rows) {
  const bool scaled = static_cast<float>(args.amplitude) != 1.0f;
  for (const EncodeBlock& block : row.blocks) {
    const Layout layout = LayoutOf(args, block);
    if (layout == Layout::kAny) {
      EmitAnyBlock(args, block, scratch, first, count, rows);
    } else if (block.accumulate) {
      scaled ? EmitBlockOf<Emit::kAccumulate, true>(args, block, layout, scratch, stepping, count,
                                                    rows)
             : EmitBlockOf<Emit::kAccumulate, false>(args, block, layout, scratch, stepping, count,
                                                     rows);
    } else if (scaled) {
      EmitBlockOf<Emit::kStore, true>(args, block, layout, scratch, stepping, count, rows);
    } else if (stream) {
      EmitBlockFrom<Emit::kStream, Layout::kInterleaved, false>(args, block, scratch, stepping,
                                                                count, rows);
    } else {
      EmitBlockOf<Emit::kStore, false>(args, block, layout, scratch, stepping, count, rows);
    }
  }
  ZeroPadding(row, count, rows.first, rows.stride);
}

}  // namespace HWY_NAMESPACE
}  // namespace phasor::cpu
HWY_AFTER_NAMESPACE();

#endif  // !PHASOR_SCALAR_TARGET
#endif  // include guard
