// SPDX-License-Identifier: Apache-2.0
// Tests the flags of a spec. Every field must have one.
#include "client/cli/spec_flags.h"

#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/spec/fields.h"

namespace phasor::cli {
namespace {

Spec ParseSpec(std::vector<std::string> arguments) {
  CLI::App app;
  Spec spec;
  AddSpecFlags(app, spec);
  std::reverse(arguments.begin(), arguments.end());
  app.parse(arguments);
  return spec;
}

TEST(SpecFlagsTest, NothingGivenLeavesEveryFieldUnset) { EXPECT_EQ(ParseSpec({}), Spec{}); }

TEST(SpecFlagsTest, EncoderIsABaseLikeAPreset) {
  EXPECT_EQ(ParseSpec({"--encoder", "rows", "--dim", "8"}), (Spec{.encoder = "rows", .dim = 8}));
}

TEST(SpecFlagsTest, EncodingFieldsHaveFlags) {
  Spec spec = {.preset = "transformer"};
  spec.kind = SpecKind::kEncoding;
  spec.dim = 12;
  spec.axes = 2;
  spec.axes_dim = {4, 8};
  spec.family = FrequencyFamily::kPeriodsExclusive;
  spec.rope_theta = 5e5;
  spec.downscale_freq_shift = 1;
  spec.min_period = 4e-3;
  spec.max_period = 4;
  spec.position_scale = 1000;
  spec.order = TrigOrder::kCosSin;
  spec.arrangement = Arrangement::kConcatenated;
  spec.grouping = AxisGrouping::kComponentMajor;
  spec.pad_back = 1;
  EXPECT_EQ(ParseSpec({"--preset",
                       "transformer",
                       "--kind",
                       "encoding",
                       "--dim",
                       "12",
                       "--axes",
                       "2",
                       "--axes-dim",
                       "4,8",
                       "--family",
                       "periods-exclusive",
                       "--rope-theta",
                       "5e5",
                       "--downscale-freq-shift",
                       "1",
                       "--min-period",
                       "4e-3",
                       "--max-period",
                       "4",
                       "--position-scale",
                       "1000",
                       "--order",
                       "cos-sin",
                       "--arrangement",
                       "concatenated",
                       "--grouping",
                       "component-major",
                       "--pad-back",
                       "1"}),
            spec);
}

TEST(SpecFlagsTest, RotaryFieldsHaveFlags) {
  Spec spec;
  spec.head_dim = 128;
  spec.rotary_dim = 64;
  spec.rotary_begin = 32;
  spec.partial_rotary_factor = 0.25;
  spec.pairing = Pairing::kInterleaved;
  spec.pairing_out = Pairing::kHalfSplit;
  spec.attention_factor = 1.5;
  EXPECT_EQ(ParseSpec({"--head-dim", "128", "--rotary-dim", "64", "--rotary-begin", "32",
                       "--partial-rotary-factor", "0.25", "--pairing", "interleaved",
                       "--pairing-out", "half-split", "--attention-factor", "1.5"}),
            spec);
}

TEST(SpecFlagsTest, UnknownNamesAndNumbersAreUsageErrors) {
  EXPECT_THROW(ParseSpec({"--pairing", "sideways"}), CLI::ParseError);
  EXPECT_THROW(ParseSpec({"--dim", "wide"}), CLI::ParseError);
  EXPECT_THROW(ParseSpec({"--ropetheta", "1"}), CLI::ParseError);
}

TEST(SpecFlagsTest, EveryFieldHasAFlag) {
  CLI::App app;
  Spec spec;
  AddSpecFlags(app, spec);
  VisitSpecFields([&](const SpecField& field, auto, auto) {
    EXPECT_NE(app.get_option_no_throw("--" + FlagName(field.name)), nullptr) << field.name;
  });
}

TEST(SpecFlagsTest, ListsAndMessagesHaveFlags) {
  Spec spec;
  spec.inv_freq = {1, 0.5};
  spec.axis_of_pair = {0, 1};
  spec.axis_rule = AxisRule::kMropeChunked;
  spec.rope_scaling = LinearScaling{4.0};
  spec.xpos = XposScaling{.inverse = true};
  EXPECT_EQ(ParseSpec({"--inv-freq", "1,0.5", "--axis-of-pair", "0,1", "--axis-rule",
                       "mrope-chunked", "--rope-scaling", R"({"linear": {"factor": 4}})", "--xpos",
                       R"({"inverse": true})"}),
            spec);
}

TEST(SpecFlagsTest, FlagsOverrideASpecFromAFileWhereverTheyStand) {
  const std::string path = ::testing::TempDir() + "/spec_flags_test.json";
  std::ofstream(path) << R"({"preset": "transformer", "dim": 8, "rope_theta": 500})";
  Spec spec = {.preset = "transformer", .dim = 16};
  spec.rope_theta = 500;
  EXPECT_EQ(ParseSpec({"--spec", path, "--dim", "16"}), spec);
  EXPECT_EQ(ParseSpec({"--dim", "16", "--spec", path}), spec);
}

TEST(SpecFlagsTest, WrongJsonIsAUsageError) {
  EXPECT_THROW(ParseSpec({"--rope-scaling", "linear"}), CLI::ParseError);
  EXPECT_THROW(ParseSpec({"--xpos", R"({"centre": 1})"}), CLI::ParseError);
  EXPECT_THROW(ParseSpec({"--spec", "/nonexistent"}), CLI::ParseError);
}

}  // namespace
}  // namespace phasor::cli
