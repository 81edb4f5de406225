// SPDX-License-Identifier: Apache-2.0
// Rotary for every SIMD target. Contract: kernels/ops/rotary.h.
#include <cstring>
#include <type_traits>

#include "kernels/cpu/kernels.h"
#include "kernels/reference/reference.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rotary.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// Must follow foreach_target.h, which includes this file once per target.
#include "kernels/cpu/key_rows-inl.h"
#include "kernels/cpu/rotary_tables-inl.h"
#include "kernels/cpu/rotate_head-inl.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace phasor::cpu {
namespace HWY_NAMESPACE {

#if PHASOR_SCALAR_TARGET

void RotateTile(const RotaryArgs& args) { reference::Rotary(args); }

#else

// Rows of heads that share tables, from the first lane that rotates.
struct HeadRows {
  const std::byte* x;
  std::byte* y;
  int64_t heads;
  int64_t x_bytes;  // from one head to the next
  int64_t y_bytes;
  const std::byte* ahead;  // nullptr, or the rows of a later token, which are fetched meanwhile
};

HWY_INLINE void Fetch(const std::byte* lanes, int64_t bytes) {
  constexpr int64_t kLineBytes = 64;
  for (int64_t i = 0; i < bytes; i += kLineBytes) hwy::Prefetch(lanes + i);
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
    const std::byte* x = rows.x;
    const std::byte* ahead = rows.ahead;
    std::byte* y = rows.y;
    for (int64_t h = 0; h < rows.heads; ++h, x += rows.x_bytes, y += rows.y_bytes) {
      if (ahead != nullptr) {
        Fetch(ahead, 2 * n * static_cast<int64_t>(sizeof(Lane)));
        ahead += rows.x_bytes;
      }
      rotate(reinterpret_cast<const Lane*>(x), reinterpret_cast<Lane*>(y));
    }
  };
  if constexpr (std::is_same_v<E, F64>) {
    const Trig64 trig = RowTrig64(scratch, row);
    each([&](const double* x, double* y) HWY_ATTR {
      if (mixed) {
        RotateMixed<E>(Dd(), args, trig.cos, trig.sin, x, y, scratch.lanes_in, scratch.lanes_out);
      } else if (half_split) {
        RotateHalfSplit<E>(Dd(), 0, n, trig.cos + first, trig.sin + first, x, x + n, y, y + n);
      } else {
        RotateInterleaved64(trig, n, x, y);
      }
    });
  } else {
    const Trig32 trig = RowTrig32(scratch, row);
    using Out = std::conditional_t<kStream, Streamed<E>, E>;
    if (mixed) {
      each([&](const Lane* x, Lane* y) HWY_ATTR {
        RotateMixed<E>(Df(), args, trig.cos, trig.sin, x, y,
                       reinterpret_cast<float*>(scratch.lanes_in),
                       reinterpret_cast<float*>(scratch.lanes_out));
      });
    } else if (half_split) {
      each([&](const Lane* x, Lane* y) HWY_ATTR {
        if constexpr (std::is_same_v<E, BF16>) {
          RotateHalfSplitBF16<kStream>(trig, scratch.stride / 2, first, n, x, x + n, y, y + n);
        } else {
          RotateHalfSplit<Out>(Df(), 0, n, trig.cos + first, trig.sin + first, x, x + n, y, y + n);
        }
      });
    } else {
      each([&](const Lane* x, Lane* y) HWY_ATTR {
        if constexpr (std::is_same_v<E, BF16>) {
          RotateInterleavedBF16<kStream>(trig, n, x, y);
        } else {
          RotateInterleaved<Out>(trig, n, x, y);
        }
      });
    }
  }
}

// Whether non-temporal stores of full vectors are possible: the lanes of every head must start on a
// vector boundary.
HWY_INLINE bool CanStream(const RotaryArgs& args, const RotaryArgs::Tensor& tensor,
                          int64_t lane_bytes) {
  const int64_t begin = args.rotary_begin * lane_bytes;
  const int64_t half = args.pairs * lane_bytes;
  const int64_t vector_bytes = static_cast<int64_t>(hn::Lanes(Df()) * sizeof(float));
  auto bits = reinterpret_cast<uintptr_t>(tensor.y) |
              static_cast<uintptr_t>(tensor.y_token_bytes | tensor.y_head_bytes | begin | half);
  if (args.pairing_in == Pairing::kBlockHalfSplit) {
    for (const int64_t pairs : args.blocks) bits |= static_cast<uintptr_t>(pairs * lane_bytes);
  }
  for (int64_t t = 0; t < args.tokens && tensor.y_offsets != nullptr; ++t) {
    if (tensor.y_offsets[t] > 0) bits |= static_cast<uintptr_t>(tensor.y_offsets[t]);
  }
  return (bits & static_cast<uintptr_t>(vector_bytes - 1)) == 0;
}

HWY_INLINE const std::byte* TokenOf(const RotaryArgs::Tensor& tensor, int64_t t) {
  return tensor.x + (tensor.x_offsets == nullptr ? t * tensor.x_token_bytes : tensor.x_offsets[t]);
}

// The token that is read some KiB after token t, of this tensor or of the one that is rotated next.
// Only tokens at offsets of their own gain by being fetched: the processor finds no pattern there.
HWY_INLINE const std::byte* TokenAhead(const RotaryArgs& args, const RotaryArgs::Tensor& tensor,
                                       int64_t t) {
  constexpr int64_t kAheadBytes = 8 << 10;
  if (!args.fetch || tensor.x_offsets == nullptr) return nullptr;
  const int64_t token_bytes = tensor.heads * tensor.x_head_bytes;
  const int64_t ahead = t + HWY_MAX(kAheadBytes / HWY_MAX(token_bytes, 1), 1);
  if (ahead < args.tokens) return TokenOf(tensor, ahead);
  const bool last = &tensor + 1 == args.tensors + args.tensor_count;
  return last ? nullptr : TokenOf((&tensor)[1], HWY_MIN(ahead, 2 * args.tokens - 1) - args.tokens);
}

// Calls rotate(rows, row) for every token that is written, with the heads that share the tables of
// `row`: all of them, unless heads have their own frequencies or are outermost in memory.
template <typename Rotate>
HWY_INLINE void ForEachRow(const RotaryArgs& args, const RotaryArgs::Tensor& tensor,
                           const Rotate& rotate) {
  const auto call = [&](int64_t t, int64_t h, int64_t heads) HWY_ATTR {
    const int64_t y_offset =
        tensor.y_offsets == nullptr ? t * tensor.y_token_bytes : tensor.y_offsets[t];
    if (y_offset < 0) return;
    const std::byte* const ahead = heads == 1 ? nullptr : TokenAhead(args, tensor, t);
    rotate(HeadRows{TokenOf(tensor, t) + h * tensor.x_head_bytes,
                    tensor.y + y_offset + h * tensor.y_head_bytes, heads, tensor.x_head_bytes,
                    tensor.y_head_bytes, ahead},
           args.frequency_heads == 1 ? t : t * args.frequency_heads + h);
  };
  if (tensor.x_head_bytes > tensor.x_token_bytes) {
    for (int64_t h = 0; h < tensor.heads; ++h) {
      for (int64_t t = 0; t < args.tokens; ++t) call(t, h, 1);
    }
    return;
  }
  const int64_t shared = args.frequency_heads == 1 ? tensor.heads : 1;
  for (int64_t t = 0; t < args.tokens; ++t) {
    for (int64_t h = 0; h < tensor.heads; h += shared) call(t, h, shared);
  }
}

// Calls one(x, y, row) for every head of every token that is written.
template <typename One>
HWY_INLINE void ForEachHead(const RotaryArgs& args, const RotaryArgs::Tensor& tensor,
                            const One& one) {
  ForEachRow(args, tensor, [&](const HeadRows& rows, int64_t row) HWY_ATTR {
    for (int64_t h = 0; h < rows.heads; ++h) {
      one(rows.x + h * rows.x_bytes, rows.y + h * rows.y_bytes, row);
    }
  });
}

// Not inlined, for the same reason as EmitBlock of encode.
template <typename E, bool kStream>
HWY_NOINLINE void RotateTensor(const RotaryArgs& args, const Scratch& scratch,
                               const RotaryArgs::Tensor& tensor) {
  constexpr int64_t kBytes = sizeof(typename E::T);
  const int64_t begin = args.rotary_begin * kBytes;
  const int64_t end = begin + 2 * args.pairs * kBytes;
  const int64_t tail = args.head_dim * kBytes - end;
  ForEachRow(args, tensor, [&](const HeadRows& rows, int64_t row) HWY_ATTR {
    const bool blocks =
        args.pairing_in == Pairing::kBlockHalfSplit && args.pairing_out == args.pairing_in;
    int64_t first = 0;
    for (size_t block = 0; first < args.pairs; ++block) {
      const int64_t pairs = blocks ? args.blocks[block] : args.pairs;
      const int64_t at = begin + 2 * first * kBytes;
      RotateHeads<E, kStream>(args, scratch, row, first, pairs,
                              {rows.x + at, rows.y + at, rows.heads, rows.x_bytes, rows.y_bytes,
                               rows.ahead == nullptr ? nullptr : rows.ahead + at});
      first += pairs;
    }
    if (rows.x == rows.y || begin + tail == 0) return;
    for (int64_t h = 0; h < rows.heads; ++h) {
      const std::byte* const x = rows.x + h * rows.x_bytes;
      std::byte* const y = rows.y + h * rows.y_bytes;
      if (begin > 0) std::memcpy(y, x, static_cast<size_t>(begin));
      if (tail > 0) std::memcpy(y + end, x + end, static_cast<size_t>(tail));
    }
  });
}

// Rotates a tensor to 8-bit floats.
template <typename E>
HWY_NOINLINE void RotateTensorFloat8(const RotaryArgs& args, const Scratch& scratch,
                                     const RotaryArgs::Tensor& tensor) {
  const ToFloat8 to{FormatOf(tensor.float8), tensor.inv_scale};
  const int64_t begin = args.rotary_begin;
  const int64_t end = begin + 2 * args.pairs;
  ForEachHead(args, tensor,
              [&](const std::byte* x_bytes, std::byte* y_bytes, int64_t row) HWY_ATTR {
                const auto* x = reinterpret_cast<const typename E::T*>(x_bytes);
                auto* y = reinterpret_cast<uint8_t*>(y_bytes);
                if (!tensor.rotates) return StoreLanesFloat8<E>(to, x, args.head_dim, y);
                StoreLanesFloat8<E>(to, x, begin, y);
                RotateFloat8<E>(args, RowTrig32(scratch, row), to, x + begin, y + begin,
                                reinterpret_cast<float*>(scratch.lanes_in),
                                reinterpret_cast<float*>(scratch.lanes_out));
                StoreLanesFloat8<E>(to, x + end, args.head_dim - end, y + end);
              });
}

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
                    const RotaryArgs::Tensor& tensor) {
  // The rotation of BFLOAT16 tensors reads tables that rows do not need.
  if constexpr (!std::is_same_v<E, BF16> && !std::is_same_v<E, I8>) {
    if (IsLaneTensor(args, *tensor.rows)) return RotateTensor<E, false>(args, scratch, tensor);
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

// Rotates stored keys.
void RotateRows(const RotaryArgs& args, const Scratch& scratch, const RotaryArgs::Tensor& tensor) {
  switch (tensor.rows->form->code) {
    case KeyCode::kFloat32:
      return RotateLaneKeys<F32>(args, scratch, tensor);
    case KeyCode::kFloat16:
      return RotateLaneKeys<F16>(args, scratch, tensor);
    case KeyCode::kBFloat16:
      return RotateLaneKeys<BF16>(args, scratch, tensor);
    case KeyCode::kFloat8E4M3:
      return RotateLaneKeys<F8<Float8::kE4M3> >(args, scratch, tensor);
    case KeyCode::kFloat8E5M2:
      return RotateLaneKeys<F8<Float8::kE5M2> >(args, scratch, tensor);
    case KeyCode::kInt8:
      return RotateLaneKeys<I8>(args, scratch, tensor);
    case KeyCode::kQ8_0:
      return RotateBlockKeys<KeyCode::kQ8_0>(args, scratch, tensor);
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

// Copies a tensor that does not rotate.
HWY_NOINLINE void CopyTensor(const RotaryArgs& args, const RotaryArgs::Tensor& tensor) {
  const auto bytes = static_cast<size_t>(args.head_dim * SizeOf(tensor.dtype));
  ForEachHead(args, tensor, [&](const std::byte* x, std::byte* y, int64_t) HWY_ATTR {
    if (x != y) std::memcpy(y, x, bytes);
  });
}

template <typename E>
HWY_INLINE void RotateTensorMaybeStream(const RotaryArgs& args, const Scratch& scratch,
                                        const RotaryArgs::Tensor& tensor, bool& streamed) {
  const bool in_place = tensor.x == tensor.y && tensor.x_offsets == nullptr;
  if (args.stream && !in_place && CanStream(args, tensor, sizeof(typename E::T))) {
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
    if (HasXpos(args)) TokenAmplitudes(args, scratch, t);
    for (int64_t h = 0; h < args.frequency_heads; ++h) {
      const int64_t row = t * args.frequency_heads + h;
      const int64_t pair = h * args.head_pairs;
      if (needs.f32) FillTrig32(args, scratch, needs, pair, RowTrig32(scratch, row));
      if (needs.f64) FillTrig64(args, scratch, pair, RowTrig64(scratch, row));
    }
  }
  bool streamed = false;
  for (int64_t i = 0; i < args.tensor_count; ++i) {
    const RotaryArgs::Tensor& tensor = args.tensors[i];
    if (tensor.rows != nullptr) {
      RotateRows(args, scratch, tensor);
      continue;
    }
    if (tensor.float8 != Float8::kNone) {
      if (tensor.dtype == Dtype::kFloat16) {
        RotateTensorFloat8<F16>(args, scratch, tensor);
      } else {
        RotateTensorFloat8<BF16>(args, scratch, tensor);
      }
      continue;
    }
    if (!tensor.rotates) {
      CopyTensor(args, tensor);
      continue;
    }
    switch (tensor.dtype) {
      case Dtype::kFloat64:
        RotateTensor<F64, false>(args, scratch, tensor);
        break;
      case Dtype::kFloat32:
        RotateTensorMaybeStream<F32>(args, scratch, tensor, streamed);
        break;
      case Dtype::kFloat16:
        RotateTensorMaybeStream<F16>(args, scratch, tensor, streamed);
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
