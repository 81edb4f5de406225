// SPDX-License-Identifier: Apache-2.0
// Rotates the pairs of one head by given tables, for every element type and pairing. Compiled per
// target, like kernels/cpu/simd-inl.h; included by kernels/cpu/rotary.cc.
#if defined(PHASOR_KERNELS_CPU_ROTATE_HEAD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PHASOR_KERNELS_CPU_ROTATE_HEAD_INL_H_
#undef PHASOR_KERNELS_CPU_ROTATE_HEAD_INL_H_
#else
#define PHASOR_KERNELS_CPU_ROTATE_HEAD_INL_H_
#endif

#include <cmath>
#include <cstring>
#include <type_traits>

#include "kernels/cpu/elements-inl.h"
#include "kernels/cpu/memory-inl.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/ops/rotary.h"

#if !PHASOR_SCALAR_TARGET

HWY_BEFORE_NAMESPACE();
namespace phasor::cpu {
namespace HWY_NAMESPACE {

// The tables of one token.
struct Trig32 {
  float* cos;  // natural
  float* sin;
  float* cos_split;  // even pairs, then odd pairs from stride / 2
  float* sin_split;
  float* cos_sin;  // c0 s0 c1 s1 ...
  float* neg_cos;  // -s0 c0 -s1 c1 ...
};
// The f64 tables of one token, in natural order.
struct Trig64 {
  double* cos;
  double* sin;
};

// Calls half(first, pairs) for every run of pairs that are halves of one run of lanes, which begins
// 2 * first lanes into those that rotate: for all pairs, or for those of each axis' block.
template <typename Half>
HWY_INLINE void ForEachHalfSplit(const RotaryArgs& args, const Half& half) {
  int64_t first = 0;
  for (size_t block = 0; first < args.pairs; ++block) {
    const bool whole = args.pairing_in == Pairing::kHalfSplit;
    const int64_t pairs = whole ? args.pairs : args.blocks[block];
    half(first, pairs);
    first += pairs;
  }
}

template <class V>
HWY_INLINE void RotatePair(V x1, V x2, V c, V s, V& y1, V& y2) {
  y1 = hn::NegMulAdd(x2, s, hn::Mul(x1, c));
  y2 = hn::MulAdd(x2, c, hn::Mul(x1, s));
}

// Whether E has codes so narrow that their even and odd lanes are loaded and stored together.
template <typename E>
concept InEvenOdd = requires(const E& element, const typename E::T* x, Vf& v) {
  element.LoadEvenOdd(x, v, v);
};

// Whether the loops of E are shorter where all lanes are numbers, not NaNs.
template <typename E>
concept HasNumbers = requires {
  typename E::Numbers;
};

template <typename E>
constexpr bool kLessThanALine = hn::MaxLanes(Df()) * sizeof(typename E::T) < kLineBytes;

// Whether a vector of E is less than a line that is written past the caches, and two are stored at
// once.
template <typename E>
concept StreamsTwo = kLessThanALine<E> && requires(Vf v, typename E::T* p) {
  E::StreamTwo(v, v, p);
};

// Rotates lanes x1[j], x2[j] by pair j of the natural tables, vector by vector from pair `begin`
// on, and returns the first pair of what is less than a vector. D is the vector, E the element, T
// the type of the tables.
template <typename E, class D, typename T>
HWY_INLINE int64_t RotateHalfSplitVectors(D d, int64_t begin, int64_t pairs, const T* cos,
                                          const T* sin, const typename E::T* x1,
                                          const typename E::T* x2, typename E::T* y1,
                                          typename E::T* y2) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t j = begin;
  if constexpr (StreamsTwo<E>) {
    for (; j + 2 * lanes <= pairs; j += 2 * lanes) {
      Vf a[2], b[2];
      for (int k = 0; k < 2; ++k) {
        const int64_t i = j + k * lanes;
        RotatePair(E::Load(x1 + i), E::Load(x2 + i), hn::LoadU(d, cos + i), hn::LoadU(d, sin + i),
                   a[k], b[k]);
      }
      E::StreamTwo(a[0], a[1], y1 + j);
      E::StreamTwo(b[0], b[1], y2 + j);
    }
  }
  for (; j + lanes <= pairs; j += lanes) {
    const auto first = LoadedBefore(E::Load(x1 + j), x2);
    const auto second = Opaque(E::Load(x2 + j));
    decltype(hn::Zero(d)) a, b;
    RotatePair(first, second, Opaque(hn::LoadU(d, cos + j)), Opaque(hn::LoadU(d, sin + j)), a, b);
    E::Store(a, y1 + j);
    E::Store(b, y2 + j);
  }
  return j;
}

// The rest, from pair `begin` on.
template <typename E, class D, typename T>
HWY_INLINE void RotateHalfSplitRest(D d, int64_t begin, int64_t pairs, const T* cos, const T* sin,
                                    const typename E::T* x1, const typename E::T* x2,
                                    typename E::T* y1, typename E::T* y2) {
  using Lane = typename E::T;
  HWY_ALIGN Lane buffer[2 * hn::MaxLanes(d)] = {};
  Lane* second = buffer + hn::MaxLanes(d);
  const size_t bytes = static_cast<size_t>(pairs - begin) * sizeof(Lane);
  std::memcpy(buffer, x1 + begin, bytes);
  std::memcpy(second, x2 + begin, bytes);
  decltype(hn::Zero(d)) a, b;
  RotatePair(E::Load(buffer), E::Load(second), hn::LoadU(d, cos + begin), hn::LoadU(d, sin + begin),
             a, b);
  E::Store(a, buffer);
  E::Store(b, second);
  std::memcpy(y1 + begin, buffer, bytes);
  std::memcpy(y2 + begin, second, bytes);
}

template <typename E, class D, typename T>
HWY_INLINE void RotateHalfSplit(D d, int64_t pairs, const T* cos, const T* sin,
                                const typename E::T* x1, const typename E::T* x2, typename E::T* y1,
                                typename E::T* y2) {
  const int64_t done = RotateHalfSplitVectors<E>(d, 0, pairs, cos, sin, x1, x2, y1, y2);
  if (done < pairs) RotateHalfSplitRest<E>(d, done, pairs, cos, sin, x1, x2, y1, y2);
}

// E with stores past the caches.
template <typename E>
struct Streamed : E {};
template <>
struct Streamed<F32> : F32 {
  static HWY_INLINE void Store(Vf v, float* p) { StreamTo(v, Df(), p); }
  static HWY_INLINE void StreamTwo(Vf first, Vf second, float* p) {
    StreamTo(first, Df(), p);
    StreamTo(second, Df(), p + hn::Lanes(Df()));
  }
};
template <>
struct Streamed<F16> : F16 {
  static HWY_INLINE void Store(Vf v, uint16_t* p) {
    const hn::Rebind<uint16_t, Df> dh;
    const hn::Rebind<hwy::float16_t, Df> df16;
    StreamTo(hn::BitCast(dh, hn::DemoteTo(df16, v)), dh, p);
  }
  // One behind the other.
  static HWY_INLINE void StreamTwo(Vf first, Vf second, uint16_t* p) {
    StreamTo(Concat(first, second), Du16(), p);
  }
};

// Rotates a vector of neighbouring lanes by the same lanes of both tables.
HWY_INLINE Vf RotateNeighbours(Vf cos_sin, Vf neg_cos, Vf v) {
  const Vf x = Opaque(v);
  return hn::MulAdd(hn::DupOdd(x), neg_cos, hn::Mul(hn::DupEven(x), cos_sin));
}

HWY_INLINE Vf RotateNeighbours(const float* cos_sin, const float* neg_cos, Vf v) {
  return RotateNeighbours(hn::LoadU(Df(), cos_sin), hn::LoadU(Df(), neg_cos), v);
}

// Rotates neighbouring lanes x[2j], x[2j + 1], vector by vector, and returns the first lane of what
// is less than a vector.
template <typename E>
HWY_INLINE int64_t RotateInterleavedVectors(const float* cos_sin, const float* neg_cos,
                                            int64_t pairs, const typename E::T* x,
                                            typename E::T* y) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(Df()));
  int64_t i = 0;
  for (; i + lanes <= 2 * pairs; i += lanes) {
    E::Store(RotateNeighbours(cos_sin + i, neg_cos + i, E::Load(x + i)), y + i);
  }
  return i;
}

// Rotates all of them.
template <typename E>
HWY_INLINE void RotateInterleaved(const Trig32& trig, int64_t pairs, const typename E::T* x,
                                  typename E::T* y) {
  using Lane = typename E::T;
  const int64_t i = RotateInterleavedVectors<E>(trig.cos_sin, trig.neg_cos, pairs, x, y);
  if (i == 2 * pairs) return;
  HWY_ALIGN Lane buffer[hn::MaxLanes(Df())] = {};
  const size_t bytes = static_cast<size_t>(2 * pairs - i) * sizeof(Lane);
  std::memcpy(buffer, x + i, bytes);
  E::Store(RotateNeighbours(trig.cos_sin + i, trig.neg_cos + i, E::Load(buffer)), buffer);
  std::memcpy(y + i, buffer, bytes);
}

template <typename E, bool kStream>
HWY_INLINE void RotateInterleavedEvenOdd(const Trig32& trig, int64_t pairs, const typename E::T* x,
                                         typename E::T* y) {
  using Lane = typename E::T;
  const Df df;
  const E element;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(df));
  const auto rotate = [&](const Lane* in, int64_t j, auto stream, Lane* out) HWY_ATTR {
    Vf x1, x2, y1, y2;
    element.LoadEvenOdd(in, x1, x2);
    RotatePair(x1, x2, hn::LoadU(df, trig.cos + j), hn::LoadU(df, trig.sin + j), y1, y2);
    element.template StoreEvenOdd<stream()>(y1, y2, out);
  };
  int64_t j = 0;
  for (; j + lanes <= pairs; j += lanes) {
    rotate(x + 2 * j, j, std::bool_constant<kStream>(), y + 2 * j);
  }
  if (j == pairs) return;
  HWY_ALIGN Lane buffer[2 * hn::MaxLanes(Df())] = {};
  const size_t bytes = static_cast<size_t>(2 * (pairs - j)) * sizeof(Lane);
  std::memcpy(buffer, x + 2 * j, bytes);
  rotate(buffer, j, std::false_type(), buffer);
  std::memcpy(y + 2 * j, buffer, bytes);
}

HWY_INLINE void RotateInterleaved64(const Trig64& trig, int64_t pairs, const double* x, double* y) {
  const Dd d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto rotate = [&](const double* in, int64_t j, double* out) HWY_ATTR {
    Vd x1, x2, y1, y2;
    hn::LoadInterleaved2(d, in, x1, x2);
    RotatePair(x1, x2, hn::LoadU(d, trig.cos + j), hn::LoadU(d, trig.sin + j), y1, y2);
    hn::StoreInterleaved2(y1, y2, d, out);
  };
  int64_t j = 0;
  for (; j + lanes <= pairs; j += lanes) rotate(x + 2 * j, j, y + 2 * j);
  if (j == pairs) return;
  HWY_ALIGN double buffer[2 * hn::MaxLanes(Dd())] = {};
  const size_t bytes = static_cast<size_t>(2 * (pairs - j)) * sizeof(double);
  std::memcpy(buffer, x + 2 * j, bytes);
  rotate(buffer, j, buffer);
  std::memcpy(y + 2 * j, buffer, bytes);
}

// Convert lanes to and from f32 (or f64) scratch, for heads whose pairing changes.
template <typename E, class D, typename T>
HWY_INLINE void LoadLanes(D d, const typename E::T* x, int64_t count, T* out) {
  using Lane = typename E::T;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(E::Load(x + i), d, out + i);
  if (i == count) return;
  HWY_ALIGN Lane buffer[hn::MaxLanes(d)] = {};
  std::memcpy(buffer, x + i, static_cast<size_t>(count - i) * sizeof(Lane));
  hn::StoreU(E::Load(buffer), d, out + i);
}
template <typename E, class D, typename T>
HWY_INLINE void StoreLanes(D d, const T* in, int64_t count, typename E::T* y) {
  using Lane = typename E::T;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) E::Store(hn::LoadU(d, in + i), y + i);
  if (i == count) return;
  HWY_ALIGN Lane buffer[hn::MaxLanes(d)];
  E::Store(hn::LoadU(d, in + i), buffer);
  std::memcpy(y + i, buffer, static_cast<size_t>(count - i) * sizeof(Lane));
}

// Rotates from one pairing to another, one of which is BLOCK_HALF_SPLIT.
template <typename T>
HWY_NOINLINE void RotateAcrossBlocks(const RotaryArgs& args, const T* cos, const T* sin,
                                     const T* in, T* out) {
  for (int64_t j = 0; j < args.pairs; ++j) {
    const auto lane = [&](Pairing pairing, int component) {
      return LaneOfPair(pairing, args.pairs, args.blocks, j, component);
    };
    const T x1 = in[lane(args.pairing_in, 0)], x2 = in[lane(args.pairing_in, 1)];
    out[lane(args.pairing_out, 0)] = std::fma(-x2, sin[j], x1 * cos[j]);
    out[lane(args.pairing_out, 1)] = std::fma(x2, cos[j], x1 * sin[j]);
  }
}

// Rotates from one pairing to another.
template <typename T>
HWY_INLINE void RotateAcross(const RotaryArgs& args, const T* cos, const T* sin, const T* in,
                             T* out) {
  const int64_t n = args.pairs;
  for (const Pairing pairing : {args.pairing_in, args.pairing_out}) {
    if (pairing == Pairing::kBlockHalfSplit) return RotateAcrossBlocks(args, cos, sin, in, out);
  }
  const bool in_half = args.pairing_in == Pairing::kHalfSplit;
  for (int64_t j = 0; j < n; ++j) {
    const T x1 = in_half ? in[j] : in[2 * j];
    const T x2 = in_half ? in[j + n] : in[2 * j + 1];
    out[in_half ? 2 * j : j] = std::fma(-x2, sin[j], x1 * cos[j]);
    out[in_half ? 2 * j + 1 : j + n] = std::fma(x2, cos[j], x1 * sin[j]);
  }
}

template <typename E, class D, typename T>
HWY_INLINE void RotateMixed(D d, const RotaryArgs& args, const T* cos, const T* sin,
                            const typename E::T* x, typename E::T* y, T* in, T* out) {
  LoadLanes<E>(d, x, 2 * args.pairs, in);
  RotateAcross(args, cos, sin, in, out);
  StoreLanes<E>(d, out, 2 * args.pairs, y);
}

// Rotates lanes in f32 in place. `row` has room for a vector after the pairs.
HWY_INLINE void RotateRow(const RotaryArgs& args, const Trig32& trig, float* row) {
  if (args.pairing_in == Pairing::kInterleaved)
    return RotateInterleaved<F32>(trig, args.pairs, row, row);
  ForEachHalfSplit(args, [&](int64_t first, int64_t n) HWY_ATTR {
    float* const x = row + 2 * first;
    RotateHalfSplit<F32>(Df(), n, trig.cos + first, trig.sin + first, x, x + n, x, x + n);
  });
}

// To 8-bit floats -----------------------------------------------------------------------------

// How results become 8-bit floats.
struct ToFloat8 {
  Float8Format format;
  float inv_scale;
};

// Writes y[i] from lanes x[i] of type E.
template <typename E>
HWY_INLINE void StoreLanesFloat8(const ToFloat8& to, const typename E::T* x, int64_t count,
                                 uint8_t* y) {
  const Df d;
  const auto inv_scale = hn::Set(d, to.inv_scale);
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    StoreFloat8(hn::Mul(E::Load(x + i), inv_scale), to.format, y + i);
  }
  if (i == count) return;
  HWY_ALIGN typename E::T buffer[hn::MaxLanes(Df())] = {};
  HWY_ALIGN uint8_t bytes[hn::MaxLanes(Df())];
  std::memcpy(buffer, x + i, static_cast<size_t>(count - i) * sizeof(typename E::T));
  StoreFloat8(hn::Mul(E::Load(buffer), inv_scale), to.format, bytes);
  std::memcpy(y + i, bytes, static_cast<size_t>(count - i));
}

// Rotates the pairs of a head as f32 in `row`, then rounds. `row` has room for a vector after the
// pairs. `other` is as large and is used when the pairings differ.
template <typename E>
HWY_INLINE void RotateFloat8(const RotaryArgs& args, const Trig32& trig, const ToFloat8& to,
                             const typename E::T* x, uint8_t* y, float* row, float* other) {
  const Df d;
  const int64_t n = args.pairs;
  LoadLanes<E>(d, x, 2 * n, row);
  if (args.pairing_in != args.pairing_out) {
    RotateAcross(args, trig.cos, trig.sin, row, other);
    return StoreLanesFloat8<F32>(to, other, 2 * n, y);
  }
  RotateRow(args, trig, row);
  StoreLanesFloat8<F32>(to, row, 2 * n, y);
}

}  // namespace HWY_NAMESPACE
}  // namespace phasor::cpu
HWY_AFTER_NAMESPACE();

#endif  // !PHASOR_SCALAR_TARGET
#endif  // include guard
