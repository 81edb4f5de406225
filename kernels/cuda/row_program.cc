// SPDX-License-Identifier: Apache-2.0
// Collects the terms of every column and groups columns into units.
#include "kernels/cuda/row_program.h"

#include <map>

namespace phasor::cuda {
namespace {

constexpr int64_t kZerosPerUnit = 4;

using Columns = std::vector<std::vector<RowStep>>;  // the terms of every column

void AddTerm(const EncodeBlock& block, int64_t column, int64_t pair, RowStep::What what,
             Columns& columns) {
  std::vector<RowStep>& terms = columns[static_cast<size_t>(column)];
  if (!block.accumulate) terms.clear();
  terms.push_back({column, static_cast<int32_t>(pair), what});
}

Columns TermsOf(const RowLayout& layout) {
  Columns columns(static_cast<size_t>(layout.width));
  for (const EncodeBlock& block : layout.blocks) {
    const auto sin = block.negate_sin ? RowStep::What::kMinusSin : RowStep::What::kSin;
    for (int64_t i = 0; i < block.pairs; ++i) {
      const int64_t pair = block.first_pair + i, at = i * block.stride;
      if (block.sin_begin >= 0) AddTerm(block, block.sin_begin + at, pair, sin, columns);
      if (block.cos_begin >= 0) {
        AddTerm(block, block.cos_begin + at, pair, RowStep::What::kCos, columns);
      }
    }
  }
  return columns;
}

}  // namespace

RowProgram CompileRow(const RowLayout& layout) {
  Columns columns = TermsOf(layout);
  std::map<int32_t, std::vector<int64_t>> columns_of_pair;
  std::vector<int64_t> zeros;
  for (int64_t c = 0; c < layout.width; ++c) {
    std::vector<RowStep>& terms = columns[static_cast<size_t>(c)];
    if (terms.empty()) {
      zeros.push_back(c);
      continue;
    }
    for (size_t i = 0; i < terms.size(); ++i) {
      terms[i].first = i == 0;
      terms[i].last = i + 1 == terms.size();
    }
    columns_of_pair[terms[0].pair].push_back(c);
  }
  RowProgram program;
  program.unit_begin.push_back(0);
  const auto end_unit = [&] {
    program.unit_begin.push_back(static_cast<int64_t>(program.steps.size()));
  };
  for (const auto& [pair, members] : columns_of_pair) {
    for (const int64_t c : members) {
      const std::vector<RowStep>& terms = columns[static_cast<size_t>(c)];
      program.steps.insert(program.steps.end(), terms.begin(), terms.end());
    }
    end_unit();
  }
  for (size_t i = 0; i < zeros.size(); ++i) {
    program.steps.push_back({zeros[i], 0, RowStep::What::kZero});
    if ((i + 1) % kZerosPerUnit == 0 || i + 1 == zeros.size()) end_unit();
  }
  return program;
}

}  // namespace phasor::cuda
