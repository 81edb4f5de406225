// SPDX-License-Identifier: Apache-2.0
// Rotates the heads of a token that share its tables.
//
// kernels/cpu/rotary.cc includes this once per SIMD target. It is empty on targets without vectors.
#if defined(PHASOR_KERNELS_CPU_ROTATE_HEADS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PHASOR_KERNELS_CPU_ROTATE_HEADS_INL_H_
#undef PHASOR_KERNELS_CPU_ROTATE_HEADS_INL_H_
#else
#define PHASOR_KERNELS_CPU_ROTATE_HEADS_INL_H_
#endif

#include <cmath>
#include <type_traits>

#include "kernels/cpu/elements-inl.h"
#include "kernels/cpu/memory-inl.h"
#include "kernels/cpu/rotary_tables-inl.h"
#include "kernels/cpu/rotate_head-inl.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/ops/rotary.h"

#if !PHASOR_SCALAR_TARGET

HWY_BEFORE_NAMESPACE();
namespace phasor::cpu {
namespace HWY_NAMESPACE {

// Rows of heads that share tables, from the first lane that rotates: those of one token, or of
// `tokens` whose tables follow one another.
struct HeadRows {
  const std::byte* x;
  std::byte* y;
  int64_t heads;
  int64_t x_bytes;  // from one head to the next
  int64_t y_bytes;
  const std::byte* ahead;  // nullptr, or the rows of a later token, which are fetched meanwhile
  int64_t pages_in_turns;  // of the heads, if rows are fetched
  int64_t tokens = 1;      // the rest is of more than one
  int64_t x_token_bytes = 0;
  int64_t y_token_bytes = 0;
  int64_t table_floats = 0;  // from the tables of a token to the next ones
};

// Fetches lanes into the second cache: the first has few places for lines that are on their way.
HWY_INLINE void Fetch(const std::byte* lanes, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += kLineBytes)
    __builtin_prefetch(lanes + i, /*rw=*/0, /*locality=*/2);
}

// Whether rotations of numbers are numbers: no product of an amplitude and a key overflows.
HWY_INLINE bool KeepsNumbers(const RotaryArgs& args) {
  return !HasXpos(args) && std::abs(args.amplitude) < 0x1p64;
}

// Whether lanes [0, n) and [second, second + n) of each head are neither infinite nor NaNs.
template <typename E>
HWY_INLINE bool AreNumbers(int64_t second, int64_t n, const HeadRows& rows) {
  auto largest = hn::Zero(typename E::D8());
  for (int64_t h = 0; h < rows.heads; ++h) {
    const auto* x = reinterpret_cast<const typename E::T*>(rows.x + h * rows.x_bytes);
    for (int64_t i = 0; i < n; i += E::kCodes) {
      largest = E::Larger(E::Larger(largest, x + i), x + second + i);
    }
  }
  return E::AreNumbers(largest);
}

// Calls rotate(x, y) for each head.
template <typename E, typename Rotate>
HWY_INLINE void ForEachHeadOf(const HeadRows& rows, const Rotate& rotate) {
  const std::byte* x = rows.x;
  std::byte* y = rows.y;
  const int64_t x_bytes = rows.x_bytes, y_bytes = rows.y_bytes;
  for (int64_t left = rows.heads; left > 0; --left, x += x_bytes, y += y_bytes) {
    rotate(reinterpret_cast<const typename E::T*>(x), reinterpret_cast<typename E::T*>(y));
  }
}

// The same, and fetches `fetched` bytes of each head of the token ahead, if there is one.
template <typename E, typename Rotate>
HWY_INLINE void ForEachHeadOf(const HeadRows& rows, int64_t fetched, const Rotate& rotate) {
  if (rows.ahead == nullptr) return ForEachHeadOf<E>(rows, rotate);
  const HeadRows all = rows;  // what rotate() writes could change the rows
  const int64_t pages = HWY_MIN(all.heads * all.y_bytes / kPageBytes, all.pages_in_turns);
  const int64_t step = pages > 1 ? (all.heads + pages - 1) / pages : 1;
  for (int64_t first = 0; first < step; ++first) {
    for (int64_t h = first; h < all.heads; h += step) {
      Fetch(all.ahead + h * all.x_bytes, fetched);
      rotate(reinterpret_cast<const typename E::T*>(all.x + h * all.x_bytes),
             reinterpret_cast<typename E::T*>(all.y + h * all.y_bytes));
    }
  }
}

// Rotates the first `split` of pairs [first, first + n) of each head as even and odd pairs, whose
// tables have the distance `half`. Codes of one byte are stored when the next ones have been read
// and rotated: processors have no room for so many instructions that wait for one another.
template <typename E, bool kStream>
HWY_INLINE void RotateHalfSplitEvenOdd(const Trig32& trig, int64_t half, int64_t first, int64_t n,
                                       int64_t split, const HeadRows& rows) {
  using Lane = typename E::T;
  const Df df;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(df));
  constexpr bool kLater = sizeof(Lane) == 1;
  const float* const cos = trig.cos_split + first / 2;
  const float* const sin = trig.sin_split + first / 2;
  const E element;
  Vf even1, even2, odd1, odd2;
  Lane* last = nullptr;
  const auto store = [&] HWY_ATTR {
    element.template StoreEvenOdd<kStream>(even1, odd1, last);
    element.template StoreEvenOdd<kStream>(even2, odd2, last + n);
  };
  const int64_t fetched = 2 * n * static_cast<int64_t>(sizeof(Lane));
  ForEachHeadOf<E>(rows, fetched, [&](const Lane* x, Lane* y) HWY_ATTR {
    for (int64_t i = 0; i < split / 2; i += lanes) {
      Vf e1, e2, o1, o2;
      element.LoadEvenOdd(x + 2 * i, e1, o1);
      element.LoadEvenOdd(x + n + 2 * i, e2, o2);
      const auto load = [&](const float* p) HWY_ATTR { return Opaque(hn::LoadU(df, p + i)); };
      RotatePair(e1, e2, load(cos), load(sin), e1, e2);
      RotatePair(o1, o2, load(cos + half), load(sin + half), o1, o2);
      if (kLater && last != nullptr) store();
      even1 = e1, even2 = e2, odd1 = o1, odd2 = o2;
      last = y + 2 * i;
      if (!kLater) store();
    }
  });
  if (kLater && last != nullptr) store();
}

// Tables in registers ---------------------------------------------------------------------------
//
// Where a vector is a line of the cache there are 32 registers: enough for the tables of most
// heads. That pays where caches hold the heads. These functions are not inlined: among the other
// loops, the compiler would run out of registers.

// Calls rotate(count), whose type has `vectors` as a constant, and returns true, if registers have
// room for kTables tables of so many vectors.
template <int kTables, typename Rotate>
HWY_INLINE bool WithTablesInRegisters(int64_t vectors, const Rotate& rotate) {
  const auto fits = [&](auto count) HWY_ATTR {
    if constexpr (hn::MaxLanes(Df()) * sizeof(float) == kLineBytes && kTables * count() <= 16) {
      if (vectors == count()) return rotate(count), true;
    }
    return false;
  };
  return fits(std::integral_constant<int, 1>()) || fits(std::integral_constant<int, 2>()) ||
         fits(std::integral_constant<int, 4>()) || fits(std::integral_constant<int, 8>());
}

// Calls token(rows, tables) for each token, with its rows and the distance of its tables from the
// first ones. All that stays in registers: a token of 32 heads puts everything else out of the
// first cache.
template <typename Token>
HWY_INLINE void ForEachTokenOf(const HeadRows& rows, const Token& token) {
  HeadRows own = rows;
  for (int64_t left = rows.tokens, tables = 0; left > 0; --left, tables += own.table_floats) {
    token(own, tables);
    own.x += own.x_token_bytes;
    own.y += own.y_token_bytes;
  }
}

// kCount vectors of a table.
template <int kCount>
struct Kept {
  explicit HWY_INLINE Kept(const float* table) {
    for (int k = 0; k < kCount; ++k) v[k] = Opaque(hn::LoadU(Df(), table + k * hn::Lanes(Df())));
  }
  Vf v[kCount];
};

// Rotates pairs of kCount vectors of FLOAT32 or FLOAT16.
template <typename E, int kCount>
HWY_NOINLINE void RotateHalfSplitKept(const float* cos, const float* sin, const HeadRows& all) {
  using Lane = typename E::T;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(Df()));
  ForEachTokenOf(all, [&](const HeadRows& rows, int64_t t) HWY_ATTR {
    const Kept<kCount> c(cos + t), s(sin + t);
    ForEachHeadOf<E>(rows, [&](const Lane* x, Lane* y) HWY_ATTR {
      HWY_UNROLL(8)
      for (int k = 0; k < kCount; ++k) {
        const int64_t first = k * lanes, second = first + kCount * lanes;
        const auto x1 = LoadedBefore(E::Load(x + first), x);
        const auto x2 = Opaque(E::Load(x + second));
        Vf a, b;
        RotatePair(x1, x2, c.v[k], s.v[k], a, b);
        E::Store(a, y + first);
        E::Store(b, y + second);
      }
    });
  });
}

// The same of neighbouring lanes, which are kCount vectors.
template <typename E, int kCount>
HWY_NOINLINE void RotateInterleavedKept(const Trig32& trig, const HeadRows& all) {
  using Lane = typename E::T;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(Df()));
  ForEachTokenOf(all, [&](const HeadRows& rows, int64_t t) HWY_ATTR {
    const Kept<kCount> cos_sin(trig.cos_sin + t), neg_cos(trig.neg_cos + t);
    ForEachHeadOf<E>(rows, [&](const Lane* x, Lane* y) HWY_ATTR {
      HWY_UNROLL(8)
      for (int k = 0; k < kCount; ++k) {
        const int64_t i = k * lanes;
        E::Store(RotateNeighbours(cos_sin.v[k], neg_cos.v[k], E::Load(x + i)), y + i);
      }
    });
  });
}

// Rotates pairs of 2 * kCount vectors of BFLOAT16 as even and odd pairs, whose tables have the
// distance `half`.
template <int kCount>
HWY_NOINLINE void RotateHalfSplitKeptBF16(const float* cos, const float* sin, int64_t half,
                                          const HeadRows& all) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(Df()));
  ForEachTokenOf(all, [&](const HeadRows& rows, int64_t t) HWY_ATTR {
    const Kept<kCount> even_cos(cos + t), even_sin(sin + t);
    const Kept<kCount> odd_cos(cos + half + t), odd_sin(sin + half + t);
    ForEachHeadOf<BF16>(rows, [&](const uint16_t* x, uint16_t* y) HWY_ATTR {
      HWY_UNROLL(8)
      for (int k = 0; k < kCount; ++k) {
        const int64_t first = 2 * k * lanes, second = first + 2 * kCount * lanes;
        Vf e1, e2, o1, o2;
        BF16::LoadEvenOdd(x + first, e1, o1);
        BF16::LoadEvenOdd(x + second, e2, o2);
        RotatePair(e1, e2, even_cos.v[k], even_sin.v[k], e1, e2);
        RotatePair(o1, o2, odd_cos.v[k], odd_sin.v[k], o1, o2);
        BF16::StoreEvenOdd<false>(e1, o1, y + first);
        BF16::StoreEvenOdd<false>(e2, o2, y + second);
      }
    });
  });
}

// Rotates neighbouring lanes of BFLOAT16, kCount vectors of pairs.
template <int kCount>
HWY_NOINLINE void RotateInterleavedKeptBF16(const Trig32& trig, const HeadRows& all) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(Df()));
  ForEachTokenOf(all, [&](const HeadRows& rows, int64_t t) HWY_ATTR {
    const Kept<kCount> cos(trig.cos + t), sin(trig.sin + t);
    ForEachHeadOf<BF16>(rows, [&](const uint16_t* x, uint16_t* y) HWY_ATTR {
      HWY_UNROLL(8)
      for (int k = 0; k < kCount; ++k) {
        const int64_t i = 2 * k * lanes;
        Vf x1, x2, y1, y2;
        BF16::LoadEvenOdd(x + i, x1, x2);
        RotatePair(x1, x2, cos.v[k], sin.v[k], y1, y2);
        BF16::StoreEvenOdd<false>(y1, y2, y + i);
      }
    });
  });
}

// Tables in memory ------------------------------------------------------------------------------

// Rotates n pairs of FLOAT32 or FLOAT16, which are whole vectors.
template <typename E>
HWY_NOINLINE void RotateHalfSplitWhole(const float* cos, const float* sin, int64_t n,
                                       const HeadRows& all) {
  using Lane = typename E::T;
  ForEachTokenOf(all, [&](const HeadRows& rows, int64_t t) HWY_ATTR {
    ForEachHeadOf<E>(rows, [&](const Lane* x, Lane* y) HWY_ATTR {
      RotateHalfSplitVectors<E>(Df(), 0, n, cos + t, sin + t, x, x + n, y, y + n);
    });
  });
}

// The same of neighbouring lanes.
template <typename E>
HWY_NOINLINE void RotateInterleavedWhole(const Trig32& trig, int64_t n, const HeadRows& all) {
  using Lane = typename E::T;
  ForEachTokenOf(all, [&](const HeadRows& rows, int64_t t) HWY_ATTR {
    ForEachHeadOf<E>(rows, [&](const Lane* x, Lane* y) HWY_ATTR {
      RotateInterleavedVectors<E>(trig.cos_sin + t, trig.neg_cos + t, n, x, y);
    });
  });
}

// Rotates pairs [first, first + n) of each head of all tokens and returns true, if there is a loop
// for that: pairs are whole vectors, and those of BFLOAT16 have room in registers. `half` is the
// distance of odd pairs in the split tables.
template <typename E>
HWY_INLINE bool RotateHalfSplitTokens(const Trig32& trig, int64_t half, int64_t first, int64_t n,
                                      const HeadRows& rows) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(Df()));
  if constexpr (std::is_same_v<E, BF16>) {
    if (n % (2 * lanes) != 0 || first % 2 != 0) return false;
    return WithTablesInRegisters<4>(n / (2 * lanes), [&](auto count) HWY_ATTR {
      RotateHalfSplitKeptBF16<count()>(trig.cos_split + first / 2, trig.sin_split + first / 2, half,
                                       rows);
    });
  } else if constexpr (std::is_same_v<E, F32> || std::is_same_v<E, F16>) {
    if (n % lanes != 0) return false;
    const float* const cos = trig.cos + first;
    const float* const sin = trig.sin + first;
    const bool kept = WithTablesInRegisters<2>(
        n / lanes, [&](auto count) HWY_ATTR { RotateHalfSplitKept<E, count()>(cos, sin, rows); });
    if (!kept) RotateHalfSplitWhole<E>(cos, sin, n, rows);
    return true;
  }
  return false;
}

// The same of the first n pairs of neighbouring lanes.
template <typename E>
HWY_INLINE bool RotateInterleavedTokens(const Trig32& trig, int64_t n, const HeadRows& rows) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(Df()));
  if constexpr (std::is_same_v<E, BF16>) {
    if (n % lanes != 0) return false;
    return WithTablesInRegisters<2>(
        n / lanes, [&](auto count) HWY_ATTR { RotateInterleavedKeptBF16<count()>(trig, rows); });
  } else if constexpr (std::is_same_v<E, F32> || std::is_same_v<E, F16>) {
    if (2 * n % lanes != 0) return false;
    const bool kept = WithTablesInRegisters<2>(
        2 * n / lanes, [&](auto count) HWY_ATTR { RotateInterleavedKept<E, count()>(trig, rows); });
    if (!kept) RotateInterleavedWhole<E>(trig, n, rows);
    return true;
  }
  return false;
}

// Rotates pairs [first, first + n) of each head. What is less than a vector follows after all
// heads: the calls of memcpy there would make each head load all constants again. `half` is the
// distance of odd pairs in the split tables.
template <typename E, bool kStream>
HWY_INLINE void RotateHalfSplitHeads(const RotaryArgs& args, const Trig32& trig, int64_t half,
                                     int64_t first, int64_t n, const HeadRows& rows) {
  using Lane = typename E::T;
  const float* const cos = trig.cos + first;
  const float* const sin = trig.sin + first;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(Df()));
  const int64_t done = n - n % lanes;
  const int64_t fetched = 2 * n * static_cast<int64_t>(sizeof(Lane));
  if constexpr (!kStream) {
    if (rows.ahead == nullptr && RotateHalfSplitTokens<E>(trig, half, first, n, rows)) return;
  }
  if constexpr (InEvenOdd<E>) {
    const int64_t split = first % 2 == 0 ? n - n % (2 * lanes) : 0;
    bool numbers = false;
    if constexpr (HasNumbers<E>) {
      numbers = KeepsNumbers(args) && AreNumbers<E>(n, split, rows);
      if (numbers) {
        RotateHalfSplitEvenOdd<typename E::Numbers, kStream>(trig, half, first, n, split, rows);
      }
    }
    if (!numbers) RotateHalfSplitEvenOdd<E, kStream>(trig, half, first, n, split, rows);
    if (split < done) {
      ForEachHeadOf<E>(rows, [&](const Lane* x, Lane* y) HWY_ATTR {
        RotateHalfSplitVectors<E>(Df(), split, n, cos, sin, x, x + n, y, y + n);
      });
    }
  } else {
    using Out = std::conditional_t<kStream, Streamed<E>, E>;
    ForEachHeadOf<E>(rows, fetched, [&](const Lane* x, Lane* y) HWY_ATTR {
      RotateHalfSplitVectors<Out>(Df(), 0, n, cos, sin, x, x + n, y, y + n);
    });
  }
  if (done == n) return;
  ForEachHeadOf<E>(rows, [&](const Lane* x, Lane* y) HWY_ATTR {
    RotateHalfSplitRest<E>(Df(), done, n, cos, sin, x, x + n, y, y + n);
  });
}

// Rotates the first n pairs of neighbouring lanes of each head.
template <typename E, bool kStream>
HWY_INLINE void RotateInterleavedHeads(const Trig32& trig, int64_t n, const HeadRows& rows) {
  using Lane = typename E::T;
  const int64_t fetched = 2 * n * static_cast<int64_t>(sizeof(Lane));
  if constexpr (!kStream) {
    if (rows.ahead == nullptr && RotateInterleavedTokens<E>(trig, n, rows)) return;
  }
  ForEachHeadOf<E>(rows, fetched, [&](const Lane* x, Lane* y) HWY_ATTR {
    if constexpr (InEvenOdd<E>) {
      RotateInterleavedEvenOdd<E, kStream>(trig, n, x, y);
    } else {
      RotateInterleaved<std::conditional_t<kStream, Streamed<E>, E> >(trig, n, x, y);
    }
  });
}

// Rotates pairs [first, first + n) of each head by the tables of `row`. Rows begin at the first of
// these lanes.
template <typename E, bool kStream>
HWY_INLINE void RotateHeads(const RotaryArgs& args, const Scratch& scratch, int64_t row,
                            int64_t first, int64_t n, const HeadRows& rows) {
  using Lane = typename E::T;
  const bool half_split = args.pairing_in != Pairing::kInterleaved;
  const bool mixed = args.pairing_in != args.pairing_out;
  const auto each = [&](const auto& rotate) HWY_ATTR {
    ForEachHeadOf<E>(rows, 2 * n * static_cast<int64_t>(sizeof(Lane)), rotate);
  };
  if constexpr (std::is_same_v<E, F64>) {
    const Trig64 trig = RowTrig64(scratch, row);
    each([&](const double* x, double* y) HWY_ATTR {
      if (mixed) {
        RotateMixed<E>(Dd(), args, trig.cos, trig.sin, x, y, scratch.lanes_in, scratch.lanes_out);
      } else if (half_split) {
        RotateHalfSplit<E>(Dd(), n, trig.cos + first, trig.sin + first, x, x + n, y, y + n);
      } else {
        RotateInterleaved64(trig, n, x, y);
      }
    });
  } else {
    const Trig32 trig = RowTrig32(scratch, row);
    if (mixed) {
      each([&](const Lane* x, Lane* y) HWY_ATTR {
        RotateMixed<E>(Df(), args, trig.cos, trig.sin, x, y,
                       reinterpret_cast<float*>(scratch.lanes_in),
                       reinterpret_cast<float*>(scratch.lanes_out));
      });
    } else if (half_split) {
      RotateHalfSplitHeads<E, kStream>(args, trig, scratch.stride / 2, first, n, rows);
    } else {
      RotateInterleavedHeads<E, kStream>(trig, n, rows);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace phasor::cpu
HWY_AFTER_NAMESPACE();

#endif  // !PHASOR_SCALAR_TARGET
#endif  // include guard
