// SPDX-License-Identifier: Apache-2.0
// Lookup on a GPU. Contract: kernels/ops/lookup.h, but pointers and strides must be multiples of
// the element's size. A unit is a column. Threads: bodies of one launch write different columns.
#ifndef PHASOR_KERNELS_CUDA_LOOKUP_H_
#define PHASOR_KERNELS_CUDA_LOOKUP_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/base/dtype.h"
#include "kernels/base/host_device.h"
#include "kernels/cuda/aligned.h"
#include "kernels/cuda/grid.h"
#include "kernels/cuda/positions.h"

namespace phasor::cuda {

// What a kernel computes for one job's slice. Pointers are addresses on the device.
struct LookupItem {
  ItemGrid grid;
  ItemPositions positions;
  InArena<std::byte> table;
  Dtype table_dtype = Dtype::kFloat32;
  bool copy = false;  // equal dtypes and nothing to add: bits are copied
  int64_t table_rows = 0;
  int64_t columns = 0;
  double embedding_scale = 1;
  std::byte* out = nullptr;
  int64_t out_row_bytes = 0;
  const std::byte* add_to = nullptr;  // nullptr: nothing to add
  int64_t add_to_row_bytes = 0;
};

template <typename Element>
struct LookupBody {
  using Item = LookupItem;
  static constexpr bool kOften = false;  // see launch.cu
  using T = typename Element::Math;

  static PHASOR_HD void Run(const LookupItem& item, const std::byte* arena, int64_t block,
                            int thread) {
    ForEachUnit(item.grid, block, thread,
                [&](int64_t row, int32_t column) { RunColumn(item, arena, row, column); });
  }

 private:
  static PHASOR_HD void RunColumn(const LookupItem& item, const std::byte* arena, int64_t row,
                                  int64_t column) {
    constexpr int64_t kBytes = Element::kBytes;
    int64_t table_row = PositionOf(item.positions, arena, row, 0).whole;
    if (table_row >= item.table_rows) table_row = item.table_rows - 1;
    if (table_row < 0) table_row = 0;
    const int64_t from = table_row * item.columns + column;
    std::byte* const out = item.out + row * item.out_row_bytes + column * kBytes;
    if (item.copy) {
      std::memcpy(Aligned<kBytes>(out), Aligned<kBytes>(item.table.In(arena) + from * kBytes),
                  kBytes);
      return;
    }
    T value = LoadAs<T>(item.table_dtype, item.table.In(arena), from);
    if (item.add_to != nullptr) {
      const std::byte* const add_to = item.add_to + row * item.add_to_row_bytes + column * kBytes;
      value = std::fma(static_cast<T>(item.embedding_scale), LoadElement<Element>(add_to), value);
    }
    StoreElement<Element>(value, out);
  }
};

}  // namespace phasor::cuda

#endif  // PHASOR_KERNELS_CUDA_LOOKUP_H_
