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

#include "kernels/cpu/elements-inl.h"
#include "kernels/cpu/memory-inl.h"
#include "kernels/cpu/rotary_tables-inl.h"
#include "kernels/cpu/rotate_heads-inl.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/ops/rotary.h"

#if !PHASOR_SCALAR_TARGET

HWY_BEFORE_NAMESPACE();
namespace phasor::cpu {
namespace HWY_NAMESPACE {

// Whether the lanes of every head can be written past the caches.
HWY_INLINE bool CanStream(const RotaryArgs& args, const RotaryArgs::Tensor& tensor,
                          int64_t lane_bytes) {
  const int64_t begin = args.rotary_begin * lane_bytes;
  const int64_t half = args.pairs * lane_bytes;
  auto bits = reinterpret_cast<uintptr_t>(tensor.y) |
              static_cast<uintptr_t>(tensor.y_token_bytes | tensor.y_head_bytes | begin | half);
  if (args.pairing_in == Pairing::kBlockHalfSplit) {
    for (const int64_t pairs : args.blocks) bits |= static_cast<uintptr_t>(pairs * lane_bytes);
  }
  for (int64_t t = 0; t < args.tokens && tensor.y_offsets != nullptr; ++t) {
    if (tensor.y_offsets[t] > 0) bits |= static_cast<uintptr_t>(tensor.y_offsets[t]);
  }
  return CanStreamAt(bits);
}

HWY_INLINE const std::byte* TokenOf(const RotaryArgs::Tensor& tensor, int64_t t) {
  return tensor.x + (tensor.x_offsets == nullptr ? t * tensor.x_token_bytes : tensor.x_offsets[t]);
}

// About the bytes of a token, at most `most`: distances that no extent uses may be anything.
HWY_INLINE int64_t TokenBytes(int64_t heads, int64_t head_bytes, int64_t token_bytes,
                              int64_t most) {
  const int64_t head = HWY_MIN(HWY_MIN(head_bytes, token_bytes), most);
  return HWY_MIN(heads * head, most);
}

struct Token {
  const RotaryArgs::Tensor* tensor;  // nullptr: none
  int64_t index;
};

// The token that is read some KiB after token t, of this tensor or of the one that is rotated next.
// Processors do not find it by themselves: tokens may have offsets of their own, and 16-bit floats
// are read twice, so that the memory would wait during the second time.
HWY_INLINE Token TokenAhead(const RotaryArgs& args, const RotaryArgs::Tensor& tensor, int64_t t) {
  constexpr int64_t kAheadBytes = 4 << 10;
  if (!args.fetch) return {nullptr, 0};
  const int64_t token_bytes =
      TokenBytes(tensor.heads, tensor.x_head_bytes, tensor.x_token_bytes, kAheadBytes);
  const int64_t ahead = t + HWY_MAX(kAheadBytes / HWY_MAX(token_bytes, 1), 1);
  if (ahead < args.tokens) return {&tensor, ahead};
  const bool last = &tensor + 1 == args.tensors + args.tensor_count;
  if (last) return {nullptr, 0};
  return {&tensor + 1, HWY_MIN(ahead, 2 * args.tokens - 1) - args.tokens};
}

// Fetches a line of each page that a token is written to, but not of the page where the token
// before ends: stores past the caches do not wait for the pages' translations then. Not inlined:
// sixty loops would each have it.
HWY_NOINLINE void FetchPages(const RotaryArgs::Tensor& tensor, int64_t t) {
  constexpr int64_t kMostBytes = 64 << 10;  // later pages are found while these are written
  if (tensor.y_offsets != nullptr && tensor.y_offsets[t] < 0) return;
  const int64_t bytes =
      TokenBytes(tensor.heads, tensor.y_head_bytes, tensor.y_token_bytes, kMostBytes);
  const auto page = [&](int64_t i, int64_t byte) HWY_ATTR {
    const int64_t offset =
        tensor.y_offsets == nullptr ? i * tensor.y_token_bytes : tensor.y_offsets[i];
    return (reinterpret_cast<uintptr_t>(tensor.y) + static_cast<uintptr_t>(offset + byte)) /
           kPageBytes;
  };
  const uintptr_t first = page(t, 0), before = t > 0 ? page(t - 1, bytes - 1) : 0;
  for (uintptr_t p = page(t, bytes - 1); p >= first && p != before; --p) {
    __builtin_prefetch(reinterpret_cast<const void*>(p * kPageBytes), /*rw=*/0, /*locality=*/0);
  }
}

// Fetches the pages of the token after token t, for tensors whose x has no offsets. Without offsets
// in y, the last token's next one is another tile's, or nobody's, which does no harm.
HWY_NOINLINE void FetchNextPages(const RotaryArgs& args, const RotaryArgs::Tensor& tensor,
                                 int64_t t) {
  const bool has_next = tensor.y_offsets == nullptr || t + 1 < args.tokens;
  if (tensor.x_offsets == nullptr && has_next) FetchPages(tensor, t + 1);
}

// Calls rotate(x, y, heads, ahead, row) for every token that is written, with the first of the
// heads that share the tables of `row`: all of them, unless heads have their own frequencies or are
// outermost in a whole tensor. `ahead` is as in HeadRows. These are not in a struct: a copy of it
// would read larger parts than were just written, and so wait for all earlier writes, those of the
// token before too.
template <typename Rotate>
HWY_INLINE void ForEachRow(const RotaryArgs& args, const RotaryArgs::Tensor& tensor,
                           const Rotate& rotate) {
  const auto call = [&](int64_t t, int64_t h, int64_t heads) HWY_ATTR {
    const int64_t y_offset =
        tensor.y_offsets == nullptr ? t * tensor.y_token_bytes : tensor.y_offsets[t];
    if (y_offset < 0) return;
    const Token ahead = heads > 1 ? TokenAhead(args, tensor, t) : Token{nullptr, 0};
    const std::byte* x_ahead = nullptr;
    if (ahead.tensor != nullptr) {
      x_ahead = TokenOf(*ahead.tensor, ahead.index);
      if (args.stream) FetchPages(*ahead.tensor, ahead.index);
    } else if (args.stream && heads == tensor.heads) {
      FetchNextPages(args, tensor, t);
    }
    rotate(TokenOf(tensor, t) + h * tensor.x_head_bytes,
           tensor.y + y_offset + h * tensor.y_head_bytes, heads, x_ahead,
           args.frequency_heads == 1 ? t : t * args.frequency_heads + h);
  };
  // Pages keep the heads of a token near one another, so that tables are read once for all heads.
  if (tensor.x_offsets == nullptr && tensor.x_head_bytes > tensor.x_token_bytes) {
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
  const auto each = [&](const std::byte* x, std::byte* y, int64_t heads, const std::byte* /*ahead*/,
                        int64_t row) HWY_ATTR {
    for (int64_t h = 0; h < heads; ++h) {
      one(x + h * tensor.x_head_bytes, y + h * tensor.y_head_bytes, row);
    }
  };
  ForEachRow(args, tensor, each);
}

// Whether the tokens of a tile are as far from one another in the tensor as their tables are, and
// each one's heads share tables and rotate in one run of lanes, with nothing to copy beside them.
HWY_INLINE bool TokensAreOneRun(const RotaryArgs& args, const RotaryArgs::Tensor& tensor) {
  const bool regular = tensor.x_offsets == nullptr && tensor.y_offsets == nullptr &&
                       tensor.x_head_bytes <= tensor.x_token_bytes && args.frequency_heads == 1;
  const bool in_place = tensor.x == tensor.y && tensor.x_token_bytes == tensor.y_token_bytes &&
                        tensor.x_head_bytes == tensor.y_head_bytes;
  return regular && (in_place || 2 * args.pairs == args.head_dim) && !args.fetch &&
         args.pairing_in == args.pairing_out && args.pairing_in != Pairing::kBlockHalfSplit;
}

// Rotates all tokens of the tile and returns true, if they are one run and there is a loop for
// that.
template <typename E>
HWY_INLINE bool RotateRun(const RotaryArgs& args, const Scratch& scratch,
                          const RotaryArgs::Tensor& tensor) {
  if (!TokensAreOneRun(args, tensor)) return false;
  const int64_t begin = args.rotary_begin * static_cast<int64_t>(sizeof(typename E::T));
  const Trig32 trig = RowTrig32(scratch, 0);
  const HeadRows rows = {tensor.x + begin,
                         tensor.y + begin,
                         tensor.heads,
                         tensor.x_head_bytes,
                         tensor.y_head_bytes,
                         nullptr,
                         args.pages_in_turns,
                         args.tokens,
                         tensor.x_token_bytes,
                         tensor.y_token_bytes,
                         RowTrig32(scratch, 1).cos - trig.cos};
  return args.pairing_in == Pairing::kInterleaved
             ? RotateInterleavedTokens<E>(trig, args.pairs, rows)
             : RotateHalfSplitTokens<E>(trig, scratch.stride / 2, 0, args.pairs, rows);
}

// Not inlined, for the same reason as EmitBlock of encode.
template <typename E, bool kStream>
HWY_NOINLINE void RotateTensor(const RotaryArgs& args, const Scratch& scratch,
                               const RotaryArgs::Tensor& tensor) {
  if constexpr (!kStream) {
    if (RotateRun<E>(args, scratch, tensor)) return;
  }
  constexpr int64_t kBytes = sizeof(typename E::T);
  const int64_t begin = args.rotary_begin * kBytes;
  const int64_t end = begin + 2 * args.pairs * kBytes;
  const int64_t tail = args.head_dim * kBytes - end;
  const auto rotate = [&](const std::byte* x, std::byte* y, int64_t heads, const std::byte* ahead,
                          int64_t row) HWY_ATTR {
    const bool blocks =
        args.pairing_in == Pairing::kBlockHalfSplit && args.pairing_out == args.pairing_in;
    int64_t first = 0;
    for (size_t block = 0; first < args.pairs; ++block) {
      const int64_t pairs = blocks ? args.blocks[block] : args.pairs;
      const int64_t at = begin + 2 * first * kBytes;
      RotateHeads<E, kStream>(args, scratch, row, first, pairs,
                              {x + at, y + at, heads, tensor.x_head_bytes, tensor.y_head_bytes,
                               ahead == nullptr ? nullptr : ahead + at, args.pages_in_turns});
      first += pairs;
    }
    if (x == y || begin + tail == 0) return;
    for (; heads > 0; --heads, x += tensor.x_head_bytes, y += tensor.y_head_bytes) {
      if (begin > 0) std::memcpy(y, x, static_cast<size_t>(begin));
      if (tail > 0) std::memcpy(y + end, x + end, static_cast<size_t>(tail));
    }
  };
  ForEachRow(args, tensor, rotate);
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
