// SPDX-License-Identifier: Apache-2.0
// Decides how rows are computed and written. Compiled per target, like kernels/cpu/simd-inl.h;
// included by kernels/cpu/encode.cc.
#if defined(PHASOR_KERNELS_CPU_ENCODE_PLAN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PHASOR_KERNELS_CPU_ENCODE_PLAN_INL_H_
#undef PHASOR_KERNELS_CPU_ENCODE_PLAN_INL_H_
#else
#define PHASOR_KERNELS_CPU_ENCODE_PLAN_INL_H_
#endif

#include <algorithm>

#include "kernels/cpu/encode_block-inl.h"
#include "kernels/cpu/encode_lines-inl.h"
#include "kernels/cpu/memory-inl.h"
#include "kernels/ops/encode.h"

#if !PHASOR_SCALAR_TARGET

HWY_BEFORE_NAMESPACE();
namespace phasor::cpu {
namespace HWY_NAMESPACE {

// Whether f32 rows can be computed from the phases of the first row and a step.
HWY_INLINE bool CanStep(const EncodeArgs& args) {
  return std::none_of(
      args.layout->blocks.begin(), args.layout->blocks.end(),
      [&](const EncodeBlock& block) { return LayoutOf(args, block) == Layout::kAny; });
}

// The first column of a block, of the two that neighbour where they are interleaved.
HWY_INLINE int64_t FirstColumn(const EncodeBlock& block, Layout layout) {
  return layout == Layout::kInterleaved ? HWY_MIN(block.sin_begin, block.cos_begin)
                                        : block.sin_begin;
}

// Whether columns of f32 rows can be written past the caches. Each write must fill whole lines: a
// line that is written in two pieces, with other rows between them, takes two to seven times as
// long. Two vectors with sines and cosines side by side do, if they are not multiplied.
// CanEmitLines says what else can.
HWY_INLINE bool CanStreamColumns(const EncodeArgs& args, const RowLayout& layout) {
  constexpr auto kFloat = static_cast<int64_t>(sizeof(float));
  if (2 * static_cast<int64_t>(hn::Lanes(Df())) * kFloat < kLineBytes) return false;
  if (static_cast<float>(args.amplitude) != 1.0f) return false;
  const auto out = reinterpret_cast<intptr_t>(args.out);
  int64_t bits = args.out_row_bytes;
  for (const EncodeBlock& block : layout.blocks) {
    if (block.accumulate || LayoutOf(args, block) != Layout::kInterleaved) return false;
    bits |= out + FirstColumn(block, Layout::kInterleaved) * kFloat;
  }
  return bits % kLineBytes == 0;
}

// Whether rows of a constant step can be written by EmitLines: nothing is added or multiplied, and
// lines fill each block. With `stream`, lines also begin where those of the cache do. Where a
// vector is a line, EmitBlock is as fast for f32, except past the caches with sines and cosines
// apart.
HWY_INLINE bool CanEmitLines(const EncodeArgs& args, const RowLayout& layout, bool stream) {
  const int64_t element_bytes = SizeOf(args.dtype);
  const bool f32 = args.dtype == Dtype::kFloat32;
  if (args.add_to != nullptr || static_cast<float>(args.amplitude) != 1.0f) return false;
  if (args.out_row_bytes % element_bytes != 0) return false;
  const bool vectors_are_lines = f32 && hn::Lanes(Df()) * sizeof(float) >= kLineBytes;
  const auto out = reinterpret_cast<intptr_t>(args.out);
  int64_t bits = args.out_row_bytes;
  for (const EncodeBlock& block : layout.blocks) {
    const Layout of_block = LayoutOf(args, block);
    const bool interleaved = of_block == Layout::kInterleaved;
    if (block.accumulate || of_block == Layout::kAny) return false;
    if (vectors_are_lines && (interleaved || !stream)) return false;
    if (block.pairs % (LineUnits(element_bytes) * UnitPairs(interleaved)) != 0) return false;
    bits |= out + FirstColumn(block, of_block) * element_bytes;
    if (of_block == Layout::kApart) bits |= out + block.cos_begin * element_bytes;
  }
  return !stream || bits % kLineBytes == 0;
}

// Pairs [first, first + count) of a block.
HWY_INLINE EncodeBlock PartOf(EncodeBlock block, int64_t first, int64_t count) {
  block.first_pair += first;
  block.pairs = count;
  if (block.sin_begin >= 0) block.sin_begin += first * block.stride;
  if (block.cos_begin >= 0) block.cos_begin += first * block.stride;
  return block;
}

// The blocks of f32 rows, split where lines of the cache begin and end.
struct SplitLayout {
  RowLayout lines;
  RowLayout edges;  // the rest, at both ends of each block
};

// Splits the blocks of f32 rows that are whole lines apart, but begin within one, as those of
// NumPy's large arrays do. Returns false if a block cannot be split there, or if less than seven
// eighths of the pairs would be in lines.
HWY_NOINLINE bool SplitAtLines(const EncodeArgs& args, SplitLayout& split) {
  constexpr int64_t kFloats = kLineBytes / static_cast<int64_t>(sizeof(float));
  const auto out = reinterpret_cast<uintptr_t>(args.out);
  if (args.out_row_bytes % kLineBytes != 0) return false;
  if (static_cast<float>(args.amplitude) != 1.0f) return false;  // EmitEdges32 knows none
  split.lines.width = split.lines.content_end = args.layout->width;
  split.edges.width = args.layout->width;
  split.edges.content_begin = args.layout->content_begin;
  split.edges.content_end = args.layout->content_end;
  int64_t all = 0, in_lines = 0;
  for (const EncodeBlock& block : args.layout->blocks) {
    const Layout layout = LayoutOf(args, block);
    const bool interleaved = layout == Layout::kInterleaved;
    const auto column = static_cast<int64_t>(out / sizeof(float)) + FirstColumn(block, layout);
    const int64_t columns = (kFloats - column % kFloats) % kFloats;  // before the first line
    const int64_t first = interleaved ? columns / 2 : columns;
    if (block.accumulate || layout == Layout::kAny) return false;
    if (columns % 2 != 0 || first % 2 != 0) return false;
    const int64_t unit = LineUnits(sizeof(float)) * UnitPairs(interleaved);
    const int64_t count = HWY_MAX(block.pairs - first, 0) / unit * unit;
    all += block.pairs;
    in_lines += count;
    if (count == 0) {
      split.edges.blocks.push_back(block);
      continue;
    }
    split.lines.blocks.push_back(PartOf(block, first, count));
    const int64_t end = first + count;
    if (first > 0) split.edges.blocks.push_back(PartOf(block, 0, first));
    if (end < block.pairs) split.edges.blocks.push_back(PartOf(block, end, block.pairs - end));
  }
  return 8 * in_lines >= 7 * all;
}

// How the rows of a call are computed and written.
struct EncodePlan {
  bool constant_step;  // neighbouring rows differ by one step
  bool stepping;       // and are computed from the phases of a tile's first row alone
  bool direct;         // f32 rows are computed where they are written to
  bool lines;          // EmitLines writes `layout`
  bool stream;         // past the caches
  bool staged;         // rows are written to scratch, and copied past the caches from there
  const RowLayout* layout;
  const RowLayout* edges;  // nullptr, or what EmitEdges32 writes
};

// `split` must outlive the plan.
HWY_INLINE EncodePlan PlanOf(const EncodeArgs& args, bool constant_step, SplitLayout& split) {
  EncodePlan plan = {};
  plan.layout = args.layout;
  plan.constant_step = constant_step;
  plan.stepping = constant_step && args.dtype != Dtype::kFloat64 && CanStep(args);
  const auto begin_and_distance =
      reinterpret_cast<uintptr_t>(args.out) | static_cast<uintptr_t>(args.out_row_bytes);
  plan.direct = args.dtype == Dtype::kFloat32 && args.add_to == nullptr &&
                begin_and_distance % alignof(float) == 0;
  const auto try_past_caches = [&](const RowLayout& layout) HWY_ATTR {
    plan.lines = plan.stepping && CanEmitLines(args, layout, /*stream=*/true);
    plan.stream = plan.lines || (plan.direct && CanStreamColumns(args, layout));
    return plan.stream;
  };
  const bool past_caches = args.stream && args.add_to == nullptr && args.dtype != Dtype::kFloat64;
  if (past_caches && !try_past_caches(*args.layout)) {
    const bool splits = plan.direct && plan.stepping && SplitAtLines(args, split);
    if (splits && try_past_caches(split.lines)) {
      plan.layout = &split.lines;
      plan.edges = &split.edges;
    } else {
      plan.staged = true;
    }
  }
  if (!plan.stream) {
    plan.lines = plan.stepping && CanEmitLines(args, *args.layout, /*stream=*/false);
  }
  return plan;
}

// Rows for which one vector of pairs is computed before the next vector. More rows compute the
// phases of a first row less often, but fewer are written past the caches at up to 1.6 times the
// speed. 16-bit floats take too long to compute for that to matter.
HWY_INLINE int64_t TileOf(const EncodeArgs& args, const EncodePlan& plan) {
  if (!plan.stepping) return EncodeTile(*args.table);
  if (plan.staged || !(plan.lines || plan.direct)) return EncodeRowsAtOnce(*args.table);
  return args.stream && args.dtype == Dtype::kFloat32 ? 16 : 64;
}

}  // namespace HWY_NAMESPACE
}  // namespace phasor::cpu
HWY_AFTER_NAMESPACE();

#endif  // !PHASOR_SCALAR_TARGET
#endif  // include guard
