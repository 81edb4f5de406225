// SPDX-License-Identifier: Apache-2.0
// Moves stored keys with scales through registers: Q8_0, and INT8 and FLOAT8 with a scale for each
// row. As in rotate_keys.h, but no thread can encode before all threads that share a scale with it
// have rotated. So phases follow Load, with a barrier before each:
//
//   Turn       every thread decodes and rotates its unit, and notes the largest magnitudes
//   Finish     every thread finds the new scales and encodes; rows with one scale are written
//   WriteRows  of Q8_0, whose units are not aligned: Finish puts them into memory that the block
//              shares
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

// The most units of a block, and bytes of its rows of Q8_0, with gaps between heads.
inline constexpr int kScaledUnits = kThreads;
inline constexpr int kScaledBytes = 10240;

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
    alignas(16) std::byte bytes[kScaledBytes];
    std::byte* out[kScaledUnits];  // of each head, where its rotating lanes go
  };
  struct NoRows {};
  struct Shared : ScaledKeysBase::Shared, std::conditional_t<kQ8, Rows, NoRows> {
    float largest[2][kScaledUnits];  // of both runs of each unit of the block
  };

  // A run as it is stored. Codes of Q8_0 are aligned to 2 bytes.
  struct Run {
    std::conditional_t<kQ8, Words<2>, Words<kRunLanes>> codes[kQ8 ? kRunLanes / 2 : 1];
    Words<kQ8 ? 2 : 4> scale;
  };
  // What a thread keeps: its unit.
  struct State {
    Run first, second;
    float y[2][kRunLanes];           // both runs after Turn
    std::byte* row = nullptr;        // where the head goes; nullptr: there is no unit
    std::byte* row_scale = nullptr;  // not of Q8_0
    int32_t index = 0;               // in the block
    int32_t part = 0;                // in the head
    int32_t angles = 0;
  };

  static PHASOR_HD void Load(const Item& item, const std::byte* arena, int64_t block, int thread,
                             State& state) {
    const BlockUnits units = UnitsOf(item.grid, block);
    state.row = nullptr;
    if (thread >= units.count) return;
    const UnitAt at = UnitOf(item.grid, units, thread);
    const int32_t plane_head = Quotient(at.unit, item.head_units);
    state.index = thread;
    state.part = at.unit - plane_head * item.head_units.value;
    state.angles = AnglesOf(item, units, thread, at.row, state.part);
    const KeyUnit key = KeyUnitOf(item, arena, at.row, plane_head);
    const Places from = PlacesOf(item.x_lanes, item.split_in, state.part);
    const std::byte* const x = key.plane.x + key.x;
    LoadCodes(x + from.first, state.first);
    LoadCodes(x + from.second, state.second);
    state.row = key.plane.y + key.y;
    if constexpr (kQ8) {
      state.first.scale = LoadWords<2>(x + from.first_block);
      state.second.scale = LoadWords<2>(x + from.second_block);
    } else {
      const Words<4> scale = LoadWords<4>(key.plane.x + ScaleOf(item.from, arena, key));
      state.first.scale = state.second.scale = scale;
      state.row_scale = key.plane.y + ScaleOf(item.to, arena, key);
    }
  }

  static PHASOR_HD void Turn(const Item& item, Shared& shared, State& state) {
    if (state.row == nullptr) return;
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
    if (state.row == nullptr) return;
    if constexpr (kQ8) {
      FinishBlocks(item, shared, state);
    } else {
      FinishRow(item, shared, state);
    }
  }

  static PHASOR_HD void WriteRows(const Item& item, int64_t block, int thread,
                                  const Shared& shared) {
    const int32_t heads = Quotient(UnitsOf(item.grid, block).count, item.head_units);
    const int32_t count = heads * item.head_words.value;
    VisitWidth(item.width, [&](auto word) {
      PHASOR_ROLLED
      for (int32_t i = thread; i < count; i += kThreads) {
        const int32_t head = Quotient(i, item.head_words);
        const int32_t at = (i - head * item.head_words.value) * static_cast<int32_t>(sizeof word);
        word = LoadAligned<decltype(word)>(shared.bytes + head * item.head_stride + at);
        StoreWords(word, shared.out[head] + at);
      }
    });
  }

 private:
  static PHASOR_HD void LoadCodes(const std::byte* p, Run& run) {
    constexpr int kBytes = sizeof run.codes[0];
    PHASOR_UNROLL
    for (int i = 0; i < kRunLanes / kBytes; ++i) run.codes[i] = LoadWords<kBytes>(p + i * kBytes);
  }

  static PHASOR_HD int64_t ScaleOf(const KeySide& side, const std::byte* arena,
                                   const KeyUnit& key) {
    return side.scales.In(arena)[key.row] + key.head * side.scale_head_bytes;
  }

  // Bytes from the begin of a head to the runs of a unit, and of Q8_0 to their blocks.
  struct Places {
    int32_t first, second;
    int32_t first_block, second_block;
  };
  static PHASOR_HD Places PlacesOf(const UnitLanes& lanes, bool split, int32_t part) {
    if constexpr (!kQ8) {
      const int32_t first = lanes.begin + part * lanes.step;
      return {first, first + lanes.second, 0, 0};
    }
    // Half split, a block has the first or the second runs of two units, else both of one.
    const int32_t block = lanes.begin + (split ? part >> 1 : part) * lanes.step;
    const int32_t first = block + 2 + (split ? (part & 1) * kRunLanes : 0);
    return {first, first + lanes.second, block, split ? block + lanes.second : block};
  }

  static PHASOR_HD float Lane(const Run& run, int i) {
    if constexpr (kQ8) {
      return WidenInt8(run.codes[i / 2].word[0], i % 2) * WidenFloat16(run.scale.word[0]);
    } else if constexpr (std::is_void_v<Element>) {
      return WidenInt8(run.codes[0].word[i / 4], i % 4) * FloatFromBits(run.scale.word[0]);
    } else {
      return LaneOf<Element>(run.codes[0], i) * FloatFromBits(run.scale.word[0]);
    }
  }
  static PHASOR_HD float Lane(const State& state, int i) {
    return i < kRunLanes ? Lane(state.first, i) : Lane(state.second, i - kRunLanes);
  }

  // kSplit: half split before and after; else the item says.
  template <bool kSplit>
  static PHASOR_HD void Rotate(const Item& item, const Shared& shared, State& state) {
    const bool split_in = kSplit || item.split_in, split_out = kSplit || item.split_out;
    float y1[kRunLanes], y2[kRunLanes];
    PHASOR_UNROLL
    for (int i = 0; i < kRunLanes; ++i) {
      const int place = PlaceOf(state.angles, i);
      const float sin = shared.sin[place], cos = shared.cos[place];
      const float x1 = split_in ? Lane(state, i) : Lane(state, 2 * i);
      const float x2 = split_in ? Lane(state, kRunLanes + i) : Lane(state, 2 * i + 1);
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
    const Places to = PlacesOf(item.y_lanes, item.split_out, state.part);
    const int32_t head = Quotient(state.index, item.head_units);
    std::byte* const row = shared.bytes + head * item.head_stride - item.y_lanes.begin;
    if (state.part == 0) shared.out[head] = state.row + item.y_lanes.begin;
    const float(&largest)[2][kScaledUnits] = shared.largest;
    float first = largest[0][state.index], second = largest[1][state.index];
    if (item.split_out) {
      first = std::fmax(first, largest[0][state.index ^ 1]);
      second = std::fmax(second, largest[1][state.index ^ 1]);
    } else {
      first = second = std::fmax(first, second);
    }
    EncodeRun(state.y[0], first, row + to.first, row + to.first_block);
    EncodeRun(state.y[1], second, row + to.second, row + to.second_block);
  }

  // Encodes a run of a block of Q8_0. All threads of a block find the same d.
  static PHASOR_HD void EncodeRun(const float (&y)[kRunLanes], float largest, std::byte* codes,
                                  std::byte* block) {
    const float d = QuotientOf(largest, kLimit), inverse = key_blocks::InverseOf(d);
    float scaled[kRunLanes];
    PHASOR_UNROLL
    for (int i = 0; i < kRunLanes; ++i) scaled[i] = y[i] * inverse;
    StoreInt8Pairs(PackInt8Lanes(scaled), codes);
    if (codes == block + 2) StoreAligned(static_cast<uint16_t>(PackFloat16(d, 0)), block);
  }

  static PHASOR_HD void FinishRow(const Item& item, const Shared& shared, const State& state) {
    float largest = 0;
    const int32_t begin = state.index - state.part;
    PHASOR_ROLLED
    for (int32_t i = begin; i < begin + item.head_units.value; ++i) {
      largest = std::fmax(largest, std::fmax(shared.largest[0][i], shared.largest[1][i]));
    }
    const float scale = RowScaleOf(largest, kLimit);
    const Places to = PlacesOf(item.y_lanes, item.split_out, state.part);
    StoreWords(Scaled(state.y[0], scale), state.row + to.first);
    StoreWords(Scaled(state.y[1], scale), state.row + to.second);
    if (state.part == 0) StoreWords(Words<4>{{BitsFromFloat(scale)}}, state.row_scale);
  }

  static PHASOR_HD Words<kRunLanes> Scaled(const float (&y)[kRunLanes], float scale) {
    float scaled[kRunLanes];
    PHASOR_UNROLL
    for (int i = 0; i < kRunLanes; ++i) scaled[i] = QuotientOf(y[i], scale);
    if constexpr (std::is_void_v<Element>) {
      return PackInt8Lanes(scaled);
    } else if constexpr (!kQ8) {
      return PackLanes<Element>(scaled);
    }
  }
};

}  // namespace phasor::cuda

#endif  // PHASOR_KERNELS_CUDA_ROTATE_SCALED_KEYS_H_
