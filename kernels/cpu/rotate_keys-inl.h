// SPDX-License-Identifier: Apache-2.0
// Rotates stored keys: reads rows as lanes, rotates them and writes them (kernels/ops/key_rows.h).
//
// kernels/cpu/rotary.cc includes this once per SIMD target. It is empty on targets without vectors.
#if defined(PHASOR_KERNELS_CPU_ROTATE_KEYS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PHASOR_KERNELS_CPU_ROTATE_KEYS_INL_H_
#undef PHASOR_KERNELS_CPU_ROTATE_KEYS_INL_H_
#else
#define PHASOR_KERNELS_CPU_ROTATE_KEYS_INL_H_
#endif

#include <cstring>
#include <type_traits>

#include "kernels/cpu/elements-inl.h"
#include "kernels/cpu/key_rows-inl.h"
#include "kernels/cpu/memory-inl.h"
#include "kernels/cpu/q8_blocks-inl.h"
#include "kernels/cpu/rotary_tables-inl.h"
#include "kernels/cpu/rotate_head-inl.h"
#include "kernels/cpu/rotate_tensor-inl.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/ops/rotary.h"

#if !PHASOR_SCALAR_TARGET

HWY_BEFORE_NAMESPACE();
namespace phasor::cpu {
namespace HWY_NAMESPACE {

// How rows of stored keys become lanes, and lanes rows.
template <typename E, bool kScaled>
struct LaneCodec {
  const KeyRows& rows;
  HWY_INLINE void Decode(const std::byte* x, const std::byte* scale, float* lanes) const {
    DecodeRow<E, kScaled>(rows.window, x, scale, lanes);
  }
  HWY_INLINE void Encode(const float* lanes, std::byte* y, std::byte* scale) const {
    EncodeRow<E, kScaled>(rows.form->code, rows.window, lanes, y, scale);
  }
};
template <KeyCode kCode>
struct BlockCodec {
  const KeyRows& rows;
  HWY_INLINE void Decode(const std::byte* x, const std::byte*, float* lanes) const {
    DecodeKeyBlocks<kCode>(rows.window, x, lanes);
  }
  HWY_INLINE void Encode(const float* lanes, std::byte* y, std::byte*) const {
    EncodeKeyBlocks<kCode>(rows.window, lanes, y);
  }
};
// Rows whose lanes are not side by side, through a row where they are.
template <typename E, bool kScaled>
struct GatherCodec {
  using T = typename E::T;
  const KeyRows& rows;
  std::byte* row;
  HWY_INLINE void Decode(const std::byte* x, const std::byte* scale, float* lanes) const {
    ForEachGroup(*rows.form, rows.window, [&](int64_t first, int64_t place, size_t bytes) {
      std::memcpy(row + first * int64_t{sizeof(T)}, x + place, bytes);
    });
    LaneCodec<E, kScaled>{rows}.Decode(row, scale, lanes);
  }
  HWY_INLINE void Encode(const float* lanes, std::byte* y, std::byte* scale) const {
    LaneCodec<E, kScaled>{rows}.Encode(lanes, row, scale);
    ForEachGroup(*rows.to_form, rows.window, [&](int64_t first, int64_t place, size_t bytes) {
      std::memcpy(y + place, row + first * int64_t{sizeof(T)}, bytes);
    });
  }
};

// Rotates lanes of one head in place. `lanes` has room for a vector after the pairs. Not inlined:
// every codec of a row would have its own.
HWY_NOINLINE void RotateLanes(const RotaryArgs& args, const Trig32& trig, float* lanes,
                              float* other) {
  const int64_t n = args.pairs;
  if (args.pairing_in != args.pairing_out) {
    RotateAcross(args, trig.cos, trig.sin, lanes, other);
    std::memcpy(lanes, other, static_cast<size_t>(2 * n) * sizeof(float));
  } else {
    RotateRow(args, trig, lanes);
  }
}

template <typename Codec>
HWY_NOINLINE void RotateKeys(const RotaryArgs& args, const Scratch& scratch,
                             const RotaryArgs::Tensor& tensor, const Codec& codec) {
  const KeyRows& rows = *tensor.rows;
  const bool scaled = rows.form->scaled_rows, transformed = rows.form->hadamard != 0;
  float* const other = args.lanes + args.head_dim + 2 * kLaneSlack;
  for (int64_t t = 0; t < args.tokens; ++t) {
    if (tensor.y_offsets[t] < 0) continue;
    for (int64_t h = 0; h < tensor.heads; ++h) {
      const std::byte* const x = tensor.x + tensor.x_offsets[t] + h * tensor.x_head_bytes;
      std::byte* const y = tensor.y + tensor.y_offsets[t] + h * tensor.y_head_bytes;
      const std::byte* x_scale = nullptr;
      std::byte* y_scale = nullptr;
      if (scaled) {
        x_scale = tensor.x + rows.x_scales[t] + h * rows.form->scales.head_bytes;
        y_scale = tensor.y + rows.y_scales[t] + h * rows.to_form->scales.head_bytes;
      }
      codec.Decode(x, x_scale, args.lanes);
      if (transformed) TransformLanes(*rows.form, rows.window, args.lanes);
      const int64_t row = args.frequency_heads == 1 ? t : t * args.frequency_heads + h;
      RotateLanes(args, RowTrig32(scratch, row), args.lanes + args.rotary_begin, other);
      if (transformed) TransformLanes(*rows.form, rows.window, args.lanes);
      codec.Encode(args.lanes, y, y_scale);
    }
  }
}

// Whether rows are rotated as lanes of E, without a detour through f32 rows.
bool IsLaneTensor(const RotaryArgs& args, const KeyRows& rows) {
  return rows.form->dense() && rows.to_form->dense() && !rows.form->scaled_rows &&
         rows.form->hadamard == 0 && rows.window.begin == args.rotary_begin &&
         rows.window.end == args.rotary_begin + 2 * args.pairs;
}

template <typename E, bool kScaled>
void RotateRowsOf(const RotaryArgs& args, const Scratch& scratch,
                  const RotaryArgs::Tensor& tensor) {
  const KeyRows& rows = *tensor.rows;
  if (rows.form->dense() && rows.to_form->dense()) {
    return RotateKeys(args, scratch, tensor, LaneCodec<E, kScaled>{rows});
  }
  float* const row = args.lanes + 2 * (args.head_dim + 2 * kLaneSlack);
  RotateKeys(args, scratch, tensor,
             GatherCodec<E, kScaled>{rows, reinterpret_cast<std::byte*>(row)});
}

template <typename E>
void RotateLaneKeys(const RotaryArgs& args, const Scratch& scratch,
                    const RotaryArgs::Tensor& tensor, bool& streamed) {
  // The rotation of BFLOAT16 tensors reads tables that rows do not need.
  if constexpr (!std::is_same_v<E, BF16> && !std::is_same_v<E, I8>) {
    if (IsLaneTensor(args, *tensor.rows)) {
      return RotateTensorMaybeStream<E>(args, scratch, tensor, streamed);
    }
  }
  if constexpr (sizeof(typename E::T) == 1) {  // only these have scales per row, INT8 always
    if (tensor.rows->form->scaled_rows) return RotateRowsOf<E, true>(args, scratch, tensor);
  }
  if constexpr (!std::is_same_v<E, I8>) RotateRowsOf<E, false>(args, scratch, tensor);
}

template <KeyCode kCode>
void RotateBlockKeys(const RotaryArgs& args, const Scratch& scratch,
                     const RotaryArgs::Tensor& tensor) {
  RotateKeys(args, scratch, tensor, BlockCodec<kCode>{*tensor.rows});
}

#if HWY_ARCH_X86
// Rotates Q8_0 four blocks at a time, without a detour through f32 rows. While four are divided by
// their scales, the next four are read and rotated. Blocks end within lines, so that tokens are put
// together before they are written past the caches.
HWY_NOINLINE void RotateFourBlocksOf(const RotaryArgs& args, const Scratch& scratch,
                                     const RotaryArgs::Tensor& tensor, bool& streamed) {
  constexpr int64_t kTokenBytes = 8 << 10;
  constexpr int64_t kBytes = FourBlocksQ8::kBytes;
  const bool halves = args.pairing_in == Pairing::kHalfSplit;
  const int64_t begin = args.rotary_begin / key_blocks::kLanes * kBytes;
  const int64_t bytes = 2 * args.pairs / key_blocks::kLanes * kBytes;
  const int64_t step = (halves ? 2 : 4) * kBytes;
  const int64_t second = halves ? bytes / 2 : 2 * kBytes;
  // The rows of a token have nothing else between them. (One head may be any distance from the
  // next.)
  const bool side_by_side = begin == 0 && tensor.y_head_bytes == bytes;
  const bool stream = args.stream && side_by_side && args.frequency_heads == 1 &&
                      tensor.heads * bytes <= kTokenBytes;
  streamed |= stream;
  HWY_ALIGN std::byte token[kTokenBytes + 64];
  const auto rotate = [&](const std::byte* x_row, std::byte* y_row, int64_t heads,
                          const std::byte* ahead, int64_t row) HWY_ATTR {
    const Trig32 trig = RowTrig32(scratch, row);
    std::byte* const out = stream ? token + reinterpret_cast<uintptr_t>(y_row) % 64 : y_row;
    FourBlocksQ8 last;
    std::byte* last_y = nullptr;
    for (int64_t h = 0; h < heads; ++h) {
      const std::byte* x = x_row + h * tensor.x_head_bytes + begin;
      std::byte* y = out + h * tensor.y_head_bytes + begin;
      if (ahead != nullptr) Fetch(ahead + h * tensor.x_head_bytes + begin, bytes);
      for (int64_t first = 0; first < args.pairs; first += kPairsQ8, x += step, y += step) {
        FourBlocksQ8 next;
        next.Decode(x, x + second);
        RotateFourBlocksQ8(trig, halves, first, next.v);
        next.FindScales();
        if (last_y != nullptr) last.Store(last_y, last_y + second);
        last = next;
        last_y = y;
      }
    }
    if (last_y != nullptr) last.Store(last_y, last_y + second);
    if (stream) StreamCopy(out, heads * bytes, y_row);
  };
  ForEachRow(args, tensor, rotate);
}
#endif

void RotateQ8Keys(const RotaryArgs& args, const Scratch& scratch, const RotaryArgs::Tensor& tensor,
                  bool& streamed) {
#if HWY_ARCH_X86
  if (tensor.rows->form->hadamard == 0 && args.pairing_in == args.pairing_out &&
      args.pairing_in != Pairing::kBlockHalfSplit && args.rotary_begin % key_blocks::kLanes == 0 &&
      args.pairs % kPairsQ8 == 0) {
    return RotateFourBlocksOf(args, scratch, tensor, streamed);
  }
#endif
  RotateBlockKeys<KeyCode::kQ8_0>(args, scratch, tensor);
}

// Rotates stored keys.
void RotateRows(const RotaryArgs& args, const Scratch& scratch, const RotaryArgs::Tensor& tensor,
                bool& streamed) {
  switch (tensor.rows->form->code) {
    case KeyCode::kFloat32:
      return RotateLaneKeys<F32>(args, scratch, tensor, streamed);
    case KeyCode::kFloat16:
      return RotateLaneKeys<F16>(args, scratch, tensor, streamed);
    case KeyCode::kBFloat16:
      return RotateLaneKeys<BF16>(args, scratch, tensor, streamed);
    case KeyCode::kFloat8E4M3:
      return RotateLaneKeys<F8<Float8::kE4M3> >(args, scratch, tensor, streamed);
    case KeyCode::kFloat8E5M2:
      return RotateLaneKeys<F8<Float8::kE5M2> >(args, scratch, tensor, streamed);
    case KeyCode::kInt8:
      return RotateLaneKeys<I8>(args, scratch, tensor, streamed);
    case KeyCode::kQ8_0:
      return RotateQ8Keys(args, scratch, tensor, streamed);
    case KeyCode::kQ4_0:
      return RotateBlockKeys<KeyCode::kQ4_0>(args, scratch, tensor);
    case KeyCode::kQ4_1:
      return RotateBlockKeys<KeyCode::kQ4_1>(args, scratch, tensor);
    case KeyCode::kQ5_0:
      return RotateBlockKeys<KeyCode::kQ5_0>(args, scratch, tensor);
    case KeyCode::kQ5_1:
      return RotateBlockKeys<KeyCode::kQ5_1>(args, scratch, tensor);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace phasor::cpu
HWY_AFTER_NAMESPACE();

#endif  // !PHASOR_SCALAR_TARGET
#endif  // include guard
