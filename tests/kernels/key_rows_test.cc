// SPDX-License-Identifier: Apache-2.0
// ggml's block codes against blocks that gguf made, byte for byte; and what NaN and infinity
// become.
#include "kernels/ops/key_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "kernels/math/key_blocks.h"
#include "kernels/reference/reference.h"

namespace phasor {
namespace {

#include "tests/kernels/gguf_blocks.inc"

KeyForm OneBlock(KeyCode code) {
  KeyForm form{.code = code, .pages = 1, .page_size = 1, .heads = 1, .head_dim = 32};
  form.group_lanes = 32;
  form.lane_bytes = UnitBytes(code);
  return form;
}

std::string Encoded(KeyCode code, const float* lanes) {
  const KeyForm form = OneBlock(code);
  float copy[32];
  std::memcpy(copy, lanes, sizeof copy);
  std::byte block[34];
  reference::EncodeKeys({&form, {0, 32}, copy, block, nullptr});
  std::string hex;
  for (int64_t i = 0; i < UnitBytes(code); ++i) {
    constexpr char kDigits[] = "0123456789abcdef";
    hex += kDigits[static_cast<int>(block[i]) >> 4];
    hex += kDigits[static_cast<int>(block[i]) & 15];
  }
  return hex;
}

TEST(KeyRowsTest, BlocksHaveTheBytesOfGguf) {
  for (const GgufBlocks& expected : kBlocks) {
    for (size_t i = 0; i < std::size(kLanes); ++i) {
      EXPECT_EQ(Encoded(expected.code, kLanes[i]), expected.blocks[i])
          << Name(expected.code) << " block " << i;
    }
  }
}

TEST(KeyRowsTest, EncodingWhatWasDecodedGivesTheSameCodes) {
  for (const GgufBlocks& expected : kBlocks) {
    const KeyForm form = OneBlock(expected.code);
    for (size_t i = 0; i < 4; ++i) {  // ordinary numbers
      float lanes[32], again[32];
      std::byte block[34], other[34];
      std::memcpy(lanes, kLanes[i], sizeof lanes);
      reference::EncodeKeys({&form, {0, 32}, lanes, block, nullptr});
      reference::DecodeKeys({&form, {0, 32}, block, nullptr, lanes});
      reference::EncodeKeys({&form, {0, 32}, lanes, other, nullptr});
      reference::DecodeKeys({&form, {0, 32}, other, nullptr, again});
      for (int lane = 0; lane < 32; ++lane) {
        EXPECT_NEAR(again[lane], lanes[lane], 0.002 * std::abs(lanes[lane]) + 1e-6) << lane;
      }
    }
  }
}

TEST(KeyRowsTest, HalvesAndTheirNeighboursRoundToInt8) {
  for (int halves = -260; halves <= 260; ++halves) {
    float v = std::nextafter(static_cast<float>(halves) / 2, -1000.0f);
    for (int i = 0; i < 3; ++i, v = std::nextafter(v, 1000.0f)) {
      EXPECT_EQ(key_blocks::Int8Of(v), std::clamp(std::round(v), -128.0f, 127.0f)) << v;
    }
  }
}

TEST(KeyRowsTest, NaNAndInfinityGiveCodesAndNoUndefinedBehaviour) {
  float lanes[32] = {};
  for (const float odd :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
        -std::numeric_limits<float>::infinity()}) {
    lanes[3] = odd;
    lanes[7] = 1;
    for (const GgufBlocks& expected : kBlocks) EXPECT_FALSE(Encoded(expected.code, lanes).empty());
  }
  EXPECT_EQ(key_blocks::Int8Of(std::numeric_limits<float>::quiet_NaN()), 0);
  EXPECT_EQ(key_blocks::Int8Of(std::numeric_limits<float>::infinity()), 127);
  EXPECT_EQ(key_blocks::Int8Of(-std::numeric_limits<float>::infinity()), -128);
  EXPECT_EQ(key_blocks::Int8Of(2.5f), 3);
  EXPECT_EQ(key_blocks::Int8Of(-2.5f), -3);
  EXPECT_EQ(key_blocks::CodeOf(15.9f, 15), 15);
  EXPECT_EQ(key_blocks::CodeOf(-0.1f, 15), 0);
}

}  // namespace
}  // namespace phasor
