// SPDX-License-Identifier: Apache-2.0
// A row layout compiled into steps: what to compute for every column, in units for one thread each.
#ifndef PHASOR_KERNELS_CUDA_ROW_PROGRAM_H_
#define PHASOR_KERNELS_CUDA_ROW_PROGRAM_H_

#include <cstdint>
#include <vector>

#include "kernels/plan/row_layout.h"

namespace phasor::cuda {

// One term of a column. The terms of a column follow one another, in the order in which blocks add
// them.
struct RowStep {
  enum class What : uint8_t { kZero, kSin, kMinusSin, kCos };

  int64_t column = 0;
  int32_t pair = 0;
  What what = What::kZero;
  bool first = true;  // sets the column, else adds to it
  bool last = true;   // the column is complete

  friend bool operator==(const RowStep&, const RowStep&) = default;
};

// The steps of a row, grouped into units. Threads: a plain value.
struct RowProgram {
  std::vector<int64_t> unit_begin;  // [units + 1]: first step of each unit
  std::vector<RowStep> steps;

  int64_t units() const { return static_cast<int64_t>(unit_begin.size()) - 1; }
};

// Compiles a layout whose pairs are all below 2^31. Columns that begin with the same pair form one
// unit, in the order of the pairs. Columns that are zero come last, a few to a unit.
RowProgram CompileRow(const RowLayout& layout);

}  // namespace phasor::cuda

#endif  // PHASOR_KERNELS_CUDA_ROW_PROGRAM_H_
