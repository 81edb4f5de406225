// SPDX-License-Identifier: Apache-2.0
// Sines and cosines of blocks of pairs into f32 rows. Per target, like kernels/cpu/simd-inl.h;
// included by kernels/cpu/encode.cc.
#if defined(PHASOR_KERNELS_CPU_ENCODE_BLOCK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PHASOR_KERNELS_CPU_ENCODE_BLOCK_INL_H_
#undef PHASOR_KERNELS_CPU_ENCODE_BLOCK_INL_H_
#else
#define PHASOR_KERNELS_CPU_ENCODE_BLOCK_INL_H_
#endif

#include <algorithm>
#include <cstdlib>

#include "kernels/cpu/simd-inl.h"
#include "kernels/ops/encode.h"

#if !PHASOR_SCALAR_TARGET

HWY_BEFORE_NAMESPACE();
namespace phasor::cpu {
namespace HWY_NAMESPACE {

// Where a vector of sines and cosines goes.
enum class Emit { kStore, kStream, kAccumulate };

// Scratch of one call, carved from args.scratch.
struct EncodeScratch {
  uint64_t* phases;      // [tile, entries], slack behind; kSinCosOffset added
  uint64_t* steps;       // [entries]
  double* rows;          // [tile, width] as float, or [width] as double; slack behind
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
  double* sin = rows + EncodeRowsWords(tile, args.layout->width);
  double* amplitudes = sin + 2 * row;
  return {
      phases, steps, rows, sin, sin + row, amplitudes, reinterpret_cast<float*>(amplitudes + row),
      entries};
}

// Amplitudes of a block's pairs for a token at p.
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

// kAny: strides up to 4, missing components, a bias, amplitudes that differ; the others are fast.
enum class Layout { kApart, kInterleaved, kSineOnly, kAny };

HWY_INLINE Layout LayoutOf(const EncodeArgs& args, const EncodeBlock& block) {
  const bool plain = args.xpos == nullptr && args.layout->cos_bias == 0 && !block.negate_sin;
  if (!plain || block.sin_begin < 0) return Layout::kAny;
  if (block.stride == 1) return block.cos_begin < 0 ? Layout::kSineOnly : Layout::kApart;
  const bool neighbours = block.cos_begin >= 0 && std::abs(block.sin_begin - block.cos_begin) == 1;
  return block.stride == 2 && neighbours ? Layout::kInterleaved : Layout::kAny;
}

// Where f32 rows go: the output itself or scratch.
struct Rows32 {
  float* first;
  int64_t stride;  // in floats
};

// Sines and cosines of one block of pairs into `count` rows. Kept out of line: inlined into one
// function, the variants compete for registers and every one spills.
template <Emit kEmit, Layout kLayout, bool kScaled>
HWY_NOINLINE void EmitBlock(const EncodeArgs& args, const EncodeBlock& block,
                            const EncodeScratch& scratch, int64_t count, Rows32 rows) {
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

// Up to a vector of one component: columns begin, begin + stride, ...
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

// EmitBlock for every layout; rows [first, first + count) of the call.
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

template <Emit kEmit, bool kScaled>
HWY_INLINE void EmitBlockOf(const EncodeArgs& args, const EncodeBlock& block, Layout layout,
                            const EncodeScratch& scratch, int64_t count, Rows32 rows) {
  if (layout == Layout::kSineOnly) {
    EmitBlock<kEmit, Layout::kSineOnly, kScaled>(args, block, scratch, count, rows);
  } else if (layout == Layout::kInterleaved) {
    EmitBlock<kEmit, Layout::kInterleaved, kScaled>(args, block, scratch, count, rows);
  } else {
    EmitBlock<kEmit, Layout::kApart, kScaled>(args, block, scratch, count, rows);
  }
}

HWY_INLINE void ZeroPadding(const RowLayout& layout, int64_t count, Rows32 rows) {
  for (int64_t t = 0; t < count; ++t) {
    float* row = rows.first + t * rows.stride;
    std::fill(row, row + layout.content_begin, 0.0f);
    std::fill(row + layout.content_end, row + layout.width, 0.0f);
  }
}

// Rows [first, first + count) of the call in f32, without add_to.
void EmitRows32(const EncodeArgs& args, const EncodeScratch& scratch, int64_t first, int64_t count,
                bool stream, Rows32 rows) {
  const bool scaled = static_cast<float>(args.amplitude) != 1.0f;
  for (const EncodeBlock& block : args.layout->blocks) {
    const Layout layout = LayoutOf(args, block);
    if (layout == Layout::kAny) {
      EmitAnyBlock(args, block, scratch, first, count, rows);
    } else if (block.accumulate) {
      scaled ? EmitBlockOf<Emit::kAccumulate, true>(args, block, layout, scratch, count, rows)
             : EmitBlockOf<Emit::kAccumulate, false>(args, block, layout, scratch, count, rows);
    } else if (scaled) {
      EmitBlockOf<Emit::kStore, true>(args, block, layout, scratch, count, rows);
    } else if (stream) {
      EmitBlockOf<Emit::kStream, false>(args, block, layout, scratch, count, rows);
    } else {
      EmitBlockOf<Emit::kStore, false>(args, block, layout, scratch, count, rows);
    }
  }
  ZeroPadding(*args.layout, count, rows);
}

// Whether f32 rows can be written with full-vector non-temporal stores.
HWY_INLINE bool CanStream(const EncodeArgs& args) {
  const uintptr_t vector_bytes = hn::Lanes(Df()) * sizeof(float);
  uintptr_t bits =
      reinterpret_cast<uintptr_t>(args.out) | static_cast<uintptr_t>(args.out_row_bytes);
  for (const EncodeBlock& block : args.layout->blocks) {
    const Layout layout = LayoutOf(args, block);
    if (block.accumulate || layout == Layout::kAny) return false;
    const int64_t begin = layout == Layout::kInterleaved ? HWY_MIN(block.sin_begin, block.cos_begin)
                                                         : block.sin_begin;
    bits |= static_cast<uintptr_t>(begin) * sizeof(float);
    if (layout == Layout::kApart) bits |= static_cast<uintptr_t>(block.cos_begin) * sizeof(float);
  }
  return (bits & (vector_bytes - 1)) == 0;
}

}  // namespace HWY_NAMESPACE
}  // namespace phasor::cpu
HWY_AFTER_NAMESPACE();

#endif  // !PHASOR_SCALAR_TARGET
#endif  // include guard
