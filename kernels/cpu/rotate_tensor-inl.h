// SPDX-License-Identifier: Apache-2.0
// Rotates the heads of a tensor, token by token, by given tables.
//
// kernels/cpu/rotary.cc includes this once per SIMD target. It is empty on targets without vectors.
#if defined(PHASOR_KERNELS_CPU_ROTATE_TENSOR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PHASOR_KERNELS_CPU_ROTATE_TENSOR_INL_H_
#undef PHASOR_KERNELS_CPU_ROTATE_TENSOR_INL_H_
#else
#define PHASOR_KERNELS_CPU_ROTATE_TENSOR_INL_H_
#endif

#include <cstring>
#include <type_traits>

#include "kernels/cpu/rotary_tables-inl.h"
#include "kernels/cpu/rotate_head-inl.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/ops/rotary.h"

#if !PHASOR_SCALAR_TARGET

HWY_BEFORE_NAMESPACE();
namespace phasor::cpu {
namespace HWY_NAMESPACE {

// Rows of heads that share tables, from the first lane that rotates.
struct HeadRows {
  const std::byte* x;
  std::byte* y;
  int64_t heads;
  int64_t x_bytes;  // from one head to the next
  int64_t y_bytes;
  const std::byte* ahead;  // nullptr, or the rows of a later token, which are fetched meanwhile
};

// Fetches lanes into the second cache: the first has few places for lines that are on their way.
HWY_INLINE void Fetch(const std::byte* lanes, int64_t bytes) {
  constexpr int64_t kLineBytes = 64;
  for (int64_t i = 0; i < bytes; i += kLineBytes)
    __builtin_prefetch(lanes + i, /*rw=*/0, /*locality=*/2);
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
        if constexpr (InEvenOdd<E>) {
          RotateHalfSplitEvenOdd<E, kStream>(trig, scratch.stride / 2, first, n, x, x + n, y,
                                             y + n);
        } else {
          RotateHalfSplit<Out>(Df(), 0, n, trig.cos + first, trig.sin + first, x, x + n, y, y + n);
        }
      });
    } else {
      each([&](const Lane* x, Lane* y) HWY_ATTR {
        if constexpr (InEvenOdd<E>) {
          RotateInterleavedEvenOdd<E, kStream>(trig, n, x, y);
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
  constexpr int64_t kAheadBytes = 4 << 10;
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

}  // namespace HWY_NAMESPACE
}  // namespace phasor::cpu
HWY_AFTER_NAMESPACE();

#endif  // !PHASOR_SCALAR_TARGET
#endif  // include guard
