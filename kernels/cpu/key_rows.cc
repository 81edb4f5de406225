// SPDX-License-Identifier: Apache-2.0
// Reads and writes stored keys, for every SIMD target. Contract: kernels/ops/key_rows.h. Rows
// whose lanes are not dense, and codes of 4 and 5 bits, take the scalar functions.
#include <cstring>

#include "kernels/cpu/kernels.h"
#include "kernels/math/hadamard.h"
#include "kernels/math/key_blocks.h"
#include "kernels/reference/reference.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/key_rows.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// Must follow foreach_target.h, which includes this file once per target.
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace phasor::cpu {
namespace HWY_NAMESPACE {

#if PHASOR_SCALAR_TARGET

void DecodeRows(const DecodeKeysArgs& args) { reference::DecodeKeys(args); }
void EncodeRows(const EncodeKeysArgs& args) { reference::EncodeKeys(args); }

#else

using D8 = hn::Rebind<int8_t, Df>;
using Du8 = hn::Rebind<uint8_t, Df>;

// One struct per code of a lane: loads and stores Lanes(Df) lanes, at any alignment.
struct I8 {
  using T = int8_t;
  static HWY_INLINE Vf Load(const T* p) {
    return hn::ConvertTo(Df(), hn::PromoteTo(Di32(), hn::LoadU(D8(), p)));
  }
  // key_blocks::Int8Of.
  static HWY_INLINE void Store(Vf v, T* p) {
    const Df d;
    const auto whole = hn::Trunc(v);
    const auto up = hn::Ge(hn::Abs(hn::Sub(v, whole)), hn::Set(d, 0.5f));
    const auto one = hn::CopySign(hn::Set(d, 1.0f), v);
    auto rounded = hn::Add(whole, hn::IfThenElseZero(up, one));
    rounded = hn::Max(hn::Min(rounded, hn::Set(d, 127.0f)), hn::Set(d, -128.0f));
    rounded = hn::IfThenElseZero(hn::Eq(v, v), rounded);
    hn::StoreU(hn::DemoteTo(D8(), hn::ConvertTo(Di32(), rounded)), D8(), p);
  }
};
template <Float8 kType>
struct F8 {
  using T = uint8_t;
  static HWY_INLINE Vf Load(const T* p) {
    const Df d;
    const Du32 du;
    if constexpr (kType == Float8::kE5M2) {
      const hn::Rebind<uint16_t, Df> d16;
      const hn::Rebind<hwy::float16_t, Df> df16;
      const auto half = hn::ShiftLeft<8>(hn::PromoteTo(d16, hn::LoadU(Du8(), p)));
      return hn::PromoteTo(d, hn::BitCast(df16, half));
    } else {
      const auto bits = hn::PromoteTo(du, hn::LoadU(Du8(), p));
      const auto sign = hn::ShiftLeft<24>(hn::And(bits, hn::Set(du, 0x80u)));
      const auto magnitude = hn::And(bits, hn::Set(du, 0x7Fu));
      const auto normal = hn::Add(hn::ShiftLeft<20>(magnitude), hn::Set(du, 0x3C000000u));
      const auto small = hn::BitCast(
          du, hn::Mul(hn::ConvertTo(d, hn::BitCast(Di32(), magnitude)), hn::Set(d, 0x1p-9f)));
      auto value = hn::IfThenElse(hn::Lt(magnitude, hn::Set(du, 8u)), small, normal);
      value =
          hn::IfThenElse(hn::Eq(magnitude, hn::Set(du, 0x7Fu)), hn::Set(du, 0x7FC00000u), value);
      return hn::BitCast(d, hn::Or(sign, value));
    }
  }
  static HWY_INLINE void Store(Vf v, T* p) {
    StoreFloat8(v, hn::Set(Df(), 1.0f), FormatOf(kType), p);
  }
};

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

// key_blocks::LargestMagnitude.
HWY_INLINE float LargestMagnitude(const float* x, int64_t count) {
  const Df d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto largest = hn::Zero(d);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto magnitude = hn::Abs(hn::LoadU(d, x + i));
    largest = hn::IfThenElse(hn::Gt(magnitude, largest), magnitude, largest);
  }
  const float rest = key_blocks::LargestMagnitude(x + i, count - i);
  const float found = hn::GetLane(hn::MaxOfLanes(d, largest));
  return rest > found ? rest : found;
}

// Q8_0: 32 codes with an f16 scale before them. Every target's vector divides a block.
HWY_INLINE void DecodeBlockQ8(const std::byte* block, float* x) {
  DecodeLanes<I8, true>(block + 2, key_blocks::LoadFloat16(block), key_blocks::kLanes, x);
}
HWY_INLINE void EncodeBlockQ8(const float* x, std::byte* block) {
  const Df d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const float scale = LargestMagnitude(x, key_blocks::kLanes) / 127.0f;
  const auto inverse = hn::Set(d, key_blocks::InverseOf(scale));
  key_blocks::StoreFloat16(scale, block);
  auto* codes = reinterpret_cast<int8_t*>(block + 2);
  for (int64_t i = 0; i < key_blocks::kLanes; i += lanes) {
    I8::Store(hn::Mul(hn::LoadU(d, x + i), inverse), codes + i);
  }
}

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

HWY_INLINE void TransformLanes(const KeyForm& form, KeyWindow window, float* lanes) {
  if (form.hadamard == 0) return;
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

// Calls f(row, lanes, scale) for each head.
template <typename Args, typename F>
HWY_INLINE void ForEachRow(const Args& args, const F& f) {
  const KeyForm& form = *args.form;
  for (int64_t h = 0; h < form.heads; ++h) {
    f(args.row + h * form.head_bytes, args.lanes + h * form.head_dim,
      args.scale + h * form.scales.head_bytes);
  }
}

template <typename E>
HWY_NOINLINE void DecodeAll(const DecodeKeysArgs& args) {
  const int64_t begin = args.window.begin, count = args.window.end - begin;
  const auto first = begin * static_cast<int64_t>(sizeof(typename E::T));
  ForEachRow(args, [&](const std::byte* row, float* lanes, const std::byte* scale) HWY_ATTR {
    if (args.form->scaled_rows) {
      float s;
      std::memcpy(&s, scale, sizeof s);
      DecodeLanes<E, true>(row + first, s, count, lanes + begin);
    } else {
      DecodeLanes<E, false>(row + first, 1, count, lanes + begin);
    }
    TransformLanes(*args.form, args.window, lanes);
  });
}

template <typename E>
HWY_NOINLINE void EncodeAll(const EncodeKeysArgs& args) {
  const int64_t begin = args.window.begin, count = args.window.end - begin;
  const auto first = begin * static_cast<int64_t>(sizeof(typename E::T));
  ForEachRow(args, [&](std::byte* row, float* lanes, std::byte* scale) HWY_ATTR {
    TransformLanes(*args.form, args.window, lanes);
    if (!args.form->scaled_rows) {
      return EncodeLanes<E, false>(lanes + begin, 1, count, row + first);
    }
    float s = LargestMagnitude(lanes, count) / LargestCode(args.form->code);
    if (!(s > kLeastRowScale)) s = kLeastRowScale;
    std::memcpy(scale, &s, sizeof s);
    EncodeLanes<E, true>(lanes, s, count, row);
  });
}

HWY_NOINLINE void DecodeQ8(const DecodeKeysArgs& args) {
  ForEachRow(args, [&](const std::byte* row, float* lanes, const std::byte*) HWY_ATTR {
    for (int64_t i = args.window.begin; i < args.window.end; i += 32) {
      DecodeBlockQ8(row + i / 32 * 34, lanes + i);
    }
    TransformLanes(*args.form, args.window, lanes);
  });
}

HWY_NOINLINE void EncodeQ8(const EncodeKeysArgs& args) {
  ForEachRow(args, [&](std::byte* row, float* lanes, std::byte*) HWY_ATTR {
    TransformLanes(*args.form, args.window, lanes);
    for (int64_t i = args.window.begin; i < args.window.end; i += 32) {
      EncodeBlockQ8(lanes + i, row + i / 32 * 34);
    }
  });
}

void DecodeRows(const DecodeKeysArgs& args) {
  if (!args.form->dense()) return reference::DecodeKeys(args);
  switch (args.form->code) {
    case KeyCode::kFloat32:
      return DecodeAll<F32>(args);
    case KeyCode::kFloat16:
      return DecodeAll<F16>(args);
    case KeyCode::kBFloat16:
      return DecodeAll<BF16>(args);
    case KeyCode::kFloat8E4M3:
      return DecodeAll<F8<Float8::kE4M3> >(args);
    case KeyCode::kFloat8E5M2:
      return DecodeAll<F8<Float8::kE5M2> >(args);
    case KeyCode::kInt8:
      return DecodeAll<I8>(args);
    case KeyCode::kQ8_0:
      return DecodeQ8(args);
    default:
      return reference::DecodeKeys(args);
  }
}

void EncodeRows(const EncodeKeysArgs& args) {
  if (!args.form->dense()) return reference::EncodeKeys(args);
  switch (args.form->code) {
    case KeyCode::kFloat32:
      return EncodeAll<F32>(args);
    case KeyCode::kFloat16:
      return EncodeAll<F16>(args);
    case KeyCode::kBFloat16:
      return EncodeAll<BF16>(args);
    case KeyCode::kFloat8E4M3:
      return EncodeAll<F8<Float8::kE4M3> >(args);
    case KeyCode::kFloat8E5M2:
      return EncodeAll<F8<Float8::kE5M2> >(args);
    case KeyCode::kInt8:
      return EncodeAll<I8>(args);
    case KeyCode::kQ8_0:
      return EncodeQ8(args);
    default:
      return reference::EncodeKeys(args);
  }
}

#endif  // PHASOR_SCALAR_TARGET

}  // namespace HWY_NAMESPACE
}  // namespace phasor::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace phasor::cpu {

DecodeKeysKernel GetDecodeKeys(Target target) {
  switch (target) {
#if HWY_ARCH_X86
    case Target::kAvx3:
      return HWY_CHOOSE_AVX3(DecodeRows);
    case Target::kAvx2:
      return HWY_CHOOSE_AVX2(DecodeRows);
    case Target::kArm:
      break;
#else
    case Target::kAvx3:
    case Target::kAvx2:
      break;
    case Target::kArm:
      return HWY_STATIC_DISPATCH(DecodeRows);
#endif
    case Target::kScalar:
      break;
  }
  return &reference::DecodeKeys;
}

EncodeKeysKernel GetEncodeKeys(Target target) {
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
  return &reference::EncodeKeys;
}

}  // namespace phasor::cpu
#endif  // HWY_ONCE
