// SPDX-License-Identifier: Apache-2.0
// Moves stored keys with scales through registers: Q8_0, and INT8 and FLOAT8 with a scale for each
// row. As in rotate_keys.h, but no thread can encode before all threads that share a scale with it
// have rotated. So phases follow Load, with a barrier before each:
//
//   Turn    every thread decodes and rotates its unit, and notes the largest magnitudes
//   Finish  every thread finds the new scales and encodes
//
// Units of Q8_0 are not aligned. So its rows pass through memory that the block shares. FindRows
// and ReadRows come before Angles, so that rows are on their way while angles are computed, and
// WriteRows comes after Finish.
//
// For dense rows without a Hadamard transform in which all lanes that share a scale rotate.
// Contract: kernels/ops/key_rows.h and kernels/ops/rotary.h. Threads: blocks of one launch write
// different bytes.
#ifndef PHASOR_KERNELS_CUDA_ROTATE_SCALED_KEYS_H_
#define PHASOR_KERNELS_CUDA_ROTATE_SCALED_KEYS_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/base/host_device.h"
#include "kernels/cuda/aligned.h"
#include "kernels/cuda/keys.h"
#include "kernels/cuda/rotate_keys.h"
#include "kernels/math/key_blocks.h"
#include "kernels/math/quotient.h"
#include "kernels/ops/key_codes.h"

namespace phasor::cuda {

// Units of 16 pairs, with their angles. A unit has two runs of 16 lanes.
using ScaledKeysBase = RotaryBody<Float8Element<Float8::kE4M3>, true, false, false>;
inline constexpr int kRunLanes = ScaledKeysBase::kPairs;

// The most units of a block, and the most bytes and heads of its rows of Q8_0, with gaps between. A
// head has at least one block of 34 bytes, and gaps make them 56.
inline constexpr int kScaledUnits = kThreads;
inline constexpr int kRowBytes = 10240;
inline constexpr int kRowHeads = kRowBytes / 56;

// Of Q8_0, `step` of lanes is from one block to the next.
struct RotateScaledKeysItem : RotateKeysItem {
  SmallDivisor head_words;  // of Q8_0, words of the rotating lanes of a head
  int32_t head_stride = 0;  // bytes from one head to the next in shared memory
};

template <KeyCode kCode>
struct RotateScaledKeysBody : ScaledKeysBase {
  using Item = RotateScaledKeysItem;
  using Element = KeyElement<kCode>;
  static constexpr bool kOften = true;  // see launch.cu
  static constexpr bool kQ8 = kCode == KeyCode::kQ8_0;
  static constexpr float kLimit = LargestCode(kCode);

  struct Rows {
    alignas(kVectorBytes) std::byte bytes[kRowBytes];
    const std::byte* in[kRowHeads];  // the rotating lanes of each head
    std::byte* out[kRowHeads];       // where they go
    int32_t heads;
  };
  struct NoRows {};
  struct Shared : ScaledKeysBase::Shared, std::conditional_t<kQ8, Rows, NoRows> {
    float largest[2][kScaledUnits];  // of both runs of each unit of the block
  };

  // What a thread keeps: its unit.
  struct State {
    float y[2][kRunLanes];  // both runs after Turn
    int32_t index = -1;     // in the block; -1: there is no unit
    int32_t head = 0;       // in the block
    int32_t part = 0;       // in the head
    int32_t angles = 0;
    // Of rows with one scale.
    bool halves = false;              // runs are aligned to half of their bytes
    const std::byte* from = nullptr;  // the first run
    const std::byte* from_scale = nullptr;
    int32_t second = 0;  // bytes to the second
    Words<kRunLanes> x[2];
    Words<4> scale;
    std::byte* row = nullptr;
    std::byte* row_scale = nullptr;
  };

  // Finds where the head is read and written that has the number of the thread in the block.
  static PHASOR_HD void FindRows(const Item& item, const std::byte* arena, int64_t block,
                                 int thread, Shared& shared) {
    const BlockUnits units = UnitsOf(item.grid, block);
    if (thread == 0) shared.heads = Quotient(units.count, item.head_units);
    const int32_t unit = thread * item.head_units.value;
    if (unit >= units.count) return;
    const UnitAt at = UnitOf(item.grid, units, unit);
    const KeyUnit key = KeyUnitOf(item, arena, at.row, Quotient(at.unit, item.head_units));
    shared.in[thread] = key.plane.x + key.x + item.x_lanes.begin;
    shared.out[thread] = key.plane.y + key.y + item.y_lanes.begin;
  }

  static PHASOR_HD void ReadRows(const Item& item, int thread, Shared& shared) {
    ForWords(item, thread, shared.heads, [&](auto word, int32_t head, int32_t at) {
      BeginCopy<sizeof word>(shared.in[head] + at, shared.bytes + head * item.head_stride + at);
    });
  }

  static PHASOR_HD void WriteRows(const Item& item, int thread, const Shared& shared) {
    ForWords(item, thread, shared.heads, [&](auto word, int32_t head, int32_t at) {
      word = LoadAligned<decltype(word)>(shared.bytes + head * item.head_stride + at);
      StoreWords(word, shared.out[head] + at);
    });
  }

  static PHASOR_HD void Find(const Item& item, const std::byte* arena, int64_t block, int thread,
                             State& state) {
    const BlockUnits units = UnitsOf(item.grid, block);
    state.index = -1;
    if (thread >= units.count) return;
    const UnitAt at = UnitOf(item.grid, units, thread);
    state.index = thread;
    state.head = Quotient(thread, item.head_units);
    state.part = thread - state.head * item.head_units.value;
    state.angles = AnglesOf(item, units, thread, at.row, state.part);
    if constexpr (!kQ8) {
      const KeyUnit key = KeyUnitOf(item, arena, at.row, Quotient(at.unit, item.head_units));
      state.halves = item.width < kRunLanes;
      state.from = key.plane.x + key.x + FirstOf(item.x_lanes, state.part);
      state.second = item.x_lanes.second;
      state.from_scale = key.plane.x + ScaleOf(item.from, arena, key);
      state.row = key.plane.y + key.y;
      state.row_scale = key.plane.y + ScaleOf(item.to, arena, key);
    }
  }

  static PHASOR_HD void Load(State& state) {
    if constexpr (kQ8) {
      FinishCopies();  // also of a thread without a unit: it may have begun some
    } else if (state.index >= 0) {
      state.x[0] = LoadRun(state.halves, state.from);
      state.x[1] = LoadRun(state.halves, state.from + state.second);
      state.scale = LoadWords<4>(state.from_scale);
    }
  }

  static PHASOR_HD void Turn(const Item& item, Shared& shared, State& state) {
    if (state.index < 0) return;
    if (item.split_in && item.split_out) {
      Rotate<true>(item, shared, state);
    } else {
      Rotate<false>(item, shared, state);
    }
    PHASOR_UNROLL
    for (int run = 0; run < 2; ++run) {
      float largest = 0;  // no NaN is larger
      PHASOR_UNROLL
      for (int i = 0; i < kRunLanes; ++i) {
        largest = std::fmax(largest, std::fabs(state.y[run][i]));
      }
      shared.largest[run][state.index] = largest;
    }
  }

  static PHASOR_HD void Finish(const Item& item, Shared& shared, const State& state) {
    if (state.index < 0) return;
    if constexpr (kQ8) {
      FinishBlocks(item, shared, state);
    } else {
      FinishRow(item, shared, state);
    }
  }

 private:
  static PHASOR_HD Words<kRunLanes> LoadRun(bool halves, const std::byte* p) {
    if (!halves) return LoadWords<kRunLanes>(p);
    const auto low = LoadWords<8>(p), high = LoadWords<8>(p + 8);
    return {{low.word[0], low.word[1], high.word[0], high.word[1]}};
  }

  static PHASOR_HD void StoreRun(bool halves, const Words<kRunLanes>& run, std::byte* p) {
    if (!halves) return StoreWords(run, p);
    StoreWords(Words<8>{{run.word[0], run.word[1]}}, p);
    StoreWords(Words<8>{{run.word[2], run.word[3]}}, p + 8);
  }

  // Calls work(Words{}, head of the block, byte) for every word of the rotating lanes of heads.
  template <typename Work>
  static PHASOR_HD void ForWords(const Item& item, int thread, int32_t heads, const Work& work) {
    const int32_t count = heads * item.head_words.value;
    VisitWidth(item.width, [&](auto word) {
      PHASOR_ROLLED
      for (int32_t i = thread; i < count; i += kThreads) {
        const int32_t head = Quotient(i, item.head_words);
        const int32_t in_head = i - head * item.head_words.value;
        work(word, head, in_head * static_cast<int32_t>(sizeof word));
      }
    });
  }

  static PHASOR_HD int64_t ScaleOf(const KeySide& side, const std::byte* arena,
                                   const KeyUnit& key) {
    return side.scales.In(arena)[key.row] + key.head * side.scale_head_bytes;
  }

  // Bytes from the begin of a row with one scale to the first run of a unit.
  static PHASOR_HD int32_t FirstOf(const UnitLanes& lanes, int32_t part) {
    return lanes.begin + part * lanes.step;
  }

  // Bytes from the first rotating block of Q8_0 to those that have the runs of a unit, and from a
  // block to its run. Half split, a block has the first or the second runs of two units, else both
  // of one.
  struct Blocks {
    int32_t first, second;
    int32_t first_run, second_run;
  };
  static PHASOR_HD Blocks BlocksOf(const UnitLanes& lanes, bool split, int32_t part) {
    if (!split) return {part * lanes.step, part * lanes.step, 2, 2 + kRunLanes};
    const int32_t block = (part >> 1) * lanes.step, run = 2 + (part & 1) * kRunLanes;
    return {block, block + lanes.second, run, run};
  }

  // The lanes of both runs of a unit.
  static PHASOR_HD void Decode(const Item& item, const Shared& shared, const State& state,
                               float (&x)[2][kRunLanes]) {
    if constexpr (kQ8) {
      const std::byte* const row = shared.bytes + state.head * item.head_stride;
      const Blocks from = BlocksOf(item.x_lanes, item.split_in, state.part);
      DecodeRun(row + from.first, from.first_run, x[0]);
      DecodeRun(row + from.second, from.second_run, x[1]);
    } else {
      PHASOR_UNROLL
      for (int i = 0; i < 2 * kRunLanes; ++i) {
        const Words<kRunLanes>& run = state.x[i / kRunLanes];
        float lane;
        if constexpr (std::is_void_v<Element>) {
          lane = WidenInt8(run.word[i % kRunLanes / 4], i % 4);
        } else {
          lane = LaneOf<Element>(run, i % kRunLanes);
        }
        x[i / kRunLanes][i % kRunLanes] = lane * FloatFromBits(state.scale.word[0]);
      }
    }
  }

  // The lanes of a run of a block of Q8_0.
  static PHASOR_HD void DecodeRun(const std::byte* block, int32_t run, float (&x)[kRunLanes]) {
    const float d = WidenFloat16(LoadAligned<uint16_t>(block));
    PHASOR_UNROLL
    for (int i = 0; i < kRunLanes; ++i) {
      x[i] = WidenInt8(LoadAligned<uint16_t>(block + run + i / 2 * 2), i % 2) * d;
    }
  }

  // kSplit: half split before and after; else the item says.
  template <bool kSplit>
  static PHASOR_HD void Rotate(const Item& item, const Shared& shared, State& state) {
    const bool split_in = kSplit || item.split_in, split_out = kSplit || item.split_out;
    float x[2][kRunLanes], y1[kRunLanes], y2[kRunLanes];
    Decode(item, shared, state, x);
    PHASOR_UNROLL
    for (int i = 0; i < kRunLanes; ++i) {
      const int place = PlaceOf(state.angles, i);
      const float sin = shared.sin[place], cos = shared.cos[place];
      const int even = 2 * i % kRunLanes, run = 2 * i / kRunLanes;
      const float x1 = split_in ? x[0][i] : x[run][even];
      const float x2 = split_in ? x[1][i] : x[run][even + 1];
      y1[i] = std::fma(-x2, sin, x1 * cos);
      y2[i] = std::fma(x2, cos, x1 * sin);
    }
    PHASOR_UNROLL
    for (int i = 0; i < kRunLanes; ++i) {
      const int low = i / 2, high = kRunLanes / 2 + i / 2;
      state.y[0][i] = split_out ? y1[i] : i % 2 == 0 ? y1[low] : y2[low];
      state.y[1][i] = split_out ? y2[i] : i % 2 == 0 ? y1[high] : y2[high];
    }
  }

  static PHASOR_HD void FinishBlocks(const Item& item, Shared& shared, const State& state) {
    const Blocks to = BlocksOf(item.y_lanes, item.split_out, state.part);
    std::byte* const row = shared.bytes + state.head * item.head_stride;
    float first = shared.largest[0][state.index], second = shared.largest[1][state.index];
    if (item.split_out) {
      first = std::fmax(first, shared.largest[0][state.index ^ 1]);
      second = std::fmax(second, shared.largest[1][state.index ^ 1]);
    } else {
      first = second = std::fmax(first, second);
    }
    EncodeRun(state.y[0], first, row + to.first, to.first_run);
    EncodeRun(state.y[1], second, row + to.second, to.second_run);
  }

  // Encodes a run of a block of Q8_0. All threads of a block find the same d.
  static PHASOR_HD void EncodeRun(const float (&y)[kRunLanes], float largest, std::byte* block,
                                  int32_t run) {
    const float d = QuotientOf(largest, kLimit), inverse = key_blocks::InverseOf(d);
    float scaled[kRunLanes];
    PHASOR_UNROLL
    for (int i = 0; i < kRunLanes; ++i) scaled[i] = y[i] * inverse;
    StoreInt8Pairs(PackInt8Lanes(scaled), block + run);
    if (run == 2) StoreAligned(static_cast<uint16_t>(PackFloat16(d, 0)), block);
  }

  static PHASOR_HD void FinishRow(const Item& item, const Shared& shared, const State& state) {
    float largest = 0;
    const int32_t begin = state.index - state.part;
    PHASOR_ROLLED
    for (int32_t i = begin; i < begin + item.head_units.value; ++i) {
      largest = std::fmax(largest, std::fmax(shared.largest[0][i], shared.largest[1][i]));
    }
    const float scale = RowScaleOf(largest, kLimit);
    std::byte* const out = state.row + FirstOf(item.y_lanes, state.part);
    StoreRun(state.halves, Scaled(state.y[0], scale), out);
    StoreRun(state.halves, Scaled(state.y[1], scale), out + item.y_lanes.second);
    if (state.part == 0) StoreWords(Words<4>{{BitsFromFloat(scale)}}, state.row_scale);
  }

  static PHASOR_HD Words<kRunLanes> Scaled(const float (&y)[kRunLanes], float scale) {
    float scaled[kRunLanes];
    PHASOR_UNROLL
    for (int i = 0; i < kRunLanes; ++i) scaled[i] = QuotientOf(y[i], scale);
    if constexpr (std::is_void_v<Element>) {
      return PackInt8Lanes(scaled);
    } else {
      return PackLanes<Element>(scaled);
    }
  }
};

}  // namespace phasor::cuda

#endif  // PHASOR_KERNELS_CUDA_ROTATE_SCALED_KEYS_H_
