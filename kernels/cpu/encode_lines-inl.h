// SPDX-License-Identifier: Apache-2.0
// Writes the sines and cosines of blocks of pairs to rows of a constant step, whole cache lines at
// a time. For 16-bit floats, which need no f32 rows in between then, and for f32 rows that
// EmitBlock would write in pieces of lines. Compiled per target, like kernels/cpu/simd-inl.h;
// included by kernels/cpu/encode.cc.
#if defined(PHASOR_KERNELS_CPU_ENCODE_LINES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PHASOR_KERNELS_CPU_ENCODE_LINES_INL_H_
#undef PHASOR_KERNELS_CPU_ENCODE_LINES_INL_H_
#else
#define PHASOR_KERNELS_CPU_ENCODE_LINES_INL_H_
#endif

#include "kernels/cpu/elements-inl.h"
#include "kernels/cpu/encode_block-inl.h"
#include "kernels/cpu/memory-inl.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/ops/encode.h"

#if !PHASOR_SCALAR_TARGET

HWY_BEFORE_NAMESPACE();
namespace phasor::cpu {
namespace HWY_NAMESPACE {

// How two vectors are written. kDealt: their lanes take turns; else the second follows the first.
struct LineF32 {
  using T = float;
  static constexpr bool kDealt = false;
  template <bool kStream>
  static HWY_INLINE void Store(Vf a, Vf b, T* p) {
    Put<kStream>(a, Df(), p);
    Put<kStream>(b, Df(), p + hn::Lanes(Df()));
  }
};
struct LineF16 {
  using T = uint16_t;
  static constexpr bool kDealt = false;
  template <bool kStream>
  static HWY_INLINE void Store(Vf a, Vf b, T* p) {
    Put<kStream>(F16::Concat(a, b), Du16(), p);
  }
};
struct LineBF16 {
  using T = uint16_t;
  static constexpr bool kDealt = true;
  template <bool kStream>
  static HWY_INLINE void Store(Vf a, Vf b, T* p) {
    BF16::StoreEvenOdd<kStream>(a, b, p);
  }
};
#if HWY_TARGET == HWY_AVX3
// The same in one instruction (args.rounds_to_bfloat16). It would make subnormal numbers zero,
// which sines and cosines never are.
struct LineBF16InOne {
  using T = uint16_t;
  static constexpr bool kDealt = false;
  template <bool kStream>
  static HWY_INLINE void Store(Vf a, Vf b, T* p) {
    hn::Vec<Du16> both;
    __asm__("vcvtne2ps2bf16 %1, %2, %0" : "=v"(both.raw) : "v"(a.raw), "v"(b.raw));
    Put<kStream>(both, Du16(), p);
  }
};
#else
using LineBF16InOne = LineBF16;
#endif

// Two vectors are a unit: the sines and cosines of `lanes` pairs side by side, or the sines of
// 2 * lanes pairs that lie apart from their cosines. So many units fill a line, or one does.
constexpr int64_t LineUnits(int64_t element_bytes) {
  const auto lanes = static_cast<int64_t>(hn::MaxLanes(Df()));
  return HWY_MAX(1, kLineBytes / (2 * lanes * element_bytes));
}

HWY_INLINE int64_t UnitPairs(bool interleaved) {
  return static_cast<int64_t>(hn::Lanes(Df())) * (interleaved ? 1 : 2);
}

HWY_INLINE PhaseWords WordsAt(const uint32_t* p) {
  const Du32 du;
  return {hn::Load(du, p), hn::BitCast(Di32(), hn::Load(du, p + hn::Lanes(du)))};
}

HWY_INLINE void StoreWords(PhaseWords words, uint32_t* p) {
  const Du32 du;
  hn::Store(words.high, du, p);
  hn::Store(hn::BitCast(du, words.low), du, p + hn::Lanes(du));
}

// Loads the phases of a unit in the order in which its pairs are written. Those of even pairs are
// at p, those of odd ones at p + half. `words` splits them: TokenWords or StepWords.
template <typename E, bool kInterleaved, typename Words>
HWY_INLINE void LoadUnit(const uint64_t* p, int64_t half, Words words, uint32_t* unit) {
  const Du64 d;
  const size_t n = hn::Lanes(d);
  const auto even = hn::LoadU(d, p), odd = hn::LoadU(d, p + half);
  if constexpr (kInterleaved) {
    StoreWords(E::kDealt ? words(even, odd) : words(AlternateHalves(even), AlternateHalves(odd)),
               unit);
  } else {
    const auto even2 = hn::LoadU(d, p + n), odd2 = hn::LoadU(d, p + half + n);
    if constexpr (E::kDealt) {
      StoreWords(words(hn::ConcatEven(d, even2, even), hn::ConcatOdd(d, even2, even)), unit);
      StoreWords(words(hn::ConcatEven(d, odd2, odd), hn::ConcatOdd(d, odd2, odd)), unit + 4 * n);
    } else {
      StoreWords(words(even, odd), unit);
      StoreWords(words(even2, odd2), unit + 4 * n);
    }
  }
}

// The sines and cosines of a vector of pairs, whose phases then advance.
HWY_INLINE void StepVector(uint32_t* phases, const uint32_t* step, Vf& sin, Vf& cos) {
  const auto words = WordsAt(phases);
  SinCosWords(words, sin, cos);
  StoreWords(Advance(words, WordsAt(step)), phases);
}

// The order of a block's columns.
enum class Order { kApart, kSinFirst, kCosFirst };

HWY_INLINE Order OrderOf(const EncodeBlock& block, Layout layout) {
  if (layout != Layout::kInterleaved) return Order::kApart;
  return block.sin_begin < block.cos_begin ? Order::kSinFirst : Order::kCosFirst;
}

// Where they begin. A copy, which stays in registers: the compiler takes writes of vectors for
// writes to anything.
struct LineColumns {
  int64_t first;   // of the sines, or of both
  int64_t second;  // kApart: of the cosines; -1: there are none
};

// Writes a unit of a row and advances its phases.
template <typename E, Order kOrder, bool kStream>
HWY_INLINE void PutUnit(LineColumns columns, uint32_t* phases, const uint32_t* steps,
                        typename E::T* row) {
  Vf sin, cos;
  StepVector(phases, steps, sin, cos);
  if constexpr (kOrder != Order::kApart) {
    const Df d;
    constexpr bool kSinFirst = kOrder == Order::kSinFirst;
    const auto a = kSinFirst ? sin : cos, b = kSinFirst ? cos : sin;
    auto* const p = row + columns.first;
    E::kDealt
        ? E::template Store<kStream>(a, b, p)
        : E::template Store<kStream>(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b), p);
  } else {
    Vf sin2, cos2;
    const size_t vector = 2 * hn::Lanes(Df());
    StepVector(phases + vector, steps + vector, sin2, cos2);
    E::template Store<kStream>(sin, sin2, row + columns.first);
    if (columns.second >= 0) E::template Store<kStream>(cos, cos2, row + columns.second);
  }
}

// Writes a block of `count` rows, the first of which is at `rows`, `stride` elements from the next.
template <typename E, Order kOrder, bool kStream>
HWY_NOINLINE void EmitBlockLines(const EncodeArgs& args, const EncodeBlock& block,
                                 const EncodeScratch& scratch, int64_t count,
                                 typename E::T* HWY_RESTRICT rows, int64_t stride) {
  constexpr int64_t kUnits = LineUnits(sizeof(typename E::T));
  constexpr bool kInterleaved = kOrder != Order::kApart;
  constexpr int64_t kColumns = kInterleaved ? 2 : 1;
  const int64_t pairs = UnitPairs(kInterleaved);
  const LineColumns columns = {kOrder == Order::kCosFirst ? block.cos_begin : block.sin_begin,
                               block.cos_begin};
  HWY_ALIGN uint32_t phases[kUnits * 4 * hn::MaxLanes(Df())];
  HWY_ALIGN uint32_t steps[kUnits * 4 * hn::MaxLanes(Df())];
  for (int64_t i = 0; i < block.pairs; i += kUnits * pairs) {
    for (int64_t u = 0; u < kUnits; ++u) {
      const int64_t at = (block.first_pair + i + u * pairs) / 2;
      LoadUnit<E, kInterleaved>(scratch.phases + at, args.table->half, TokenWords,
                                phases + 2 * u * pairs);
      LoadUnit<E, kInterleaved>(scratch.steps + at, args.table->half, StepWords,
                                steps + 2 * u * pairs);
    }
    auto* row = rows + kColumns * i;
    for (int64_t t = 0; t < count; ++t, row += stride) {
      if constexpr (!kStream) {  // as FetchNextColumn does
        const auto* next = row + kColumns * kUnits * pairs;
        FetchToWrite(next + columns.first);
        if (!kInterleaved && columns.second >= 0) FetchToWrite(next + columns.second);
      }
      for (int64_t u = 0; u < kUnits; ++u) {
        PutUnit<E, kOrder, kStream>(columns, phases + 2 * u * pairs, steps + 2 * u * pairs,
                                    row + kColumns * u * pairs);
      }
    }
  }
}

// Computes `count` rows. Scratch has the phases of the first one.
template <typename E, bool kStream>
void EmitLines(const EncodeArgs& args, const RowLayout& layout, const EncodeScratch& scratch,
               int64_t count, RowsOut to) {
  using T = typename E::T;
  auto* const rows = reinterpret_cast<T*>(to.first);
  const int64_t stride = to.row_bytes / static_cast<int64_t>(sizeof(T));
  for (const EncodeBlock& block : layout.blocks) {
    const Order order = OrderOf(block, LayoutOf(args, block));
    if (order == Order::kApart) {
      EmitBlockLines<E, Order::kApart, kStream>(args, block, scratch, count, rows, stride);
    } else if (order == Order::kSinFirst) {
      EmitBlockLines<E, Order::kSinFirst, kStream>(args, block, scratch, count, rows, stride);
    } else {
      EmitBlockLines<E, Order::kCosFirst, kStream>(args, block, scratch, count, rows, stride);
    }
  }
  ZeroPadding(layout, count, rows, stride);
}

template <typename E>
HWY_INLINE void EmitLinesMaybeStream(const EncodeArgs& args, const RowLayout& layout,
                                     const EncodeScratch& scratch, bool stream, int64_t count,
                                     RowsOut to) {
  stream ? EmitLines<E, true>(args, layout, scratch, count, to)
         : EmitLines<E, false>(args, layout, scratch, count, to);
}

HWY_INLINE void EmitLines(const EncodeArgs& args, const RowLayout& layout,
                          const EncodeScratch& scratch, bool stream, int64_t count, RowsOut to) {
  if (args.dtype == Dtype::kFloat32) {
    EmitLinesMaybeStream<LineF32>(args, layout, scratch, stream, count, to);
  } else if (args.dtype == Dtype::kFloat16) {
    EmitLinesMaybeStream<LineF16>(args, layout, scratch, stream, count, to);
  } else if (args.rounds_to_bfloat16) {
    EmitLinesMaybeStream<LineBF16InOne>(args, layout, scratch, stream, count, to);
  } else {
    EmitLinesMaybeStream<LineBF16>(args, layout, scratch, stream, count, to);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace phasor::cpu
HWY_AFTER_NAMESPACE();

#endif  // !PHASOR_SCALAR_TARGET
#endif  // include guard
