// SPDX-License-Identifier: Apache-2.0
// Words of rows lie where the lanes of the form do, and are as wide as everything about it allows.
#include "kernels/cuda/key_bytes.h"

#include <gtest/gtest.h>

namespace phasor::cuda {
namespace {

KeyForm Form(int64_t lane_bytes, int64_t group_lanes, int64_t group_bytes) {
  KeyForm form{.code = KeyCode::kBFloat16, .pages = 2, .page_size = 4, .heads = 2, .head_dim = 8};
  form.head_bytes = 1024;
  form.slot_bytes = 2048;
  form.page_bytes = 8192;
  form.lane_bytes = lane_bytes;
  form.group_lanes = group_lanes;
  form.group_bytes = group_bytes;
  return form;
}

// Where byte i of the lanes of a row is.
int64_t ByteOf(const KeyForm& form, int64_t i) {
  const int64_t size = UnitBytes(form.code), lane = i / size;
  return lane / form.group_lanes * form.group_bytes + lane % form.group_lanes * form.lane_bytes +
         i % size;
}

TEST(KeyBytesTest, WordsLieWhereTheLanesDo) {
  const KeyForm dense = Form(2, 8, 0), grouped = Form(2, 4, 24), strided = Form(6, 8, 0),
                both = Form(4, 4, 40);
  for (const KeyForm& form : {dense, grouped, strided, both}) {
    const int64_t width = WidthOf(RowBits(form) | LaneBits(form));
    // Lanes that are apart in two ways are never cut.
    const int64_t least = IsStrided(form) && HasGroups(form) ? UnitBytes(form.code) : 1;
    for (int64_t bytes = width; bytes >= least; bytes /= 2) {
      const KeyWords words = WordsOf(form, bytes);
      for (int64_t i = 0; i < 16 / bytes; ++i) {
        for (int64_t k = 0; k < bytes; ++k) {
          EXPECT_EQ(words.At(i) + k, ByteOf(form, i * bytes + k))
              << width << " " << bytes << " " << i;
        }
      }
    }
  }
  EXPECT_EQ(WidthOf(RowBits(dense) | LaneBits(dense)), 16);
  EXPECT_EQ(WidthOf(RowBits(grouped) | LaneBits(grouped)), 8);
  EXPECT_EQ(WidthOf(RowBits(strided) | LaneBits(strided)), 2);
  EXPECT_EQ(WidthOf(RowBits(both) | LaneBits(both)), 2);
}

TEST(KeyBytesTest, OneRowHasNoDistancesToOthers) {
  KeyForm form = Form(2, 8, 0);
  form.head_bytes = form.slot_bytes = form.page_bytes = 1;
  EXPECT_EQ(WidthOf(RowBits(form)), 1);
  form.heads = form.page_size = form.pages = 1;
  EXPECT_EQ(WidthOf(RowBits(form)), 16);
}

TEST(KeyBytesTest, RangesAreOfWholeUnits) {
  KeyForm q8 = Form(34, 64, 0);
  q8.code = KeyCode::kQ8_0;
  q8.head_dim = 64;
  const ByteRange block = BytesOfLanes(q8, {32, 64});
  EXPECT_EQ(block.begin, 34);
  EXPECT_EQ(block.end, 68);
  KeyForm from = Form(2, 8, 0), to = from;
  from.bytes_before = 8, from.bytes_from = 32;
  to.bytes_before = 4, to.bytes_from = 64;
  EXPECT_EQ(WholeRow(from, to).begin, -4);
  EXPECT_EQ(WholeRow(from, to).end, 32);
  EXPECT_EQ(WholeRow(from, Form(2, 4, 24)).bytes(), 16);
}

}  // namespace
}  // namespace phasor::cuda
