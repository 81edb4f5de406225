// SPDX-License-Identifier: Apache-2.0
// Where the sines and cosines of an Encode row go.
// Threads: plain values, immutable once made; share them freely.
#ifndef PHASOR_KERNELS_OPS_ROW_LAYOUT_H_
#define PHASOR_KERNELS_OPS_ROW_LAYOUT_H_

#include <cstdint>
#include <vector>

namespace phasor {

// Where a run of pairs goes in a row. Several blocks may hold the same pairs.
struct EncodeBlock {
  int64_t first_pair = 0;  // even
  int64_t pairs = 0;
  int64_t sin_begin = 0;    // column of the first sine; -1: sines are not stored
  int64_t cos_begin = 0;    // column of the first cosine; -1: cosines are not stored
  int64_t stride = 1;       // columns from one sine (or cosine) to the next, 1 to 4
  bool accumulate = false;  // add to the columns instead of setting them (AxisGrouping::kSum)
  bool negate_sin = false;

  friend bool operator==(const EncodeBlock&, const EncodeBlock&) = default;
};

// The layout of a whole row.
struct RowLayout {
  int64_t width = 0;
  int64_t content_begin = 0;  // columns outside [content_begin, content_end) are zero
  int64_t content_end = 0;
  double cos_bias = 0;  // added to every cosine
  std::vector<EncodeBlock> blocks;

  friend bool operator==(const RowLayout&, const RowLayout&) = default;
};

}  // namespace phasor

#endif  // PHASOR_KERNELS_OPS_ROW_LAYOUT_H_
