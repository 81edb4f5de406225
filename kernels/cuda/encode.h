// SPDX-License-Identifier: Apache-2.0
// Encode on a GPU. Contract: kernels/ops/encode.h, but pointers and strides must be multiples of
// the element's size. A layout is compiled into steps (kernels/cuda/row_program.h), so that a
// thread computes a pair once for all its columns, whatever the layout. Most rows are just one sine
// and one cosine of every pair; these are written kVectorBytes at a time instead.
// Threads: bodies of one launch write different columns.
#ifndef PHASOR_KERNELS_CUDA_ENCODE_H_
#define PHASOR_KERNELS_CUDA_ENCODE_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/base/host_device.h"
#include "kernels/cuda/aligned.h"
#include "kernels/cuda/grid.h"
#include "kernels/cuda/positions.h"
#include "kernels/cuda/row_program.h"
#include "kernels/cuda/turns.h"
#include "kernels/math/element.h"

namespace phasor::cuda {

// Rows of sines and cosines only, side by side or in two runs.
struct WideRows {
  bool used = false;
  bool side_by_side = false;  // sine and cosine of a pair are neighbours
  bool sin_first = true;
  int64_t pairs = 0;  // a multiple of the elements in kVectorBytes
};

// What a kernel computes for one job's slice. Pointers are addresses on the device.
struct EncodeItem {
  ItemGrid grid;
  ItemPositions positions;
  ItemTurns turns;
  double amplitude = 1;
  double cos_bias = 0;
  double embedding_scale = 1;
  WideRows wide;
  const int64_t* unit_begin = nullptr;  // [units + 1]: first step of each unit
  const RowStep* steps = nullptr;
  std::byte* out = nullptr;
  int64_t out_row_bytes = 0;
  const std::byte* add_to = nullptr;  // nullptr: nothing to add
  int64_t add_to_row_bytes = 0;
};

// kPlain: one axis and layer, no xPos.
template <typename Element, bool kPlain>
struct EncodeBody {
  using Item = EncodeItem;
  using T = typename Element::Math;
  static constexpr int kBytes = static_cast<int>(Element::kBytes);
  static constexpr int kPairs = kVectorBytes / kBytes;

  static PHASOR_HD void Run(const EncodeItem& item, int64_t block, int thread) {
    if (item.wide.used) {
      ForEachUnit(item.grid, block, thread,
                  [&](int64_t row, int32_t unit) { RunWide(item, row, unit * int64_t{kPairs}); });
    } else {
      ForEachUnit(item.grid, block, thread,
                  [&](int64_t row, int32_t unit) { RunUnit(item, row, unit); });
    }
  }

 private:
  // Computes pairs [j, j + kPairs).
  static PHASOR_HD void RunWide(const EncodeItem& item, int64_t row, int64_t j) {
    const WideRows wide = item.wide;
    const Position position = OnOneAxis(item, row);
    T first[kPairs], second[kPairs];  // of each pair, in the order of the row
    PHASOR_UNROLL
    for (int i = 0; i < kPairs; ++i) {
      const SinCos<T> v = Components(item, row, position, j + i);
      first[i] = wide.sin_first ? v.sin : v.cos;
      second[i] = wide.sin_first ? v.cos : v.sin;
    }
    alignas(kVectorBytes) std::byte low[kVectorBytes], high[kVectorBytes];
    PHASOR_UNROLL
    for (int i = 0; i < kPairs; ++i) {
      constexpr int kHalf = kPairs / 2;
      const T apart_low = i % 2 == 0 ? first[i / 2] : second[i / 2];
      const T apart_high = i % 2 == 0 ? first[kHalf + i / 2] : second[kHalf + i / 2];
      Element::Store(wide.side_by_side ? apart_low : first[i], low + i * kBytes);
      Element::Store(wide.side_by_side ? apart_high : second[i], high + i * kBytes);
    }
    std::byte* const out = item.out + row * item.out_row_bytes;
    std::byte* const to = out + (wide.side_by_side ? 2 * j : j) * kBytes;
    const int64_t apart = wide.side_by_side ? kVectorBytes : wide.pairs * kBytes;
    std::memcpy(__builtin_assume_aligned(to, kVectorBytes), low, kVectorBytes);
    std::memcpy(__builtin_assume_aligned(to + apart, kVectorBytes), high, kVectorBytes);
  }

  static PHASOR_HD void RunUnit(const EncodeItem& item, int64_t row, int32_t unit) {
    std::byte* const out = item.out + row * item.out_row_bytes;
    const std::byte* const add_to =
        item.add_to == nullptr ? nullptr : item.add_to + row * item.add_to_row_bytes;
    const T scale = static_cast<T>(item.embedding_scale);
    const int64_t end = item.unit_begin[unit + 1];
    const Position position = OnOneAxis(item, row);
    int64_t pair = -1;  // the pair that v belongs to
    SinCos<T> v = {};
    T column = 0;
    for (int64_t i = item.unit_begin[unit]; i < end; ++i) {
      const RowStep step = item.steps[i];
      if (step.what != RowStep::What::kZero && step.pair != pair) {
        pair = step.pair;
        v = Components(item, row, position, pair);
      }
      const T value = Value(step, v);
      column = step.first ? value : column + value;
      if (!step.last) continue;
      const int64_t at = step.column * Element::kBytes;
      T result = column;
      if (add_to != nullptr) result = std::fma(scale, LoadElement<Element>(add_to + at), result);
      StoreElement<Element>(result, out + at);
    }
  }

  static PHASOR_HD T Value(const RowStep& step, const SinCos<T>& v) {
    switch (step.what) {
      case RowStep::What::kSin:
        return v.sin;
      case RowStep::What::kMinusSin:
        return -v.sin;
      case RowStep::What::kCos:
        return v.cos;
      case RowStep::What::kZero:
        return 0;
    }
    return 0;
  }

  // The position of a row if there is only one axis.
  static PHASOR_HD Position OnOneAxis(const EncodeItem& item, int64_t row) {
    if constexpr (kPlain) return PositionOf(item.positions, row, 0);
    return {};
  }

  static PHASOR_HD SinCos<T> Components(const EncodeItem& item, int64_t row, Position position,
                                        int64_t pair) {
    uint64_t phase;
    double amplitude = item.amplitude;
    if constexpr (kPlain) {
      phase = PhaseOnOneAxis(item.turns, pair, position);
    } else {
      phase = PhaseOfRow(item.turns, item.positions, pair, row);
      if (item.turns.xpos_rate != nullptr) {
        amplitude *= Exp2(ExponentOfRow(item.turns, item.positions, pair, row));
      }
    }
    SinCos<T> v = scalar::ScaledTrig<Element>(phase, amplitude);
    const T bias = static_cast<T>(item.cos_bias);
    if (bias != 0) v.cos += bias;
    return v;
  }
};

}  // namespace phasor::cuda

#endif  // PHASOR_KERNELS_CUDA_ENCODE_H_
