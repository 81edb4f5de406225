// SPDX-License-Identifier: Apache-2.0
// Plans: the shapes of blocks and tables. Every column is written exactly once.
#include "kernels/plan/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/direct.h"
#include "tests/support/plans.h"
#include "tests/support/specs.h"
#include "tests/support/status_matchers.h"

namespace phasor {
namespace {

using ::testing::ElementsAre;
using testing::Encoding;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::PlanOf;
using testing::Rotary;
using testing::StatusIs;

constexpr uint64_t kQuarter = uint64_t{1} << 62;

// Specs of every layout, with odd pair counts, several axes, padding and partial rotary.
std::vector<Spec> ManySpecs() {
  std::vector<Spec> specs;
  for (const char* name : {"transformer", "transformer-literal", "timestep-cos-sin", "flow-periods",
                           "flow-periods-interleaved"}) {
    for (const int64_t dim : {2, 6, 34, 130}) specs.push_back(Encoding(name, dim));
  }
  specs.push_back(Encoding("timestep-sin-cos", 35));
  for (const char* name : {"grid-2d-concat", "grid-2d-sum", "mae-2d", "timm-2d"}) {
    for (const int64_t dim : {4, 12, 68}) specs.push_back(Encoding(name, dim));
  }
  Spec uneven = Encoding("timm-2d", 24);
  uneven.axes_dim = {6, 18};
  specs.push_back(uneven);
  uneven = Encoding("grid-2d-concat", 24);
  uneven.axes_dim = {2, 6, 10, 6};
  uneven.axes = 4;
  specs.push_back(uneven);
  Spec literal = Encoding("transformer-literal", 12);
  literal.axes = 2;
  specs.push_back(literal);
  literal.grouping = AxisGrouping::kSum;
  specs.push_back(literal);
  for (const char* name : {"rope-half-split", "rope-interleaved", "gpt-neox"}) {
    for (const int64_t head_dim : {8, 24, 72, 128}) specs.push_back(Rotary(name, head_dim));
  }
  for (const char* name : {"flux", "flux-2", "wan", "gpt-j", "llama-3"})
    specs.push_back(Rotary(name, name[0] == 'g' ? 256 : 128));
  for (const Spec& spec : testing::SpecsOfEveryField()) specs.push_back(spec);
  return specs;
}

TEST(CompilePlanTest, AmplitudesThatFloat32CannotHoldAreRefused) {
  Spec spec = Rotary("rope-half-split", 8);
  spec.attention_factor = 1e39;
  EXPECT_THAT(CompilePlan(*ResolveSpec(spec)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("must be a finite float32")));
}

TEST(CompilePlanTest, WritesEveryColumnExactlyOnce) {
  for (const Spec& spec : ManySpecs()) {
    const auto plan = PlanOf(spec);
    if (plan->spec.kind != SpecKind::kEncoding) continue;
    std::vector<int> written(plan->spec.dim, 0);
    for (int64_t i = 0; i < plan->layout.content_begin; ++i) ++written[i];
    for (int64_t i = plan->layout.content_end; i < plan->spec.dim; ++i) ++written[i];
    for (const EncodeBlock& block : plan->layout.blocks) {
      if (block.accumulate) continue;
      for (int64_t i = 0; i < block.pairs; ++i) {
        if (block.sin_begin >= 0) ++written.at(block.sin_begin + i * block.stride);
        if (block.cos_begin >= 0) ++written.at(block.cos_begin + i * block.stride);
      }
    }
    EXPECT_THAT(written, ::testing::Each(1)) << spec.preset << " " << plan->spec.dim;
  }
}

TEST(CompilePlanTest, StartsEveryBlockAtAnEvenPair) {
  for (const Spec& spec : ManySpecs()) {
    const auto plan = PlanOf(spec);
    EXPECT_EQ(plan->layout.blocks.empty(), plan->spec.kind == SpecKind::kRotary);
    for (const EncodeBlock& block : plan->layout.blocks) {
      EXPECT_EQ(block.first_pair % 2, 0) << spec.preset;
      EXPECT_LE(block.first_pair + block.pairs, plan->pairs) << spec.preset;
      EXPECT_TRUE(block.stride == 1 || block.stride == 2) << spec.preset;
    }
  }
}

TEST(CompilePlanTest, RearrangesPairsIntoTheTable) {
  for (const Spec& spec : ManySpecs()) {
    const auto plan = PlanOf(spec);
    if (plan->table.layers > 1) continue;  // phase_table_test.cc checks these
    const PhaseTable& table = plan->table;
    EXPECT_EQ(table.half % 16, 0);
    EXPECT_GE(table.half, (plan->pairs + 1) / 2);
    ASSERT_EQ(table.fraction.size(), 2u * table.half);
    ASSERT_EQ(table.whole.size(), 2u * table.half);
    std::vector<bool> filled(2 * table.half, false);
    bool has_whole = false;
    for (int64_t pair = 0; pair < plan->pairs; ++pair) {
      const int64_t entry = table.Entry(pair);
      EXPECT_EQ(table.fraction[entry], plan->frequency[pair].fraction);
      EXPECT_EQ(table.whole[entry], static_cast<uint64_t>(plan->frequency[pair].whole));
      EXPECT_EQ(table.offset.empty() ? 0 : table.offset[entry], plan->offset[pair]);
      has_whole = has_whole || plan->frequency[pair].whole != 0;
      filled[entry] = true;
    }
    EXPECT_EQ(table.has_whole, has_whole);
    for (size_t entry = 0; entry < filled.size(); ++entry) {
      if (filled[entry]) continue;
      EXPECT_EQ(table.fraction[entry] | table.whole[entry], 0u);
    }
  }
}

TEST(CompilePlanTest, CoversTheTableWithRunsOfOneAxis) {
  for (const Spec& spec : ManySpecs()) {
    const auto plan = PlanOf(spec);
    if (plan->table.layers > 1) continue;  // phase_table_test.cc checks these
    int64_t next = 0;
    std::vector<int> axis_at(2 * plan->table.half);
    for (size_t r = 0; r < plan->table.runs.size(); ++r) {
      const AxisRun& run = plan->table.runs[r];
      EXPECT_EQ(run.begin, next);
      EXPECT_GT(run.count, 0);
      if (r > 0) {
        EXPECT_NE(run.axis, plan->table.runs[r - 1].axis) << "runs are maximal";
      }
      for (int64_t i = 0; i < run.count; ++i) axis_at[run.begin + i] = run.axis;
      next += run.count;
    }
    EXPECT_EQ(next, 2 * plan->table.half);
    for (int64_t pair = 0; pair < plan->pairs; ++pair) {
      EXPECT_EQ(axis_at[plan->table.Entry(pair)], plan->axis[pair]) << spec.preset;
    }
  }
}

TEST(CompilePlanTest, HasOneRunForOneAxis) {
  EXPECT_EQ(PlanOf(Encoding("transformer", 100))->table.runs.size(), 1u);
}

TEST(CompilePlanTest, NumbersPlansAndLabelsThemByMeaning) {
  const auto a = PlanOf(Encoding("transformer", 64));
  const auto b = PlanOf(Encoding("transformer", 64));
  EXPECT_NE(a->id, b->id);
  EXPECT_NE(a->id, 0u);
  EXPECT_EQ(a->fingerprint, b->fingerprint);
  EXPECT_EQ(a->fingerprint, Fingerprint(a->spec));
}

TEST(CompilePlanTest, LaysOutInterleavedAndConcatenatedRows) {
  const EncodeBlock interleaved = PlanOf(Encoding("transformer", 8))->layout.blocks.at(0);
  EXPECT_EQ(interleaved.sin_begin, 0);
  EXPECT_EQ(interleaved.cos_begin, 1);
  EXPECT_EQ(interleaved.stride, 2);
  const EncodeBlock concatenated = PlanOf(Encoding("timestep-cos-sin", 9))->layout.blocks.at(0);
  EXPECT_EQ(concatenated.cos_begin, 0);
  EXPECT_EQ(concatenated.sin_begin, 4);
  EXPECT_EQ(concatenated.stride, 1);
  EXPECT_EQ(PlanOf(Encoding("timestep-cos-sin", 9))->layout.content_end, 8);
}

TEST(CompilePlanTest, GivesEveryElementOfALiteralEncodingItsOwnSine) {
  const auto plan = PlanOf(Encoding("transformer-literal", 6));
  EXPECT_EQ(plan->pairs, 6);
  EXPECT_THAT(plan->offset, ElementsAre(0, kQuarter, 0, kQuarter, 0, kQuarter));
  ASSERT_EQ(plan->layout.blocks.size(), 1u);
  EXPECT_EQ(plan->layout.blocks[0].pairs, 6);
  EXPECT_EQ(plan->layout.blocks[0].cos_begin, -1);
  EXPECT_EQ(plan->layout.blocks[0].stride, 1);
}

TEST(CompilePlanTest, GroupsByComponentAcrossUnevenAxes) {
  Spec spec = Encoding("timm-2d", 24);
  spec.axes_dim = {6, 18};
  const auto plan = PlanOf(spec);
  ASSERT_EQ(plan->layout.blocks.size(), 2u);
  EXPECT_EQ(plan->layout.blocks[0].sin_begin, 0);
  EXPECT_EQ(plan->layout.blocks[1].sin_begin, 3);
  EXPECT_EQ(plan->layout.blocks[0].cos_begin, 12);
  EXPECT_EQ(plan->layout.blocks[1].cos_begin, 15);
  EXPECT_EQ(plan->layout.blocks[1].first_pair, 4) << "after a padding pair";
  EXPECT_EQ(plan->frequency[3], Frequency{});
}

TEST(CompilePlanTest, AddsTheAxesOfASumIntoTheSameColumns) {
  const auto plan = PlanOf(Encoding("grid-2d-sum", 8));
  ASSERT_EQ(plan->layout.blocks.size(), 2u);
  EXPECT_FALSE(plan->layout.blocks[0].accumulate);
  EXPECT_TRUE(plan->layout.blocks[1].accumulate);
  EXPECT_EQ(plan->layout.blocks[0].sin_begin, plan->layout.blocks[1].sin_begin);
}

TEST(CompilePlanTest, RestartsTheLadderOfEveryRotaryAxis) {
  const auto plan = PlanOf(Rotary("flux", 128));
  EXPECT_EQ(plan->pairs, 64);
  for (const int64_t first : {0, 8, 36}) EXPECT_EQ(plan->frequency[first], plan->frequency[0]);
  EXPECT_EQ(plan->axis[7], 0);
  EXPECT_EQ(plan->axis[8], 1);
  EXPECT_EQ(plan->axis[35], 1);
  EXPECT_EQ(plan->axis[36], 2);
  EXPECT_EQ(plan->frequency[8 + 5], plan->frequency[36 + 5]);
  EXPECT_NE(plan->frequency[5], plan->frequency[8 + 5]) << "8 and 28 pairs have other exponents";
}

TEST(CompilePlanTest, UsesRotaryDimAsTheDenominator) {
  const auto partial = PlanOf(Rotary("gpt-j", 256));
  Spec small = Rotary("rope-interleaved", 64);
  EXPECT_EQ(partial->frequency, PlanOf(small)->frequency);
}

TEST(CompilePlanTest, FoldsPositionScaleIntoFrequencies) {
  Spec spec = Encoding("timestep-sin-cos", 8);
  spec.position_scale = 1000;
  const auto scaled = PlanOf(spec);
  EXPECT_EQ(scaled->frequency[0].whole, 159);  // 1000 / (2 pi)
  EXPECT_TRUE(scaled->table.has_whole);
}

TEST(CompilePlanTest, TakesAShiftOfOneForOnePair) {
  const auto plan = PlanOf(Encoding("ddpm-timestep", 2));
  EXPECT_EQ(plan->frequency[0], PlanOf(Encoding("transformer", 2))->frequency[0]);
  EXPECT_EQ(PlanOf(Encoding("flow-periods", 2))->frequency[0].whole,
            249);  // 1 / 4e-3, the double
}

TEST(BytesOfPlanTest, CountsEveryListOfThePlanAndItsSpec) {
  Spec spec = Encoding("transformer", 4096);
  const auto plain = PlanOf(spec);
  const int64_t pairs = 2048;
  // At least the frequencies (16 bytes), the axis, and two entries of the table.
  EXPECT_GE(BytesOf(*plain), pairs * (16 + 1 + 16));
  spec.phase = std::vector<double>(pairs, 0.5);
  EXPECT_GE(BytesOf(*PlanOf(spec)) - BytesOf(*plain), pairs * 16) << "offsets and the spec's list";
  spec.precision = Precision::kParity;
  EXPECT_GE(BytesOf(*PlanOf(spec)) - BytesOf(*plain), pairs * 16);
}

TEST(CompilePlanTest, RefusesFrequenciesBeyondFixedPoint) {
  Spec spec = Encoding("timestep-sin-cos", 8);
  spec.position_scale = 1e300;
  EXPECT_THAT(CompilePlan(*ResolveSpec(spec)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("2^63 turns")));
  Spec flow = Encoding("flow-periods", 8);
  flow.min_period = 1e-300;
  EXPECT_THAT(CompilePlan(*ResolveSpec(flow)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("2^63")));
}

}  // namespace
}  // namespace phasor
