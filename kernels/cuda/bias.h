// SPDX-License-Identifier: Apache-2.0
// Attention biases on a GPU. Contract: kernels/ops/bias.h, but pointers and strides must be
// multiples of the element's size. Rows are queries. A unit is a key, whose index or distance is
// used for all heads. Threads: bodies of one launch write different elements.
#ifndef PHASOR_KERNELS_CUDA_BIAS_H_
#define PHASOR_KERNELS_CUDA_BIAS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/base/dtype.h"
#include "kernels/base/host_device.h"
#include "kernels/cuda/aligned.h"
#include "kernels/cuda/grid.h"
#include "kernels/cuda/positions.h"

namespace phasor::cuda {

enum class BiasKind : uint8_t { kBuckets, kSignedBuckets, kClipped, kWindow, kDistance, kKey };

// What a kernel computes for one job's slice. Pointers are addresses on the device.
struct BiasItem {
  ItemGrid grid;
  ItemPositions queries;
  ItemPositions keys;
  BiasKind kind = BiasKind::kDistance;
  bool bidirectional = false;
  Dtype table_dtype = Dtype::kFloat32;
  int64_t heads = 0;
  int64_t direction_rows = 0;
  int64_t clip = 0;
  int64_t window_height = 0;
  int64_t window_width = 0;
  // Buckets: a distance below exact_end is its own bucket; the thresholds, ascending, give the
  // others.
  int64_t exact_end = 0;
  int64_t first_bucket = 0;
  InArena<int64_t> thresholds;
  int64_t threshold_count = 0;
  InArena<double> slopes;    // [heads]; empty: there is a table, or the output is indices
  InArena<std::byte> table;  // [rows, heads]
  std::byte* out = nullptr;
  int64_t out_head_bytes = 0;
  int64_t out_row_bytes = 0;
  const std::byte* add_to = nullptr;  // nullptr: nothing to add
  int64_t add_to_head_bytes = 0;
  int64_t add_to_row_bytes = 0;
};

// The bucket of a distance n >= 0: the last one whose least distance is at most n.
PHASOR_HD int64_t BucketOf(const BiasItem& item, const std::byte* arena, int64_t n) {
  if (n < item.exact_end) return n;
  int64_t low = 0, high = item.threshold_count;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (item.thresholds.In(arena)[middle] > n) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return item.first_bucket + low;
}

// index[q, k] of a table family. Needs |positions| < 2^62.
PHASOR_HD int64_t BiasIndex(const BiasItem& item, const std::byte* arena, int64_t row,
                            int64_t column) {
  const int64_t query = PositionOf(item.queries, arena, row, 0).whole;
  const int64_t key = PositionOf(item.keys, arena, column, 0).whole;
  const int64_t after = key - query;
  switch (item.kind) {
    case BiasKind::kBuckets:
      if (!item.bidirectional) return BucketOf(item, arena, after < 0 ? -after : 0);
      return (after > 0 ? item.direction_rows : 0) +
             BucketOf(item, arena, after > 0 ? after : -after);
    case BiasKind::kSignedBuckets:
      return after > 0 ? -BucketOf(item, arena, after) : BucketOf(item, arena, -after);
    case BiasKind::kClipped:
      return (after < -item.clip ? -item.clip : after > item.clip ? item.clip : after) + item.clip;
    case BiasKind::kWindow: {
      const int64_t dy = item.window_height - 1 - after;
      const int64_t dx = PositionOf(item.queries, arena, row, 1).whole -
                         PositionOf(item.keys, arena, column, 1).whole + item.window_width - 1;
      return dy * (2 * item.window_width - 1) + dx;
    }
    case BiasKind::kDistance:
    case BiasKind::kKey:
      return 0;  // have no table
  }
  return 0;
}

template <typename Element>
struct BiasBody {
  using Item = BiasItem;
  static constexpr bool kOften = false;  // see launch.cu
  using T = typename Element::Math;

  static PHASOR_HD void Run(const BiasItem& item, const std::byte* arena, int64_t block,
                            int thread) {
    ForEachUnit(item.grid, block, thread, [&](int64_t row, int32_t column) {
      if (!item.slopes.empty()) {
        const T distance = Distance(item, arena, row, column);
        for (int64_t head = 0; head < item.heads; ++head) {
          Put(item, head, row, column, static_cast<T>(item.slopes.In(arena)[head]) * distance);
        }
      } else {
        const int64_t first = BiasIndex(item, arena, row, column) * item.heads;
        for (int64_t head = 0; head < item.heads; ++head) {
          Put(item, head, row, column,
              LoadAs<T>(item.table_dtype, item.table.In(arena), first + head));
        }
      }
    });
  }

 private:
  // The number that the slope multiplies.
  static PHASOR_HD T Distance(const BiasItem& item, const std::byte* arena, int64_t row,
                              int64_t column) {
    const int64_t key = PositionOf(item.keys, arena, column, 0).whole;
    if (item.kind == BiasKind::kKey) return static_cast<T>(key);
    const int64_t before = PositionOf(item.queries, arena, row, 0).whole - key;
    return -static_cast<T>(before < 0 ? -before : before);
  }

  static PHASOR_HD void Put(const BiasItem& item, int64_t head, int64_t row, int64_t column,
                            T value) {
    const int64_t at = column * Element::kBytes;
    if (item.add_to != nullptr) {
      value = LoadElement<Element>(item.add_to + head * item.add_to_head_bytes +
                                   row * item.add_to_row_bytes + at) +
              value;
    }
    StoreElement<Element>(value,
                          item.out + head * item.out_head_bytes + row * item.out_row_bytes + at);
  }
};

// Writes the indices themselves, as INT32 or INT64.
template <typename Integer>
struct BiasIndexBody {
  using Item = BiasItem;
  static constexpr bool kOften = false;  // see launch.cu

  static PHASOR_HD void Run(const BiasItem& item, const std::byte* arena, int64_t block,
                            int thread) {
    ForEachUnit(item.grid, block, thread, [&](int64_t row, int32_t column) {
      constexpr int64_t kBytes = sizeof(Integer);
      StoreAligned(static_cast<Integer>(BiasIndex(item, arena, row, column)),
                   item.out + row * item.out_row_bytes + column * kBytes);
    });
  }
};

}  // namespace phasor::cuda

#endif  // PHASOR_KERNELS_CUDA_BIAS_H_
