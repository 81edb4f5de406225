// SPDX-License-Identifier: Apache-2.0
// Reads and writes stored keys for each SIMD target: reference::DecodeKeys and EncodeKeys for dense
// rows of one head. Contract: kernels/ops/key_rows.h.
//
// kernels/cpu/rotary.cc includes this once per SIMD target. It is empty on targets without vectors.
#if defined(PHASOR_KERNELS_CPU_KEY_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PHASOR_KERNELS_CPU_KEY_ROWS_INL_H_
#undef PHASOR_KERNELS_CPU_KEY_ROWS_INL_H_
#else
#define PHASOR_KERNELS_CPU_KEY_ROWS_INL_H_
#endif

#include <cfloat>
#include <cstring>

#include "kernels/cpu/lane_codes-inl.h"
#include "kernels/cpu/q8_blocks-inl.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/math/hadamard.h"
#include "kernels/math/key_blocks.h"
#include "kernels/ops/key_rows.h"

#if !PHASOR_SCALAR_TARGET

HWY_BEFORE_NAMESPACE();
namespace phasor::cpu {
namespace HWY_NAMESPACE {

// lanes[i] = value of x[i], times the scale if kScaled.
template <typename E, bool kScaled>
HWY_INLINE void DecodeLanes(const std::byte* x_bytes, float scale, int64_t count, float* out) {
  const Df d;
  const auto* x = reinterpret_cast<const typename E::T*>(x_bytes);
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto factor = hn::Set(d, scale);
  const auto value = [&](Vf v) HWY_ATTR { return kScaled ? hn::Mul(v, factor) : v; };
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(value(E::Load(x + i)), d, out + i);
  if (i == count) return;
  HWY_ALIGN typename E::T buffer[hn::MaxLanes(d)] = {};
  HWY_ALIGN float values[hn::MaxLanes(d)];
  std::memcpy(buffer, x + i, static_cast<size_t>(count - i) * sizeof(typename E::T));
  hn::Store(value(E::Load(buffer)), d, values);
  std::memcpy(out + i, values, static_cast<size_t>(count - i) * sizeof(float));
}

// x[i] = code of lanes[i], divided by the scale if kScaled.
template <typename E, bool kScaled>
HWY_INLINE void EncodeLanes(const float* in, float scale, int64_t count, std::byte* x_bytes) {
  const Df d;
  auto* x = reinterpret_cast<typename E::T*>(x_bytes);
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto divisor = hn::Set(d, scale);
  const auto value = [&](Vf v) HWY_ATTR { return kScaled ? hn::Div(v, divisor) : v; };
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) E::Store(value(hn::LoadU(d, in + i)), x + i);
  if (i == count) return;
  HWY_ALIGN float values[hn::MaxLanes(d)] = {};
  HWY_ALIGN typename E::T buffer[hn::MaxLanes(d)];
  std::memcpy(values, in + i, static_cast<size_t>(count - i) * sizeof(float));
  E::Store(value(hn::Load(d, values)), buffer);
  std::memcpy(x + i, buffer, static_cast<size_t>(count - i) * sizeof(typename E::T));
}

// Blocks of 32 lanes. Every target's vector divides half a block. ---------------------------------

template <KeyCode kCode>
HWY_INLINE std::byte* BlockOf(std::byte* blocks, int64_t b) {
  return blocks + b * UnitBytes(kCode);
}
template <KeyCode kCode>
HWY_INLINE const std::byte* BlockOf(const std::byte* blocks, int64_t b) {
  return blocks + b * UnitBytes(kCode);
}

// The codes of lanes i, ..., of the half blocks that share the bytes at `nibbles`.
template <int kBits>
struct Codes {
  // Lanes [i, i + Lanes) of the lower and of the upper half.
  static HWY_INLINE void Load(uint32_t fifth_bits, const std::byte* nibbles, int64_t i, Vf& low,
                              Vf& high) {
    const Du32 du;
    const auto both =
        hn::PromoteTo(du, hn::LoadU(Du8(), reinterpret_cast<const uint8_t*>(nibbles) + i));
    auto l = hn::And(both, hn::Set(du, 15u));
    auto h = hn::ShiftRight<4>(both);
    if constexpr (kBits == 5) {
      const auto lane = hn::Iota(du, static_cast<uint32_t>(i));
      const auto bit = [&](uint32_t bits) HWY_ATTR {
        return hn::ShiftLeft<4>(hn::And(hn::Shr(hn::Set(du, bits), lane), hn::Set(du, 1u)));
      };
      l = hn::Or(l, bit(fifth_bits));
      h = hn::Or(h, bit(fifth_bits >> 16));
    }
    low = hn::ConvertTo(Df(), hn::BitCast(Di32(), l));
    high = hn::ConvertTo(Df(), hn::BitCast(Di32(), h));
  }
  // key_blocks::CodeOf.
  static HWY_INLINE Vu32 Of(Vf v) {
    const Df d;
    const auto largest = hn::Set(d, static_cast<float>((1 << kBits) - 1));
    const auto code = hn::IfThenElseZero(hn::Gt(v, hn::Zero(d)), hn::Min(v, largest));
    return hn::BitCast(Du32(), hn::ConvertTo(Di32(), code));
  }
  static HWY_INLINE void Store(Vu32 low, Vu32 high, int64_t i, std::byte* nibbles,
                               uint32_t* fifth_bits) {
    const Du32 du;
    const Di32 di;
    const auto four = hn::Set(du, 15u);
    const auto both = hn::Or(hn::And(low, four), hn::ShiftLeft<4>(hn::And(high, four)));
    hn::StoreU(hn::DemoteTo(Du8(), hn::BitCast(di, both)), Du8(),
               reinterpret_cast<uint8_t*>(nibbles) + i);
    if constexpr (kBits == 5) {
      const auto bits = [&](Vu32 codes) HWY_ATTR {
        const auto lane = hn::Iota(du, static_cast<uint32_t>(i));
        const auto placed = hn::Shl(hn::ShiftRight<4>(codes), lane);
        return hn::GetLane(hn::SumOfLanes(du, placed));  // no two have the same bit
      };
      *fifth_bits |= bits(low) | bits(high) << 16;
    }
  }
};

// key_blocks::DecodeCentred and DecodeOffset.
template <int kBits, bool kCentred>
HWY_INLINE void DecodeBlock(const std::byte* block, float* x) {
  constexpr int64_t kFifth = kCentred ? 2 : 4;
  constexpr int64_t kNibbles = kFifth + (kBits == 5 ? 4 : 0);
  const Df df;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(df));
  const auto d = LoadFloat16(block);
  const auto smallest = kCentred ? hn::Zero(df) : LoadFloat16(block + 2);
  const auto half = hn::Set(df, static_cast<float>(1 << (kBits - 1)));
  uint32_t fifth = 0;
  if constexpr (kBits == 5) std::memcpy(&fifth, block + kFifth, sizeof fifth);
  const auto value = [&](Vf code) HWY_ATTR {
    if constexpr (kCentred) return hn::Mul(hn::Sub(code, half), d);
    return hn::Add(hn::Mul(code, d), smallest);
  };
  for (int64_t i = 0; i < 16; i += lanes) {
    Vf low, high;
    Codes<kBits>::Load(fifth, block + kNibbles, i, low, high);
    hn::StoreU(value(low), df, x + i);
    hn::StoreU(value(high), df, x + 16 + i);
  }
}

// The lane of largest magnitude, the first of several; 0 if there is none but zeros and NaNs.
HWY_INLINE float LaneOfLargestMagnitude(const float* x) {
  const Df d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const float magnitude = LargestMagnitude(x, key_blocks::kLanes);
  if (magnitude == 0) return 0;
  for (int64_t i = 0; i < key_blocks::kLanes; i += lanes) {
    const auto found = hn::Eq(hn::Abs(hn::LoadU(d, x + i)), hn::Set(d, magnitude));
    const intptr_t lane = hn::FindFirstTrue(d, found);
    if (lane >= 0) return x[i + lane];
  }
  return 0;
}

// key_blocks::EncodeCentred.
template <int kBits>
HWY_INLINE void EncodeCentred(const float* x, std::byte* block) {
  constexpr float kHalf = 1 << (kBits - 1);
  const Df df;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(df));
  const float scale = LaneOfLargestMagnitude(x) / -kHalf;
  const auto inverse = hn::Set(df, key_blocks::InverseOf(scale));
  const auto shift = hn::Set(df, kHalf + 0.5f);
  StoreFloat16(scale, block);
  uint32_t fifth = 0;
  const auto code = [&](const float* p) HWY_ATTR {
    return Codes<kBits>::Of(hn::Add(hn::Mul(hn::LoadU(df, p), inverse), shift));
  };
  for (int64_t i = 0; i < 16; i += lanes) {
    Codes<kBits>::Store(code(x + i), code(x + 16 + i), i, block + (kBits == 5 ? 6 : 2), &fifth);
  }
  if constexpr (kBits == 5) std::memcpy(block + 2, &fifth, sizeof fifth);
}

// key_blocks::EncodeOffset.
template <int kBits>
HWY_INLINE void EncodeOffset(const float* x, std::byte* block) {
  const Df df;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(df));
  auto least = hn::Set(df, FLT_MAX), most = hn::Set(df, -FLT_MAX);
  for (int64_t i = 0; i < key_blocks::kLanes; i += lanes) {
    const auto v = hn::LoadU(df, x + i);
    least = hn::IfThenElse(hn::Lt(v, least), v, least);
    most = hn::IfThenElse(hn::Gt(v, most), v, most);
  }
  const float smallest = hn::GetLane(hn::MinOfLanes(df, least));
  const float largest = hn::GetLane(hn::MaxOfLanes(df, most));
  // The sign of a zero depends on the order of lanes.
  if (smallest == 0) return key_blocks::EncodeOffset<kBits>(x, block);
  const float scale = (largest - smallest) / static_cast<float>((1 << kBits) - 1);
  const auto inverse = hn::Set(df, key_blocks::InverseOf(scale));
  const auto offset = hn::Set(df, smallest);
  const auto half = hn::Set(df, 0.5f);
  StoreFloat16(scale, block);
  StoreFloat16(smallest, block + 2);
  uint32_t fifth = 0;
  const auto code = [&](const float* p) HWY_ATTR {
    const auto v = hn::Sub(hn::LoadU(df, p), offset);
    return Codes<kBits>::Of(hn::Add(hn::Mul(v, inverse), half));
  };
  for (int64_t i = 0; i < 16; i += lanes) {
    Codes<kBits>::Store(code(x + i), code(x + 16 + i), i, block + (kBits == 5 ? 8 : 4), &fifth);
  }
  if constexpr (kBits == 5) std::memcpy(block + 4, &fifth, sizeof fifth);
}

template <KeyCode kCode>
HWY_INLINE void DecodeKeyBlock(const std::byte* block, float* x) {
  if constexpr (kCode == KeyCode::kQ8_0) DecodeBlockQ8(block, x);
  if constexpr (kCode == KeyCode::kQ4_0) DecodeBlock<4, true>(block, x);
  if constexpr (kCode == KeyCode::kQ5_0) DecodeBlock<5, true>(block, x);
  if constexpr (kCode == KeyCode::kQ4_1) DecodeBlock<4, false>(block, x);
  if constexpr (kCode == KeyCode::kQ5_1) DecodeBlock<5, false>(block, x);
}

template <KeyCode kCode>
HWY_INLINE void EncodeKeyBlock(const float* x, std::byte* block) {
  if constexpr (kCode == KeyCode::kQ8_0) EncodeBlockQ8(x, block);
  if constexpr (kCode == KeyCode::kQ4_0) EncodeCentred<4>(x, block);
  if constexpr (kCode == KeyCode::kQ5_0) EncodeCentred<5>(x, block);
  if constexpr (kCode == KeyCode::kQ4_1) EncodeOffset<4>(x, block);
  if constexpr (kCode == KeyCode::kQ5_1) EncodeOffset<5>(x, block);
}

// The blocks of a window.
template <KeyCode kCode>
HWY_INLINE void DecodeKeyBlocks(KeyWindow window, const std::byte* row, float* lanes) {
  for (int64_t i = window.begin; i < window.end; i += key_blocks::kLanes) {
    DecodeKeyBlock<kCode>(BlockOf<kCode>(row, i / key_blocks::kLanes), lanes + i);
  }
}
template <KeyCode kCode>
HWY_INLINE void EncodeKeyBlocks(KeyWindow window, const float* lanes, std::byte* row) {
  int64_t i = window.begin;
  const auto block = [&] { return BlockOf<kCode>(row, i / key_blocks::kLanes); };
#if HWY_ARCH_X86
  if constexpr (kCode == KeyCode::kQ8_0) {
    for (; i + 4 * key_blocks::kLanes <= window.end; i += 4 * key_blocks::kLanes) {
      FourBlocksQ8 four;
      four.Load(lanes + i);
      four.FindScales();
      four.Store(block(), block() + 2 * FourBlocksQ8::kBytes);
    }
  }
#endif
  for (; i < window.end; i += key_blocks::kLanes) EncodeKeyBlock<kCode>(lanes + i, block());
}

// Hadamard transforms --------------------------------------------------------------------------

#if HWY_ARCH_X86
// The butterflies of one distance below the vector's length: `other` has the lanes at that
// distance. The upper lane of a pair becomes other - v.
HWY_INLINE Vf Butterfly(Vf v, Vf other, int distance) {
  const Du32 du;
  const auto upper =
      hn::Ne(hn::And(hn::Iota(du, 0), hn::Set(du, static_cast<uint32_t>(distance))), hn::Zero(du));
  return hn::IfThenElse(hn::RebindMask(Df(), upper), hn::Sub(other, v), hn::Add(v, other));
}

// phasor::Hadamard for n >= Lanes(Df()).
HWY_INLINE void HadamardBlock(int64_t n, float* x) {
  const Df d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < n; i += lanes) {
    auto v = hn::LoadU(d, x + i);
    v = Butterfly(v, hn::Shuffle2301(v), 1);
    v = Butterfly(v, hn::Shuffle1032(v), 2);
    if (lanes > 4) v = Butterfly(v, hn::SwapAdjacentBlocks(v), 4);
    if (lanes > 8) v = Butterfly(v, hn::ConcatLowerUpper(d, v, v), 8);
    hn::StoreU(v, d, x + i);
  }
  for (int64_t distance = lanes; distance < n; distance *= 2) {
    for (int64_t first = 0; first < n; first += 2 * distance) {
      for (int64_t i = first; i < first + distance; i += lanes) {
        const auto a = hn::LoadU(d, x + i), b = hn::LoadU(d, x + i + distance);
        hn::StoreU(hn::Add(a, b), d, x + i);
        hn::StoreU(hn::Sub(a, b), d, x + i + distance);
      }
    }
  }
  const auto factor = hn::Set(d, HadamardFactor(n));
  for (int64_t i = 0; i < n; i += lanes) hn::StoreU(hn::Mul(hn::LoadU(d, x + i), factor), d, x + i);
}
#endif

// Only if the form has a transform.
HWY_NOINLINE void TransformLanes(const KeyForm& form, KeyWindow window, float* lanes) {
  for (int64_t i = window.begin; i < window.end; i += form.hadamard) {
#if HWY_ARCH_X86
    if (form.hadamard >= static_cast<int64_t>(hn::Lanes(Df()))) {
      HadamardBlock(form.hadamard, lanes + i);
      continue;
    }
#endif
    Hadamard(form.hadamard, lanes + i);
  }
}

// Rows ------------------------------------------------------------------------------------------

// Calls copy(first lane, its place in the row, bytes) for lanes [begin, end) of a window that are
// side by side.
template <typename Copy>
HWY_INLINE void ForEachGroup(const KeyForm& form, KeyWindow window, const Copy& copy) {
  const int64_t unit = UnitBytes(form.code);
  const int64_t together = form.lane_bytes == unit ? form.group_lanes : 1;
  int64_t group = window.begin / form.group_lanes;
  int64_t lane = window.begin % form.group_lanes;
  for (int64_t i = window.begin; i < window.end;) {
    const int64_t rest = together == 1 ? 1 : together - lane;
    const int64_t count = rest < window.end - i ? rest : window.end - i;
    copy(i, group * form.group_bytes + lane * form.lane_bytes, static_cast<size_t>(count * unit));
    i += count;
    lane += count;
    if (lane == form.group_lanes) ++group, lane = 0;
  }
}

// reference::DecodeKeys of a dense row of code E, whose scale is at `scale` if kScaled.
template <typename E, bool kScaled>
HWY_INLINE void DecodeRow(KeyWindow window, const std::byte* row, const std::byte* scale,
                          float* lanes) {
  float s = 1;
  if constexpr (kScaled) std::memcpy(&s, scale, sizeof s);
  DecodeLanes<E, kScaled>(row + window.begin * static_cast<int64_t>(sizeof(typename E::T)), s,
                          window.end - window.begin, lanes + window.begin);
}

// reference::EncodeKeys of such a row.
template <typename E, bool kScaled>
HWY_INLINE void EncodeRow(KeyCode code, KeyWindow window, const float* lanes, std::byte* row,
                          std::byte* scale) {
  const int64_t count = window.end - window.begin;
  float s = 1;
  if constexpr (kScaled) {
    s = LargestMagnitude(lanes + window.begin, count) / LargestCode(code);
    if (!(s > kLeastRowScale)) s = kLeastRowScale;
    std::memcpy(scale, &s, sizeof s);
  }
  EncodeLanes<E, kScaled>(lanes + window.begin, s, count,
                          row + window.begin * static_cast<int64_t>(sizeof(typename E::T)));
}

}  // namespace HWY_NAMESPACE
}  // namespace phasor::cpu
HWY_AFTER_NAMESPACE();

#endif  // !PHASOR_SCALAR_TARGET
#endif  // include guard
