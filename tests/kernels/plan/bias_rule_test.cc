// SPDX-License-Identifier: Apache-2.0
// Bias specs: presets, refused fields, and ALiBi's slopes.
#include "kernels/plan/bias_rule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/bias_golden.h"
#include "tests/support/status_matchers.h"

namespace phasor {
namespace {

using ::phasor::testing::IsOk;
using ::phasor::testing::kInvalid;
using ::phasor::testing::StatusIs;
using ::testing::HasSubstr;

absl::Status CompileRule(const BiasSpec& spec) { return CompileBias(spec, 8, "item").status(); }

TEST(BiasRuleTest, SlopesAreBloomsAndMptsForAnyNumberOfHeads) {
  for (const auto& golden : testing::kSlopeGolden) {
    const std::vector<double> slopes = AlibiSlopes(golden.heads);
    ASSERT_EQ(static_cast<int64_t>(slopes.size()), golden.heads);
    for (size_t h = 0; h < slopes.size(); ++h) {
      // Upstream raises a rounded base to a power, in f32.
      EXPECT_NEAR(slopes[h], golden.bloom[h], 4e-6 * slopes[h]) << golden.heads << " heads, " << h;
      EXPECT_NEAR(slopes[h], golden.mpt[h], 2e-7 * slopes[h]) << golden.heads << " heads, " << h;
    }
  }
}

TEST(BiasRuleTest, SlopesOfUpToEightHeadsArePowersOfTwo) {
  EXPECT_THAT(AlibiSlopes(8), ::testing::ElementsAre(0x1p-1, 0x1p-2, 0x1p-3, 0x1p-4, 0x1p-5, 0x1p-6,
                                                     0x1p-7, 0x1p-8));
  EXPECT_THAT(AlibiSlopes(1), ::testing::ElementsAre(0x1p-8));
}

TEST(BiasRuleTest, SlopesAreRoundedOnceToADouble) {
  // 2^(-8 (h + 1) / n) in long double, whose logarithm and power have 11 bits more.
  for (const int64_t heads : {16, 64, 4096, 65536}) {
    const std::vector<double> slopes = AlibiSlopes(heads);
    for (int64_t h = 0; h < heads; h += heads / 16 + 1) {
      const long double exact = std::exp2(-8.0L * static_cast<long double>(h + 1) / heads);
      const double ulp = std::nextafter(slopes[h], 1.0) - slopes[h];
      EXPECT_LE(std::abs(static_cast<double>(slopes[h] - exact)), 0.6 * ulp) << heads << " " << h;
    }
  }
}

TEST(BiasRuleTest, EveryPresetCompilesAndSaysWhereItComesFrom) {
  for (const BiasPreset& preset : BiasPresets()) {
    EXPECT_THAT(CompileRule({.preset = preset.name}), IsOk()) << preset.name;
    EXPECT_FALSE(preset.source.empty()) << preset.name;
    EXPECT_FALSE(preset.summary.empty()) << preset.name;
  }
}

TEST(BiasRuleTest, FieldsOverrideThePreset) {
  const auto rule = CompileBias({.preset = "t5", .num_buckets = 64, .bidirectional = false}, 8, "");
  ASSERT_THAT(rule, IsOk());
  EXPECT_EQ(rule->table_rows, 64);
  EXPECT_EQ(rule->direction_rows, 64);
  EXPECT_EQ(rule->spec.max_distance, 128);
}

TEST(BiasRuleTest, UnknownPresetIsNotFoundAndNamesTheOthers) {
  EXPECT_THAT(CompileRule({.preset = "t6"}),
              StatusIs(absl::StatusCode::kNotFound,
                       "item.preset: 't6' is not known; did you mean \"t5\"? must be one of alibi, "
                       "bloom, deberta-v2, "
                       "mpt, swin, t5, t5-decoder"));
}

TEST(BiasRuleTest, MissingFieldsAreNamedWithTheirRange) {
  EXPECT_THAT(CompileRule({}), StatusIs(kInvalid, HasSubstr("item.family: not set")));
  EXPECT_THAT(CompileRule({.family = BiasFamily::kT5}),
              StatusIs(kInvalid, HasSubstr("item.bidirectional: not set")));
  EXPECT_THAT(CompileRule({.family = BiasFamily::kT5, .bidirectional = true}),
              StatusIs(kInvalid, "item.num_buckets: not set; must be in [4, 1024]"));
  EXPECT_THAT(CompileRule({.family = BiasFamily::kClipped}),
              StatusIs(kInvalid, HasSubstr("item.max_distance: not set")));
  EXPECT_THAT(CompileRule({.family = BiasFamily::kSwin}),
              StatusIs(kInvalid, "item.window: 0 extents; must be [height, width]"));
}

TEST(BiasRuleTest, FieldsOutOfRangeAreRefused) {
  BiasSpec t5 = BiasPresets()[5].spec;
  ASSERT_EQ(t5.family, BiasFamily::kT5);
  t5.num_buckets = 33;
  EXPECT_THAT(CompileRule(t5), StatusIs(kInvalid, HasSubstr("33 is odd; must be even")));
  t5.num_buckets = 1026;
  EXPECT_THAT(CompileRule(t5), StatusIs(kInvalid, HasSubstr("item.num_buckets: 1026")));
  t5.num_buckets = 32;
  t5.max_distance = 8;  // where the logarithm begins
  EXPECT_THAT(CompileRule(t5),
              StatusIs(kInvalid, HasSubstr("item.max_distance: 8; must be in [9,")));
  EXPECT_THAT(CompileRule({.family = BiasFamily::kSwin, .window = {7, 0}}),
              StatusIs(kInvalid, HasSubstr("item.window[1]: 0")));
  EXPECT_THAT(
      CompileRule({.family = BiasFamily::kDeberta, .num_buckets = 256, .max_distance = 129}),
      StatusIs(kInvalid, HasSubstr("item.max_distance: 129; must be in [130,")));
}

TEST(BiasRuleTest, FieldsOfAnotherFamilyAreRefused) {
  EXPECT_THAT(
      CompileRule({.preset = "alibi", .num_buckets = 32}),
      StatusIs(kInvalid, "item.num_buckets: set for ALIBI; must be only for T5 and DEBERTA"));
  EXPECT_THAT(CompileRule({.preset = "swin", .bidirectional = true}),
              StatusIs(kInvalid, HasSubstr("item.bidirectional: set for SWIN")));
  EXPECT_THAT(CompileRule({.preset = "t5", .window = {7, 7}}),
              StatusIs(kInvalid, HasSubstr("item.window: set for T5")));
}

}  // namespace
}  // namespace phasor
