// SPDX-License-Identifier: Apache-2.0
// Tests that specs convert to the wire and back, and that a resolved spec has its plan's numbers.
#include "proto/convert_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "google/protobuf/descriptor.h"
#include "kernels/spec/fields.h"
#include "kernels/spec/presets.h"
#include "tests/support/specs.h"
#include "tests/support/status_matchers.h"

namespace phasor {
namespace {

using ::phasor::testing::IsOk;
using ::phasor::testing::StatusIs;
using ::testing::HasSubstr;

// A spec in which every field is set; one that cannot exist, but conversion does not judge.
Spec FullSpec() {
  Spec spec;
  spec.preset = "rope";
  spec.kind = SpecKind::kRotary;
  spec.dim = 512;
  spec.axes = 3;
  spec.axes_dim = {16, 56, 56};
  spec.family = FrequencyFamily::kPeriodsExclusive;
  spec.rope_theta = 500000.0;
  spec.downscale_freq_shift = 1.0;
  spec.min_period = 4e-3;
  spec.max_period = 4.0;
  spec.inv_freq = {1.0, 0.5};
  spec.position_scale = 1000.0;
  spec.order = TrigOrder::kCosSin;
  spec.arrangement = Arrangement::kConcatenated;
  spec.grouping = AxisGrouping::kSum;
  spec.head_dim = 128;
  spec.rotary_dim = 64;
  spec.rotary_begin = 32;
  spec.partial_rotary_factor = 0.5;
  spec.pairing = Pairing::kInterleaved;
  spec.pairing_out = Pairing::kHalfSplit;
  spec.axis_rule = AxisRule::kList;
  spec.mrope_section = {16, 24, 24};
  spec.axis_of_pair = {0, 1, 2};
  spec.attention_factor = 1.25;
  spec.precision = Precision::kParity;
  spec.pad_back = 1;
  spec.frequency_unit = FrequencyUnit::kTurns;
  spec.phase = {0.25, -0.5};
  spec.min_freq = 0.5;
  spec.max_freq = 128.0;
  spec.live_pairs = 16;
  spec.axes_theta = {10000.0, 100.0};
  spec.axes_position_scale = {1.0, 0.5};
  spec.frequency_heads = 8;
  spec.sequence_length = 131072;
  spec.cos_bias = -1.0;
  spec.pad_front = 2;
  spec.odd_dim = OddDim::kSplit;
  spec.xpos = XposScaling{512.0, 1024.0, true};
  spec.parity =
      ParityArithmetic{ParityFrequency::kFloat32Exp, ParityType::kBFloat16, ParityType::kFloat16,
                       ParityType::kFloat64,         ParityType::kModel,    ParityType::kFloat32};
  spec.rope_scaling = LinearScaling{2.0};
  spec.layer_type = "full_attention";
  spec.sub_config = "text_config";
  return spec;
}

TEST(SpecFromWireTest, EveryFieldSurvivesTheRoundTrip) {
  const auto back = SpecFromWire(ToWire(FullSpec()), "spec");
  ASSERT_THAT(back, IsOk());
  EXPECT_EQ(*back, FullSpec());
}

TEST(SpecFromWireTest, EveryFieldIsReadAlone) {
  const v1::Spec full = ToWire(FullSpec());
  std::vector<const google::protobuf::FieldDescriptor*> set;
  full.GetReflection()->ListFields(full, &set);
  for (const auto* const field : set) {
    v1::Spec alone = full;
    for (const auto* const other : set) {
      if (other != field) alone.GetReflection()->ClearField(&alone, other);
    }
    const auto back = SpecFromWire(alone, "spec");
    ASSERT_THAT(back, IsOk());
    EXPECT_EQ(ToWire(*back).DebugString(), alone.DebugString());
  }
}

TEST(SpecFromWireTest, FullSpecSetsEveryFieldOfTheMessage) {
  v1::Spec wire = ToWire(FullSpec());
  const auto* descriptor = v1::Spec::descriptor();
  std::vector<const google::protobuf::FieldDescriptor*> set;
  wire.GetReflection()->ListFields(wire, &set);
  // config_json and encoder share a oneof with preset.
  EXPECT_EQ(static_cast<int>(set.size()), descriptor->field_count() - 2);
}

TEST(SpecFromWireTest, EmptySpecStaysEmpty) {
  EXPECT_EQ(ToWire(Spec()).ByteSizeLong(), 0u);
  const auto back = SpecFromWire(v1::Spec(), "spec");
  ASSERT_THAT(back, IsOk());
  EXPECT_EQ(*back, Spec());
}

TEST(SpecFromWireTest, OtherBasesSurviveTheRoundTrip) {
  Spec config;
  config.config_json = "{}";
  Spec encoder;
  encoder.encoder = "clip";
  for (const Spec& spec : {config, encoder}) {
    const auto back = SpecFromWire(ToWire(spec), "spec");
    ASSERT_THAT(back, IsOk());
    EXPECT_EQ(*back, spec);
  }
}

TEST(SpecFromWireTest, ScalingsSurviveTheRoundTrip) {
  const RopeScaling scalings[] = {
      std::monostate(),
      LinearScaling{4.0},
      NtkScaling{8.0, true, 2048},
      MixedNtkScaling{8.0, 0.625},
      YarnScaling{16.0, 4096, 32.0, 1.0, false, 1.1, 0.7, 0.8, 0.5, 0.9, true, 0.07},
      YarnScaling{16.0, 4096},
      Llama3Scaling{8.0, 1.0, 4.0, 8192},
      LongRopeScaling{{1.0, 2.0}, {3.0, 4.0}, 4096, 32.0, 1.19, 1.0, 1.2},
  };
  for (const RopeScaling& scaling : scalings) {
    Spec spec;
    spec.rope_scaling = scaling;
    const auto back = SpecFromWire(ToWire(spec), "spec");
    ASSERT_THAT(back, IsOk());
    EXPECT_EQ(*back, spec) << scaling.index();
  }
}

TEST(SpecFromWireTest, KnowsEveryScalingRuleOfTheMessage) {
  int rules = 0;
  VisitScalingRules([&](const char* name, auto rule) {
    ++rules;
    const auto* field = v1::RopeScaling::descriptor()->FindFieldByName(name);
    ASSERT_NE(field, nullptr) << name;
    int members = 0;
    VisitFields(&rule, [&](const char* member, auto) {
      ++members;
      EXPECT_NE(field->message_type()->FindFieldByName(member), nullptr) << member;
    });
    EXPECT_EQ(members, field->message_type()->field_count()) << name;
  });
  EXPECT_EQ(rules, v1::RopeScaling::descriptor()->field_count());
}

TEST(SpecFromWireTest, EveryPresetSurvivesTheRoundTrip) {
  for (const Preset& preset : Presets()) {
    const auto back = SpecFromWire(ToWire(preset.spec), "spec");
    ASSERT_THAT(back, IsOk());
    EXPECT_EQ(*back, preset.spec) << preset.name;
  }
}

TEST(SpecFromWireTest, UnknownEnumNamesItsField) {
  v1::Spec wire;
  wire.set_axis_rule(static_cast<v1::AxisRule>(42));
  EXPECT_THAT(SpecFromWire(wire, "items[3].spec"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("items[3].spec.axis_rule: unknown value 42")));
}

std::shared_ptr<const Plan> PlanOf(const Spec& spec) {
  const auto resolved = ResolveSpec(spec);
  EXPECT_THAT(resolved, IsOk());
  const auto plan = CompilePlan(*resolved);
  EXPECT_THAT(plan, IsOk());
  return *plan;
}

TEST(ResolveSpecResponseTest, RotaryListsTheFrequenciesOfItsPairs) {
  Spec spec;
  spec.kind = SpecKind::kRotary;
  spec.family = FrequencyFamily::kGeometric;
  spec.pairing = Pairing::kHalfSplit;
  spec.rope_theta = 10000.0;
  spec.head_dim = 8;
  const auto plan = PlanOf(spec);
  const v1::ResolveSpecResponse response = MakeResolveSpecResponse(*plan, "cpu");
  ASSERT_EQ(response.pairs_size(), 4);
  for (int j = 0; j < 4; ++j) {
    EXPECT_DOUBLE_EQ(response.pairs(j).inv_freq(), std::pow(10000.0, -j / 4.0));
    EXPECT_EQ(response.pairs(j).turns_fraction(), plan->frequency[j].fraction);
  }
  EXPECT_EQ(response.width(), 8);
  EXPECT_EQ(response.amplitude(), 1.0);
  EXPECT_EQ(response.info().backend(), "cpu");
  EXPECT_EQ(response.info().spec_fingerprint(), plan->fingerprint);
}

TEST(ResolveSpecResponseTest, EveryDetailOfAPairArrives) {
  for (const Spec& spec : testing::SpecsOfEveryField()) {
    const auto plan = PlanOf(spec);
    std::vector<PairDetail> arrived;
    const v1::ResolveSpecResponse response = MakeResolveSpecResponse(*plan, "cpu");
    for (const v1::ResolvedPair& pair : response.pairs()) {
      arrived.push_back(PairFromWire(pair));
    }
    EXPECT_EQ(arrived, DetailsOf(*plan));
    EXPECT_EQ(response.amplitude(), plan->amplitude);
  }
}

TEST(ParityComparisonTest, ArrivesAsItWas) {
  for (const parity::Comparison& comparison :
       {parity::Comparison{}, parity::Comparison{7, Dtype::kFloat64}}) {
    const auto arrived = ComparisonFromWire(ToWire(comparison));
    ASSERT_THAT(arrived, IsOk());
    EXPECT_EQ(*arrived, comparison);
  }
  EXPECT_THAT(ComparisonFromWire({}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("parity_comparison.dtype: ")));
}

TEST(ParityDifferenceTest, ArrivesAsItWas) {
  const parity::Report report = {
      .context_length = 9,
      .positions = 8,
      .model = Dtype::kFloat16,
      .largest = {.angle = 1.5, .value = 2.5, .angle_position = 3, .value_position = 4},
      .inv_freq = {1.0, 0.25}};
  const auto arrived = ReportFromWire(ToWire(report));
  ASSERT_THAT(arrived, IsOk());
  EXPECT_EQ(*arrived, report);
  EXPECT_THAT(ReportFromWire({}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("parity_difference.dtype: ")));
}

TEST(ResolveSpecResponseTest, ResolvedSpecResolvesToItself) {
  Spec spec;
  spec.kind = SpecKind::kRotary;
  spec.family = FrequencyFamily::kGeometric;
  spec.pairing = Pairing::kHalfSplit;
  spec.rope_theta = 10000.0;
  spec.head_dim = 8;
  const auto plan = PlanOf(spec);
  const auto again = SpecFromWire(MakeResolveSpecResponse(*plan, "cpu").spec(), "spec");
  ASSERT_THAT(again, IsOk());
  EXPECT_EQ(PlanOf(*again)->spec, plan->spec);
}

}  // namespace
}  // namespace phasor
