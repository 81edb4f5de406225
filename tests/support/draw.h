// SPDX-License-Identifier: Apache-2.0
// Draws layouts as text.
#ifndef PHASOR_TESTS_SUPPORT_DRAW_H_
#define PHASOR_TESTS_SUPPORT_DRAW_H_

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/plan/row_layout.h"

namespace phasor::testing {

// "c0 s0 ...": the component and pair of every column; "-s0" where negated, "0" where padded, "?"
// where nothing is written.
inline std::string Draw(const RowLayout& layout) {
  std::vector<std::string> columns(layout.width, "?");
  for (int64_t i = 0; i < layout.content_begin; ++i) columns[i] = "0";
  for (int64_t i = layout.content_end; i < layout.width; ++i) columns[i] = "0";
  const auto put = [&](const EncodeBlock& block, int64_t begin, const std::string& name) {
    if (begin < 0) return;
    for (int64_t i = 0; i < block.pairs; ++i) {
      std::string& column = columns.at(begin + i * block.stride);
      EXPECT_EQ(column, "?") << "written twice";
      column = name + std::to_string(block.first_pair + i);
    }
  };
  for (const EncodeBlock& block : layout.blocks) {
    put(block, block.sin_begin, block.negate_sin ? "-s" : "s");
    put(block, block.cos_begin, "c");
  }
  std::string drawn;
  for (const std::string& column : columns) drawn += (drawn.empty() ? "" : " ") + column;
  return drawn;
}

}  // namespace phasor::testing

#endif  // PHASOR_TESTS_SUPPORT_DRAW_H_
