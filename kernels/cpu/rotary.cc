// SPDX-License-Identifier: Apache-2.0
// Rotary for every SIMD target. Contract: kernels/ops/rotary.h.
//
// Sines and cosines of a tile of tokens are computed once and shared by all heads of all tensors.
// They are kept in the orders that the rotations read: natural (pair j at j), split (even pairs,
// then odd pairs: two bfloat16 lanes share a 32-bit word) and interleaved ([c s ...] and [-s c
// ...]).
#include <cmath>
#include <cstring>
#include <type_traits>

#include "kernels/cpu/kernels.h"
#include "kernels/reference/reference.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rotary.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.h, which includes this file once per target.
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace phasor::cpu {
namespace HWY_NAMESPACE {

#if PHASOR_SCALAR_TARGET

void RotateTile(const RotaryArgs& args) { reference::Rotary(args); }

#else

// Tables of one token.
struct Trig32 {
  float* cos;  // natural
  float* sin;
  float* cos_split;  // even pairs, then odd pairs from stride / 2
  float* sin_split;
  float* cos_sin;  // c0 s0 c1 s1 ...
  float* neg_cos;  // -s0 c0 -s1 c1 ...
};
struct Trig64 {
  double* cos;
  double* sin;
};

// Scratch of one call, carved from args.scratch.
struct Scratch {
  uint64_t* phases;
  uint64_t* from_phases;
  float* tables32;   // 8 * stride per token
  double* tables64;  // 2 * stride per token
  double* lanes_in;  // one head, also as float
  double* lanes_out;
  int64_t stride;
};

HWY_INLINE Scratch Carve(const RotaryArgs& args) {
  const int64_t entries = 2 * args.table->half + kLaneSlack;
  const int64_t stride = RotaryTableStride(args.pairs);
  const int64_t tile = RotaryTile(args.pairs);
  auto* words = reinterpret_cast<uint64_t*>(args.scratch);
  auto* tables32 = reinterpret_cast<float*>(words + 2 * entries);
  auto* tables64 = reinterpret_cast<double*>(tables32 + 8 * tile * stride);
  double* lanes = tables64 + 2 * tile * stride;
  return {words, words + entries, tables32, tables64, lanes, lanes + 2 * stride, stride};
}

HWY_INLINE Trig32 TokenTrig32(const Scratch& s, int64_t t) {
  float* p = s.tables32 + 8 * s.stride * t;
  return {p, p + s.stride, p + 2 * s.stride, p + 3 * s.stride, p + 4 * s.stride, p + 6 * s.stride};
}
HWY_INLINE Trig64 TokenTrig64(const Scratch& s, int64_t t) {
  double* p = s.tables64 + 2 * s.stride * t;
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
    const bool half_split = args.pairing_in == Pairing::kHalfSplit;
    needs.f64 |= dtype == Dtype::kFloat64;
    needs.f32 |= dtype != Dtype::kFloat64;
    needs.split |= same && half_split && dtype == Dtype::kBFloat16;
    needs.interleaved |=
        same && !half_split && (dtype == Dtype::kFloat32 || dtype == Dtype::kFloat16);
  }
  return needs;
}

// Phases of token t plus kSinCosOffset, as SinCosVector wants them.
HWY_NOINLINE void TokenPhases(const RotaryArgs& args, const Scratch& scratch, int64_t t) {
  // Added before a negation it would come out negative: add its negative then.
  const uint64_t add = args.inverse ? 0 - kSinCosOffset : kSinCosOffset;
  RowPhases(*args.table, args.positions + t * args.axes, add, scratch.phases);
  const Du64 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t entries = 2 * args.table->half;
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

HWY_NOINLINE void FillTrig32(const RotaryArgs& args, const Scratch& scratch, const Needs& needs,
                             const Trig32& out) {
  const Df df;
  const Du64 d64;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(df));
  const auto amplitude = hn::Set(df, static_cast<float>(args.amplitude));
  const bool scaled = static_cast<float>(args.amplitude) != 1.0f;
  const uint64_t* odd = scratch.phases + args.table->half;
  for (int64_t j = 0; j < args.pairs; j += lanes) {
    Vf sin, cos;
    SinCosVector(hn::LoadU(d64, scratch.phases + j / 2), hn::LoadU(d64, odd + j / 2), sin, cos);
    if (scaled) {
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
  for (int64_t j = 0; j < args.pairs; j += 2) {
    out.sin_split[j / 2] = out.sin[j];
    out.cos_split[j / 2] = out.cos[j];
    out.sin_split[half + j / 2] = out.sin[j + 1];  // behind the last pair: slack
    out.cos_split[half + j / 2] = out.cos[j + 1];
  }
}

HWY_NOINLINE void FillTrig64(const RotaryArgs& args, const Scratch& scratch, const Trig64& out) {
  const Dd df;
  const Du64 du;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(df));
  const auto amplitude = hn::Set(df, args.amplitude);
  const uint64_t* odd = scratch.phases + args.table->half;
  for (int64_t j = 0; 2 * j < args.pairs; j += lanes) {
    Vd sin0, cos0, sin1, cos1;
    SinCosVector(hn::LoadU(du, scratch.phases + j), sin0, cos0);
    SinCosVector(hn::LoadU(du, odd + j), sin1, cos1);
    if (args.amplitude != 1.0) {
      sin0 = hn::Mul(amplitude, sin0);
      cos0 = hn::Mul(amplitude, cos0);
      sin1 = hn::Mul(amplitude, sin1);
      cos1 = hn::Mul(amplitude, cos1);
    }
    hn::StoreInterleaved2(sin0, sin1, df, out.sin + 2 * j);
    hn::StoreInterleaved2(cos0, cos1, df, out.cos + 2 * j);
  }
}

// Rotations of one head ---------------------------------------------------------------------------

template <class V>
HWY_INLINE void RotatePair(V x1, V x2, V c, V s, V& y1, V& y2) {
  y1 = hn::NegMulAdd(x2, s, hn::Mul(x1, c));
  y2 = hn::MulAdd(x2, c, hn::Mul(x1, s));
}

// Pair j of the natural tables with lanes x1[j], x2[j], from pair `begin` on. V is the vector, E
// the element, T the tables' type.
template <typename E, class D, typename T>
HWY_INLINE void RotateHalfSplit(D d, int64_t begin, int64_t pairs, const T* cos, const T* sin,
                                const typename E::T* x1, const typename E::T* x2, typename E::T* y1,
                                typename E::T* y2) {
  using Lane = typename E::T;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t j = begin;
  for (; j + lanes <= pairs; j += lanes) {
    decltype(hn::Zero(d)) a, b;
    RotatePair(E::Load(x1 + j), E::Load(x2 + j), hn::LoadU(d, cos + j), hn::LoadU(d, sin + j), a,
               b);
    E::Store(a, y1 + j);
    E::Store(b, y2 + j);
  }
  if (j == pairs) return;
  HWY_ALIGN Lane buffer[2 * hn::MaxLanes(d)] = {};
  Lane* second = buffer + hn::MaxLanes(d);
  const size_t bytes = static_cast<size_t>(pairs - j) * sizeof(Lane);
  std::memcpy(buffer, x1 + j, bytes);
  std::memcpy(second, x2 + j, bytes);
  decltype(hn::Zero(d)) a, b;
  RotatePair(E::Load(buffer), E::Load(second), hn::LoadU(d, cos + j), hn::LoadU(d, sin + j), a, b);
  E::Store(a, buffer);
  E::Store(b, second);
  std::memcpy(y1 + j, buffer, bytes);
  std::memcpy(y2 + j, second, bytes);
}

// The same for bfloat16, two lanes per 32-bit word.
template <bool kStream>
HWY_INLINE void RotateHalfSplitBF16(const Trig32& trig, int64_t half, int64_t pairs,
                                    const uint16_t* x1, const uint16_t* x2, uint16_t* y1,
                                    uint16_t* y2) {
  const Df df;
  const Du32 du;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(df));
  const auto upper = hn::Set(du, 0xFFFF0000u);
  int64_t j = 0;
  for (; j + 2 * lanes <= pairs; j += 2 * lanes) {
    const auto w1 = hn::LoadU(du, reinterpret_cast<const uint32_t*>(x1 + j));
    const auto w2 = hn::LoadU(du, reinterpret_cast<const uint32_t*>(x2 + j));
    Vf even1, even2, odd1, odd2;
    RotatePair(hn::BitCast(df, hn::ShiftLeft<16>(w1)), hn::BitCast(df, hn::ShiftLeft<16>(w2)),
               hn::LoadU(df, trig.cos_split + j / 2), hn::LoadU(df, trig.sin_split + j / 2), even1,
               even2);
    RotatePair(hn::BitCast(df, hn::And(w1, upper)), hn::BitCast(df, hn::And(w2, upper)),
               hn::LoadU(df, trig.cos_split + half + j / 2),
               hn::LoadU(df, trig.sin_split + half + j / 2), odd1, odd2);
    const auto r1 =
        hn::Or(hn::ShiftRight<16>(RoundToBFloat16(even1)), hn::And(RoundToBFloat16(odd1), upper));
    const auto r2 =
        hn::Or(hn::ShiftRight<16>(RoundToBFloat16(even2)), hn::And(RoundToBFloat16(odd2), upper));
    if constexpr (kStream) {
      hn::Stream(r1, du, reinterpret_cast<uint32_t*>(y1 + j));
      hn::Stream(r2, du, reinterpret_cast<uint32_t*>(y2 + j));
    } else {
      hn::StoreU(r1, du, reinterpret_cast<uint32_t*>(y1 + j));
      hn::StoreU(r2, du, reinterpret_cast<uint32_t*>(y2 + j));
    }
  }
  RotateHalfSplit<BF16>(df, j, pairs, trig.cos, trig.sin, x1, x2, y1, y2);
}

struct F32Stream : F32 {
  static HWY_INLINE void Store(Vf v, float* p) { hn::Stream(v, Df(), p); }
};

// Neighbouring lanes x[2j], x[2j + 1].
template <typename E>
HWY_INLINE void RotateInterleaved(const Trig32& trig, int64_t pairs, const typename E::T* x,
                                  typename E::T* y) {
  using Lane = typename E::T;
  const Df d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto rotate = [&](Vf v, int64_t i) HWY_ATTR {
    const auto product = hn::Mul(hn::DupEven(v), hn::LoadU(d, trig.cos_sin + i));
    return hn::MulAdd(hn::DupOdd(v), hn::LoadU(d, trig.neg_cos + i), product);
  };
  int64_t i = 0;
  for (; i + lanes <= 2 * pairs; i += lanes) E::Store(rotate(E::Load(x + i), i), y + i);
  if (i == 2 * pairs) return;
  HWY_ALIGN Lane buffer[hn::MaxLanes(d)] = {};
  const size_t bytes = static_cast<size_t>(2 * pairs - i) * sizeof(Lane);
  std::memcpy(buffer, x + i, bytes);
  E::Store(rotate(E::Load(buffer), i), buffer);
  std::memcpy(y + i, buffer, bytes);
}

template <bool kStream>
HWY_INLINE void RotateInterleavedBF16(const Trig32& trig, int64_t pairs, const uint16_t* x,
                                      uint16_t* y) {
  const Df df;
  const Du32 du;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(df));
  const auto upper = hn::Set(du, 0xFFFF0000u);
  const auto rotate = [&](Vu32 w, int64_t j) HWY_ATTR {
    Vf y1, y2;
    RotatePair(hn::BitCast(df, hn::ShiftLeft<16>(w)), hn::BitCast(df, hn::And(w, upper)),
               hn::LoadU(df, trig.cos + j), hn::LoadU(df, trig.sin + j), y1, y2);
    return hn::Or(hn::ShiftRight<16>(RoundToBFloat16(y1)), hn::And(RoundToBFloat16(y2), upper));
  };
  const auto* words = reinterpret_cast<const uint32_t*>(x);
  auto* out = reinterpret_cast<uint32_t*>(y);
  int64_t j = 0;
  for (; j + lanes <= pairs; j += lanes) {
    const auto r = rotate(hn::LoadU(du, words + j), j);
    if constexpr (kStream) {
      hn::Stream(r, du, out + j);
    } else {
      hn::StoreU(r, du, out + j);
    }
  }
  if (j == pairs) return;
  HWY_ALIGN uint32_t buffer[hn::MaxLanes(Du32())] = {};
  const size_t bytes = static_cast<size_t>(pairs - j) * sizeof(uint32_t);
  std::memcpy(buffer, words + j, bytes);
  hn::Store(rotate(hn::Load(du, buffer), j), du, buffer);
  std::memcpy(out + j, buffer, bytes);
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

// Vectors of lanes to and from f32 (or f64) scratch, for heads whose pairing changes.
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

template <typename E, class D, typename T>
HWY_INLINE void RotateMixed(D d, const RotaryArgs& args, const T* cos, const T* sin,
                            const typename E::T* x, typename E::T* y, T* in, T* out) {
  const int64_t n = args.pairs;
  LoadLanes<E>(d, x, 2 * n, in);
  const bool in_half = args.pairing_in == Pairing::kHalfSplit;
  for (int64_t j = 0; j < n; ++j) {
    const T x1 = in_half ? in[j] : in[2 * j];
    const T x2 = in_half ? in[j + n] : in[2 * j + 1];
    out[in_half ? 2 * j : j] = std::fma(-x2, sin[j], x1 * cos[j]);
    out[in_half ? 2 * j + 1 : j + n] = std::fma(x2, cos[j], x1 * sin[j]);
  }
  StoreLanes<E>(d, out, 2 * n, y);
}

// Rotates the pairs of one head; x and y stand at the first lane that rotates.
template <typename E, bool kStream>
HWY_INLINE void RotateHead(const RotaryArgs& args, const Scratch& scratch, int64_t t,
                           const std::byte* x_bytes, std::byte* y_bytes) {
  using Lane = typename E::T;
  const auto* x = reinterpret_cast<const Lane*>(x_bytes);
  auto* y = reinterpret_cast<Lane*>(y_bytes);
  const int64_t n = args.pairs;
  const bool half_split = args.pairing_in == Pairing::kHalfSplit;
  const bool mixed = args.pairing_in != args.pairing_out;
  if constexpr (std::is_same_v<E, F64>) {
    const Trig64 trig = TokenTrig64(scratch, t);
    if (mixed) {
      return RotateMixed<E>(Dd(), args, trig.cos, trig.sin, x, y, scratch.lanes_in,
                            scratch.lanes_out);
    }
    if (half_split) return RotateHalfSplit<E>(Dd(), 0, n, trig.cos, trig.sin, x, x + n, y, y + n);
    return RotateInterleaved64(trig, n, x, y);
  } else {
    const Trig32 trig = TokenTrig32(scratch, t);
    if (mixed) {
      return RotateMixed<E>(Df(), args, trig.cos, trig.sin, x, y,
                            reinterpret_cast<float*>(scratch.lanes_in),
                            reinterpret_cast<float*>(scratch.lanes_out));
    }
    if constexpr (std::is_same_v<E, BF16>) {
      if (half_split) {
        return RotateHalfSplitBF16<kStream>(trig, scratch.stride / 2, n, x, x + n, y, y + n);
      }
      return RotateInterleavedBF16<kStream>(trig, n, x, y);
    } else {
      using Out = std::conditional_t<kStream && std::is_same_v<E, F32>, F32Stream, E>;
      if (half_split) {
        return RotateHalfSplit<Out>(Df(), 0, n, trig.cos, trig.sin, x, x + n, y, y + n);
      }
      return RotateInterleaved<Out>(trig, n, x, y);
    }
  }
}

// Whether non-temporal stores of full vectors fit: every head's lanes start on a vector boundary.
HWY_INLINE bool CanStream(const RotaryArgs& args, const RotaryArgs::Tensor& tensor,
                          int64_t lane_bytes) {
  const int64_t begin = args.rotary_begin * lane_bytes;
  const int64_t half = args.pairs * lane_bytes;
  const int64_t vector_bytes = static_cast<int64_t>(hn::Lanes(Df()) * sizeof(float));
  const auto bits =
      reinterpret_cast<uintptr_t>(tensor.y) |
      static_cast<uintptr_t>(tensor.y_token_bytes | tensor.y_head_bytes | begin | half);
  return (bits & static_cast<uintptr_t>(vector_bytes - 1)) == 0;
}

// Out of line for the same reason as encode's EmitBlock.
template <typename E, bool kStream>
HWY_NOINLINE void RotateTensor(const RotaryArgs& args, const Scratch& scratch,
                               const RotaryArgs::Tensor& tensor) {
  constexpr int64_t kBytes = sizeof(typename E::T);
  const int64_t begin = args.rotary_begin * kBytes;
  const int64_t end = begin + 2 * args.pairs * kBytes;
  const int64_t tail = args.head_dim * kBytes - end;
  const auto one = [&](int64_t t, int64_t h) HWY_ATTR {
    const std::byte* x = tensor.x + t * tensor.x_token_bytes + h * tensor.x_head_bytes;
    std::byte* y = tensor.y + t * tensor.y_token_bytes + h * tensor.y_head_bytes;
    RotateHead<E, kStream>(args, scratch, t, x + begin, y + begin);
    if (x == y) return;
    if (begin > 0) std::memcpy(y, x, static_cast<size_t>(begin));
    if (tail > 0) std::memcpy(y + end, x + end, static_cast<size_t>(tail));
  };
  if (tensor.x_head_bytes > tensor.x_token_bytes) {  // heads outermost in memory
    for (int64_t h = 0; h < tensor.heads; ++h) {
      for (int64_t t = 0; t < args.tokens; ++t) one(t, h);
    }
    return;
  }
  for (int64_t t = 0; t < args.tokens; ++t) {
    for (int64_t h = 0; h < tensor.heads; ++h) one(t, h);
  }
}

template <typename E>
HWY_INLINE void RotateTensorMaybeStream(const RotaryArgs& args, const Scratch& scratch,
                                        const RotaryArgs::Tensor& tensor, bool& streamed) {
  if (args.stream && tensor.x != tensor.y && CanStream(args, tensor, sizeof(typename E::T))) {
    streamed = true;
    return RotateTensor<E, true>(args, scratch, tensor);
  }
  RotateTensor<E, false>(args, scratch, tensor);
}

void RotateTile(const RotaryArgs& args) {
  const Scratch scratch = Carve(args);
  const Needs needs = NeedsOf(args);
  for (int64_t t = 0; t < args.tokens; ++t) {
    TokenPhases(args, scratch, t);
    if (needs.f32) FillTrig32(args, scratch, needs, TokenTrig32(scratch, t));
    if (needs.f64) FillTrig64(args, scratch, TokenTrig64(scratch, t));
  }
  bool streamed = false;
  for (int64_t i = 0; i < args.tensor_count; ++i) {
    const RotaryArgs::Tensor& tensor = args.tensors[i];
    switch (tensor.dtype) {
      case Dtype::kFloat64:
        RotateTensor<F64, false>(args, scratch, tensor);
        break;
      case Dtype::kFloat32:
        RotateTensorMaybeStream<F32>(args, scratch, tensor, streamed);
        break;
      case Dtype::kFloat16:
        RotateTensor<F16, false>(args, scratch, tensor);
        break;
      default:
        RotateTensorMaybeStream<BF16>(args, scratch, tensor, streamed);
        break;
    }
  }
  if (streamed) hwy::FlushStream();
}

#endif  // PHASOR_SCALAR_TARGET

}  // namespace HWY_NAMESPACE
}  // namespace phasor::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace phasor::cpu {

RotaryKernel GetRotary(Target target) {
  switch (target) {
#if HWY_ARCH_X86
    case Target::kAvx3:
      return HWY_CHOOSE_AVX3(RotateTile);
    case Target::kAvx2:
      return HWY_CHOOSE_AVX2(RotateTile);
    case Target::kArm:
      break;
#else
    case Target::kAvx3:
    case Target::kAvx2:
      break;
    case Target::kArm:
      return HWY_STATIC_DISPATCH(RotateTile);
#endif
    case Target::kScalar:
      break;
  }
  return &reference::Rotary;
}

}  // namespace phasor::cpu
#endif  // HWY_ONCE
