// SPDX-License-Identifier: Apache-2.0
// Encode for every SIMD target. Contract: kernels/ops/encode.h.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/cpu/kernels.h"
#include "kernels/reference/reference.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/encode.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// Must follow foreach_target.h, which includes this file once per target.
#include "kernels/cpu/elements-inl.h"
#include "kernels/cpu/encode_block-inl.h"
#include "kernels/cpu/encode_lines-inl.h"
#include "kernels/cpu/encode_plan-inl.h"
#include "kernels/cpu/memory-inl.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace phasor::cpu {
namespace HWY_NAMESPACE {

#if PHASOR_SCALAR_TARGET

void EncodeRows(const EncodeArgs& args) { reference::Encode(args); }

#else

// Fetches the pages of rows [first, first + count), which are written past the caches after others.
// Those after the last row of a call are another call's, or nobody's, which does no harm.
HWY_INLINE void FetchNextRows(const EncodeArgs& args, int64_t first, int64_t count) {
  if (args.out_row_bytes != args.layout->width * SizeOf(args.dtype)) return;
  FetchPagesIn(args.out + first * args.out_row_bytes, count * args.out_row_bytes);
}

// out = scale * add_to + row for rows [first, first + count), in the element type. `out` may be the
// memory of `rows`: each element is read before its place is written to.
template <typename E>
HWY_NOINLINE void FinishRows32(const EncodeArgs& args, int64_t first, int64_t count, Rows32 rows,
                               RowsOut to) {
  using T = typename E::T;
  const Df df;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(df));
  const auto scale = hn::Set(df, static_cast<float>(args.embedding_scale));
  for (int64_t t = 0; t < count; ++t) {
    const float* row = rows.first + t * rows.stride;
    auto* out = reinterpret_cast<T*>(to.first + t * to.row_bytes);
    const auto* add =
        args.add_to == nullptr
            ? nullptr
            : reinterpret_cast<const T*>(args.add_to + (first + t) * args.add_to_row_bytes);
    int64_t c = 0;
    if constexpr (sizeof(T) == 2) {
      for (; add == nullptr && c + 2 * lanes <= args.layout->width; c += 2 * lanes) {
        const auto two = E::Concat(hn::LoadU(df, row + c), hn::LoadU(df, row + c + lanes));
        hn::StoreU(two, Du16(), out + c);
      }
    }
    for (; c + lanes <= args.layout->width; c += lanes) {
      auto v = hn::LoadU(df, row + c);
      if (add != nullptr) v = hn::MulAdd(scale, E::Load(add + c), v);
      E::Store(v, out + c);
    }
    if (c == args.layout->width) continue;
    HWY_ALIGN T tail[hn::MaxLanes(Df())] = {};
    const size_t bytes = static_cast<size_t>(args.layout->width - c) * sizeof(T);
    auto v = hn::LoadU(df, row + c);
    if (add != nullptr) {
      std::memcpy(tail, add + c, bytes);
      v = hn::MulAdd(scale, E::Load(tail), v);
    }
    E::Store(v, tail);
    std::memcpy(out + c, tail, bytes);
  }
}

// Sines and cosines of every entry in f64, times the amplitude.
HWY_NOINLINE void Trig64(const EncodeArgs& args, const EncodeScratch& scratch,
                         const uint64_t* phases) {
  const Dd df;
  const Du64 du;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(df));
  const bool scaled = args.amplitude != 1.0 && args.xpos == nullptr;
  const auto amplitude = hn::Set(df, args.amplitude);
  for (int64_t i = 0; i < scratch.entries; i += lanes) {
    Vd s, c;
    SinCosVector(hn::LoadU(du, phases + i), s, c);
    if (scaled) {
      s = hn::Mul(amplitude, s);
      c = hn::Mul(amplitude, c);
    }
    hn::StoreU(s, df, scratch.sin + i);
    hn::StoreU(c, df, scratch.cos + i);
  }
}

HWY_INLINE void Put64(const EncodeBlock& block, int64_t begin, int64_t i, double value,
                      double* row) {
  if (begin < 0) return;
  double& column = row[begin + i * block.stride];
  column = block.accumulate ? column + value : value;
}

// Computes and finishes one f64 row. `phases` are those of the row.
HWY_NOINLINE void EncodeRow64(const EncodeArgs& args, const EncodeScratch& scratch,
                              const uint64_t* phases, int64_t t) {
  const RowLayout& layout = *args.layout;
  Trig64(args, scratch, phases);
  double* row = scratch.rows;
  std::fill(row, row + layout.content_begin, 0.0);
  std::fill(row + layout.content_end, row + layout.width, 0.0);
  for (const EncodeBlock& block : layout.blocks) {
    if (args.xpos != nullptr) {
      BlockAmplitudes(args, block, args.positions[t * args.axes], scratch);
    }
    for (int64_t i = 0; i < block.pairs; ++i) {
      const int64_t pair = block.first_pair + i;
      const int64_t e = args.table->Entry(pair);
      const double a = args.xpos != nullptr ? scratch.amplitudes[pair] : 1.0;
      const double sin = a * scratch.sin[e];
      double cos = a * scratch.cos[e];
      if (layout.cos_bias != 0) cos += layout.cos_bias;
      Put64(block, block.sin_begin, i, block.negate_sin ? -sin : sin, row);
      Put64(block, block.cos_begin, i, cos, row);
    }
  }
  std::byte* out = args.out + t * args.out_row_bytes;
  if (args.add_to == nullptr) {
    std::memcpy(out, row, static_cast<size_t>(layout.width) * sizeof(double));
    return;
  }
  const std::byte* add = args.add_to + t * args.add_to_row_bytes;
  for (int64_t c = 0; c < layout.width; ++c) {
    double v;
    std::memcpy(&v, add + 8 * c, sizeof v);
    v = std::fma(args.embedding_scale, v, row[c]);
    std::memcpy(out + 8 * c, &v, sizeof v);
  }
}

// Finds the whole-number step between neighbouring rows, if it is constant on every axis. Then
// phases advance by addition, which gives the same number as the direct formula.
HWY_INLINE bool ConstantStep(const EncodeArgs& args, Position* step) {
  if (args.rows < 3) return false;
  uint64_t differences = 0;
  for (int a = 0; a < args.axes; ++a) {
    const Position* p = args.positions + a;
    const auto whole = [&](int64_t t) { return static_cast<uint64_t>(p[t * args.axes].whole); };
    const uint64_t first = whole(1) - whole(0);
    differences |= p[0].fraction;
    for (int64_t t = 1; t < args.rows; ++t) {
      differences |= ((whole(t) - whole(t - 1)) ^ first) | p[t * args.axes].fraction;
    }
    step[a] = {static_cast<int64_t>(first), 0};
  }
  return differences == 0;
}

// Writes the phases of rows [first, first + count) to scratch. With `constant_step`, rows after the
// call's first one advance from the row before.
HWY_NOINLINE void TilePhases(const EncodeArgs& args, const EncodeScratch& scratch,
                             bool constant_step, int64_t first, int64_t count,
                             const uint64_t* previous) {
  for (int64_t t = 0; t < count; ++t) {
    uint64_t* row = scratch.phases + t * scratch.entries;
    if (previous == nullptr || !constant_step) {
      RowPhases(*args.table, args.positions + (first + t) * args.axes, kSinCosOffset, row);
    } else {
      AddPhases(previous, scratch.steps, scratch.entries, row);
    }
    previous = row;
  }
}

// The phases of a constant step, without offsets.
void StepPhases(const EncodeArgs& args, const Position* step, uint64_t* steps) {
  for (const AxisRun& run : args.table->runs) {
    if (run.layer == 0) {
      RunPhases<false>(*args.table, run, step[run.axis], 0, steps + run.begin);
    } else {
      RunPhases<true>(*args.table, run, step[run.axis], 0, steps + run.begin);
    }
  }
}

void FinishTile(const EncodeArgs& args, int64_t first, int64_t count, Rows32 rows, RowsOut to) {
  switch (args.dtype) {
    case Dtype::kFloat32:
      return FinishRows32<F32>(args, first, count, rows, to);
    case Dtype::kFloat16:
      return FinishRows32<F16>(args, first, count, rows, to);
    default:
      return FinishRows32<BF16>(args, first, count, rows, to);
  }
}

// Copies rows past the caches.
void StreamRows(const std::byte* rows, int64_t count, int64_t row_bytes, RowsOut to) {
  if (to.row_bytes == row_bytes) return StreamCopy(rows, count * row_bytes, to.first);
  for (int64_t t = 0; t < count; ++t) {
    StreamCopy(rows + t * row_bytes, row_bytes, to.first + t * to.row_bytes);
  }
}

void EncodeRows(const EncodeArgs& args) {
  const EncodeScratch scratch = CarveEncode(args);
  Position step[kMaxAxes];
  SplitLayout split;
  const EncodePlan plan = PlanOf(args, ConstantStep(args, step), split);
  if (plan.constant_step) StepPhases(args, step, scratch.steps);
  const int64_t tile = TileOf(args, plan);
  const int64_t row_bytes = args.layout->width * SizeOf(args.dtype);
  const Rows32 rows{reinterpret_cast<float*>(scratch.rows), args.layout->width};
  const RowsOut staged{reinterpret_cast<std::byte*>(scratch.rows), row_bytes};
  for (int64_t first = 0, count; first < args.rows; first += count) {
    count = HWY_MIN(tile, args.rows - first);
    if (args.stream) FetchNextRows(args, first + count, count);
    if (plan.stepping) {
      RowPhases(*args.table, args.positions + first * args.axes, kSinCosOffset, scratch.phases);
    } else {
      const uint64_t* previous =
          first == 0 ? nullptr : scratch.phases + (tile - 1) * scratch.entries;
      TilePhases(args, scratch, plan.constant_step, first, count, previous);
    }
    const RowsOut out{args.out + first * args.out_row_bytes, args.out_row_bytes};
    const RowsOut to = plan.staged ? staged : out;
    if (args.dtype == Dtype::kFloat64) {
      for (int64_t t = 0; t < count; ++t) {
        EncodeRow64(args, scratch, scratch.phases + t * scratch.entries, first + t);
      }
    } else if (plan.lines) {
      EmitLines(args, *plan.layout, scratch, plan.stream, count, to);
    } else if (plan.direct) {
      EmitRows32(args, *plan.layout, scratch, plan.stepping, first, count, plan.stream,
                 Rows32Of(to));
    } else {
      EmitRows32(args, *plan.layout, scratch, plan.stepping, first, count, false, rows);
      FinishTile(args, first, count, rows, to);
    }
    if (plan.edges != nullptr) EmitEdges32(args, *plan.edges, scratch, count, Rows32Of(to));
    if (plan.staged) StreamRows(staged.first, count, row_bytes, out);
  }
}

#endif  // PHASOR_SCALAR_TARGET

}  // namespace HWY_NAMESPACE
}  // namespace phasor::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace phasor::cpu {

EncodeKernel GetEncode(Target target) {
#if HWY_ARCH_X86
  if (target == Target::kAvx3) return HWY_CHOOSE_AVX3(EncodeRows);
  if (target == Target::kAvx2) return HWY_CHOOSE_AVX2(EncodeRows);
#else
  if (target == Target::kArm) return HWY_STATIC_DISPATCH(EncodeRows);
#endif
  return &reference::Encode;
}

}  // namespace phasor::cpu
#endif  // HWY_ONCE
