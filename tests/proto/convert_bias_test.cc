// SPDX-License-Identifier: Apache-2.0
// Tests that bias requests convert to the wire and back, and that errors name missing fields.
#include "proto/convert_bias.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/convert.h"
#include "tests/support/status_matchers.h"

namespace phasor {
namespace {

using ::phasor::testing::IsOk;
using ::phasor::testing::StatusIs;
using ::testing::HasSubstr;

TEST(ConvertBiasTest, EveryFieldSurvivesTheWire) {
  BiasRequest request;
  request.spec = {.preset = "t5",
                  .family = BiasFamily::kT5,
                  .num_buckets = 64,
                  .max_distance = 256,
                  .bidirectional = false,
                  .window = {3, 4}};
  request.heads = 12;
  request.query_positions = AxisRange(IntegerRange{5, 1, 2});
  request.key_positions = PositionTensor{Dtype::kInt32, {7}};
  request.table = "rel";
  request.table_values = TensorDesc{Dtype::kBFloat16, {64, 12}, {}};
  request.output_dtype = Dtype::kInt64;
  request.add_to = TensorDesc{Dtype::kFloat32, {12, 2, 7}, {14, 7, 1}};
  request.pins.spec_fingerprint = "abc";
  const v1::AttentionBiasItem wire = ToWire(request);
  EXPECT_EQ(CountInlineTensors(wire), 3);
  const auto back = BiasRequestFromWire(wire, "item");
  ASSERT_THAT(back, IsOk());
  EXPECT_EQ(back->spec, request.spec);
  EXPECT_EQ(back->heads, 12);
  EXPECT_EQ(back->table, "rel");
  EXPECT_EQ(back->table_values->shape, request.table_values->shape);
  EXPECT_EQ(back->output_dtype, Dtype::kInt64);
  EXPECT_EQ(back->add_to->strides, request.add_to->strides);
  EXPECT_EQ(back->pins, request.pins);
  EXPECT_EQ(ToWire(*back).SerializeAsString(), wire.SerializeAsString());
}

TEST(ConvertBiasTest, FalseIsNotTheSameAsNotSet) {
  v1::AttentionBiasItem wire;
  wire.set_output_dtype(v1::DTYPE_FLOAT32);
  EXPECT_EQ(BiasRequestFromWire(wire, "item")->spec, BiasSpec{});
  wire.set_bidirectional(false);
  EXPECT_EQ(BiasRequestFromWire(wire, "item")->spec.bidirectional, false);
}

TEST(ConvertBiasTest, UnknownEnumsAndMissingTypesAreNamed) {
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  v1::AttentionBiasItem wire;
  EXPECT_THAT(BiasRequestFromWire(wire, "item"),
              StatusIs(kInvalid, HasSubstr("item.output_dtype: not set")));
  wire.set_output_dtype(v1::DTYPE_FLOAT32);
  wire.set_family(static_cast<v1::BiasFamily>(99));
  EXPECT_THAT(BiasRequestFromWire(wire, "item"),
              StatusIs(kInvalid, HasSubstr("item.family: unknown value 99")));
  wire.clear_family();
  wire.mutable_query_positions();
  EXPECT_THAT(BiasRequestFromWire(wire, "item"),
              StatusIs(kInvalid, HasSubstr("item.query_positions: not set; must be one of")));
}

TEST(ConvertBiasTest, PresetsAndTablesDescribeThemselves) {
  for (const BiasPreset& preset : BiasPresets()) {
    const v1::BiasPreset wire = ToWire(preset);
    EXPECT_EQ(wire.name(), preset.name);
    EXPECT_NE(wire.item().family(), v1::BIAS_FAMILY_UNSPECIFIED) << preset.name;
  }
  const v1::Table table = ToWire(Table{"t", Dtype::kFloat16, 3, 4, "sum", {}});
  EXPECT_EQ(table.name(), "t");
  EXPECT_EQ(table.sha256(), "sum");
  EXPECT_THAT(table.tensor().shape(), ::testing::ElementsAre(3, 4));
}

}  // namespace
}  // namespace phasor
