// SPDX-License-Identifier: Apache-2.0
// Tests that requests convert to the wire and back, and that missing, unknown and unimplemented
// fields are refused with their path.
#include "proto/convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "tests/support/status_matchers.h"

namespace phasor {
namespace {

using ::phasor::testing::IsOk;
using ::phasor::testing::StatusIs;
using ::testing::HasSubstr;

using ::phasor::testing::kInvalid;
constexpr auto kUnimplemented = absl::StatusCode::kUnimplemented;

v1::EncodeItem ValidEncode() {
  v1::EncodeItem item;
  item.mutable_spec()->set_preset("transformer");
  item.mutable_spec()->set_dim(8);
  item.mutable_positions()->mutable_range()->mutable_integer()->set_count(4);
  item.set_output_dtype(v1::DTYPE_FLOAT32);
  return item;
}

v1::ApplyRoPEItem ValidRope() {
  v1::ApplyRoPEItem item;
  item.mutable_spec()->set_preset("rope");
  item.mutable_positions()->mutable_range()->mutable_integer()->set_count(4);
  v1::TensorSpec* tensor = item.add_tensors()->mutable_tensor();
  tensor->set_dtype(v1::DTYPE_BFLOAT16);
  for (const int extent : {4, 2, 8}) tensor->add_shape(extent);
  item.set_direction(v1::DIRECTION_FORWARD);
  item.set_layout(v1::ROPE_LAYOUT_TOKENS_HEADS);
  return item;
}

// The wire messages are compared: they have every field and print well.
std::string Text(const google::protobuf::Message& message) { return message.DebugString(); }

TEST(PositionsFromWireTest, EveryKindSurvivesTheRoundTrip) {
  const Positions kinds[] = {
      AxisRange(IntegerRange{-5, -2, 7}),
      AxisRange(RealRange{0.5, 0.25, 3}),
      PositionGrid{{IntegerRange{0, 1, 2}, RealRange{-1.5, 0.0, 3}}},
      RaggedPositions{{3, 0, 2}, {10, 20, 30}},
      PositionTensor{Dtype::kInt32, {2, 3}},
  };
  for (const Positions& positions : kinds) {
    const v1::Positions wire = ToWire(positions);
    const auto back = PositionsFromWire(wire, "positions");
    ASSERT_THAT(back, IsOk());
    EXPECT_EQ(back->index(), positions.index());
    EXPECT_EQ(Text(ToWire(*back)), Text(wire));
  }
}

TEST(PositionsFromWireTest, UnsetStepIsOneAndZeroStepStaysZero) {
  v1::Positions wire;
  wire.mutable_range()->mutable_integer()->set_count(2);
  auto positions = PositionsFromWire(wire, "positions");
  ASSERT_THAT(positions, IsOk());
  EXPECT_EQ(std::get<IntegerRange>(std::get<AxisRange>(*positions)).step, 1);
  wire.mutable_range()->mutable_integer()->set_step(0);
  positions = PositionsFromWire(wire, "positions");
  ASSERT_THAT(positions, IsOk());
  EXPECT_EQ(std::get<IntegerRange>(std::get<AxisRange>(*positions)).step, 0);
}

TEST(PositionsFromWireTest, RefusesGridOfMoreAxesThanASpecCanHave) {
  v1::Positions wire;
  for (int i = 0; i < kMaxAxes + 1; ++i) wire.mutable_grid()->add_axes()->mutable_integer();
  EXPECT_THAT(PositionsFromWire(wire, "p"),
              StatusIs(kInvalid, HasSubstr("p.grid.axes: 5 ranges; must be at most 4")));
}

TEST(EncodeRequestFromWireTest, EveryFieldSurvivesTheRoundTrip) {
  EncodeRequest request;
  request.spec.preset = "transformer";
  request.positions = AxisRange(IntegerRange{1, 2, 3});
  request.output_dtype = Dtype::kFloat16;
  request.add_to = TensorDesc{Dtype::kFloat16, {3, 8}, {16, 1}};
  request.embedding_scale = 2.5;
  request.output = EncodeOutput::kMatrix2x2;
  request.pins = {"0123", 1, "cpu"};
  const auto back = EncodeRequestFromWire(ToWire(request), "item");
  ASSERT_THAT(back, IsOk());
  EXPECT_EQ(Text(ToWire(*back)), Text(ToWire(request)));
  EXPECT_EQ(back->spec, request.spec);
  EXPECT_EQ(back->add_to->strides, request.add_to->strides);
  EXPECT_EQ(back->embedding_scale, 2.5);
  EXPECT_EQ(back->output, EncodeOutput::kMatrix2x2);
  EXPECT_EQ(back->pins.spec_fingerprint, "0123");
  EXPECT_EQ(back->pins.numerics_version, 1u);
  EXPECT_EQ(back->pins.backend, "cpu");
}

TEST(RopeRequestFromWireTest, EveryFieldSurvivesTheRoundTrip) {
  RopeRequest request;
  request.spec.preset = "rope";
  request.positions = PositionTensor{Dtype::kInt64, {4}};
  request.tensors = {TensorDesc{Dtype::kFloat32, {4, 2, 8}, {}},
                     TensorDesc{Dtype::kBFloat16, {4, 1, 8}, {64, 8, 1}}};
  request.direction = Direction::kDelta;
  request.layout = RopeLayout::kHeadsTokens;
  request.from_positions = PositionTensor{Dtype::kInt32, {4}};
  request.from_spec = Spec();
  request.from_spec->preset = "other";
  request.pins.backend = "cpu";
  const auto back = RopeRequestFromWire(ToWire(request), "item");
  ASSERT_THAT(back, IsOk());
  EXPECT_EQ(Text(ToWire(*back)), Text(ToWire(request)));
  ASSERT_EQ(back->tensors.size(), 2u);
  EXPECT_EQ(back->direction, Direction::kDelta);
  EXPECT_EQ(back->layout, RopeLayout::kHeadsTokens);
  EXPECT_EQ(back->from_spec->preset, "other");
}

TEST(RopeRequestFromWireTest, OutputsAndPagesSurviveTheRoundTrip) {
  RopeRequest request;
  request.positions = IntegerRange{0, 1, 4};
  request.tensors = {{Dtype::kBFloat16, {4, 2, 8}, {}}, {Dtype::kBFloat16, {4, 1, 8}, {}}};
  request.outputs = {{Dtype::kFloat8E5M2, 0.25f}, {std::nullopt, 3.0f}};
  request.paged_cache = PagedCache{.key_index = 1,
                                   .values = {Dtype::kBFloat16, {4, 3, 8}, {32, 8, 1}},
                                   .key_cache = {Dtype::kFloat8E4M3, {9, 4, 1, 8}, {}},
                                   .value_cache = {Dtype::kBFloat16, {9, 4, 3, 8}, {}},
                                   .value_inv_scale = 7.0f,
                                   .slot_mapping = {Dtype::kInt32, {4}, {}}};
  const auto back = RopeRequestFromWire(ToWire(request), "item");
  ASSERT_THAT(back, IsOk());
  EXPECT_EQ(Text(ToWire(*back)), Text(ToWire(request)));
  EXPECT_EQ(back->outputs[0].dtype, Dtype::kFloat8E5M2);
  EXPECT_EQ(back->outputs[0].inv_scale, 0.25f);
  EXPECT_EQ(back->outputs[1].dtype, std::nullopt);
  EXPECT_EQ(back->outputs[1].inv_scale, 3.0f);
  EXPECT_EQ(back->paged_cache->key_index, 1);
  EXPECT_EQ(back->paged_cache->values.strides, (std::vector<int64_t>{32, 8, 1}));
  EXPECT_EQ(back->paged_cache->key_cache.dtype, Dtype::kFloat8E4M3);
  EXPECT_EQ(back->paged_cache->value_cache.shape, (std::vector<int64_t>{9, 4, 3, 8}));
  EXPECT_EQ(back->paged_cache->slot_mapping.dtype, Dtype::kInt32);
  EXPECT_EQ(back->paged_cache->value_inv_scale, 7.0f);
}

// Pages for the first tensor of an item.
void SetPages(v1::ApplyRoPEItem* item) {
  v1::PagedCacheWrite* const cache = item->mutable_paged_cache();
  for (v1::TensorSpec* tensor : {cache->mutable_values(), cache->mutable_key_cache(),
                                 cache->mutable_value_cache(), cache->mutable_slot_mapping()}) {
    tensor->set_dtype(v1::DTYPE_BFLOAT16);
  }
}

struct Refusal {
  std::string name;
  absl::StatusCode code;
  std::string message;
};

struct EncodeRefusal : Refusal {
  std::function<void(v1::EncodeItem*)> change;
};

class EncodeRefusalTest : public ::testing::TestWithParam<EncodeRefusal> {};

TEST_P(EncodeRefusalTest, NamesTheFieldAndTheCode) {
  v1::EncodeItem item = ValidEncode();
  ASSERT_THAT(EncodeRequestFromWire(item, "item"), IsOk());
  GetParam().change(&item);
  EXPECT_THAT(EncodeRequestFromWire(item, "item"),
              StatusIs(GetParam().code, HasSubstr(GetParam().message)));
}

INSTANTIATE_TEST_SUITE_P(
    Fields, EncodeRefusalTest,
    ::testing::Values(
        EncodeRefusal{{"NoSpec", kInvalid, "item.spec: not set"},
                      [](v1::EncodeItem* i) { i->clear_spec(); }},
        EncodeRefusal{{"NoPositions", kInvalid, "item.positions: not set"},
                      [](v1::EncodeItem* i) { i->clear_positions(); }},
        EncodeRefusal{{"NoPositionKind", kInvalid, "item.positions: not set; must be one of"},
                      [](v1::EncodeItem* i) { i->mutable_positions()->clear_kind(); }},
        EncodeRefusal{
            {"NoRangeKind", kInvalid, "item.positions.range: not set; must be integer"},
            [](v1::EncodeItem* i) { i->mutable_positions()->mutable_range()->clear_kind(); }},
        EncodeRefusal{{"NoDtype", kInvalid, "item.output_dtype: not set"},
                      [](v1::EncodeItem* i) { i->clear_output_dtype(); }},
        EncodeRefusal{{"UnknownDtype", kInvalid, "item.output_dtype: unknown value 77"},
                      [](v1::EncodeItem* i) { i->set_output_dtype(v1::Dtype(77)); }},
        EncodeRefusal{{"AddToWithoutDtype", kInvalid, "item.add_to.dtype: not set"},
                      [](v1::EncodeItem* i) { i->mutable_add_to()->add_shape(4); }},
        EncodeRefusal{{"UnknownOutput", kInvalid, "item.output: unknown value 9"},
                      [](v1::EncodeItem* i) { i->set_output(v1::EncodeOutput(99)); }},
        EncodeRefusal{{"Destination", kUnimplemented, "item.destination: not implemented"},
                      [](v1::EncodeItem* i) { i->mutable_destination(); }},
        EncodeRefusal{{"AddToInARegion", kUnimplemented, "item.add_to.region: not implemented"},
                      [](v1::EncodeItem* i) {
                        i->mutable_add_to()->set_dtype(v1::DTYPE_FLOAT32);
                        i->mutable_add_to()->mutable_region()->set_region("r");
                      }},
        EncodeRefusal{
            {"PositionsOnADevice", kUnimplemented, "item.positions.tensor.device: not implemented"},
            [](v1::EncodeItem* i) {
              auto* tensor = i->mutable_positions()->mutable_tensor();
              tensor->set_dtype(v1::DTYPE_INT32);
              tensor->mutable_device();
            }},
        EncodeRefusal{{"StridedPositions", kUnimplemented, "item.positions.tensor.strides"},
                      [](v1::EncodeItem* i) {
                        auto* tensor = i->mutable_positions()->mutable_tensor();
                        tensor->set_dtype(v1::DTYPE_INT32);
                        tensor->add_strides(1);
                      }}),
    [](const auto& test) { return test.param.name; });

struct RopeRefusal : Refusal {
  std::function<void(v1::ApplyRoPEItem*)> change;
};

class RopeRefusalTest : public ::testing::TestWithParam<RopeRefusal> {};

TEST_P(RopeRefusalTest, NamesTheFieldAndTheCode) {
  v1::ApplyRoPEItem item = ValidRope();
  ASSERT_THAT(RopeRequestFromWire(item, "items[2]"), IsOk());
  GetParam().change(&item);
  EXPECT_THAT(RopeRequestFromWire(item, "items[2]"),
              StatusIs(GetParam().code, HasSubstr(GetParam().message)));
}

INSTANTIATE_TEST_SUITE_P(
    Fields, RopeRefusalTest,
    ::testing::Values(
        RopeRefusal{{"NoDirection", kInvalid, "items[2].direction: not set"},
                    [](v1::ApplyRoPEItem* i) { i->clear_direction(); }},
        RopeRefusal{{"UnknownLayout", kInvalid, "items[2].layout: unknown value 5"},
                    [](v1::ApplyRoPEItem* i) { i->set_layout(v1::RopeLayout(5)); }},
        RopeRefusal{{"RopeTensorWithoutTensor", kInvalid, "items[2].tensors[1].tensor: not set"},
                    [](v1::ApplyRoPEItem* i) { i->add_tensors(); }},
        RopeRefusal{
            {"UnknownSpecEnum", kInvalid, "items[2].from_spec.pairing: unknown value 9"},
            [](v1::ApplyRoPEItem* i) { i->mutable_from_spec()->set_pairing(v1::Pairing(9)); }},
        RopeRefusal{{"FromPositionsWithoutKind", kInvalid, "items[2].from_positions: not set"},
                    [](v1::ApplyRoPEItem* i) { i->mutable_from_positions(); }},
        RopeRefusal{
            {"UnknownOutputDtype", kInvalid, "items[2].tensors[0].output_dtype"},
            [](v1::ApplyRoPEItem* i) { i->mutable_tensors(0)->set_output_dtype(v1::Dtype(77)); }},
        RopeRefusal{{"Destination", kUnimplemented, "items[2].tensors[0].destination"},
                    [](v1::ApplyRoPEItem* i) { i->mutable_tensors(0)->mutable_destination(); }},
        RopeRefusal{{"Region", kUnimplemented, "items[2].tensors[0].tensor.region"},
                    [](v1::ApplyRoPEItem* i) {
                      i->mutable_tensors(0)->mutable_tensor()->mutable_region();
                    }},
        RopeRefusal{{"PagedCacheWithoutValues", kInvalid, "items[2].paged_cache.values: not set"},
                    [](v1::ApplyRoPEItem* i) { i->mutable_paged_cache(); }},
        RopeRefusal{{"PagedCacheWithoutSlots", kInvalid, "items[2].paged_cache.slot_mapping: not"},
                    [](v1::ApplyRoPEItem* i) {
                      SetPages(i);
                      i->mutable_paged_cache()->clear_slot_mapping();
                    }},
        RopeRefusal{{"InlineCacheWithStrides", kInvalid,
                     "items[2].paged_cache.value_cache.strides: set inline"},
                    [](v1::ApplyRoPEItem* i) {
                      SetPages(i);
                      i->mutable_paged_cache()->mutable_value_cache()->add_strides(1);
                    }},
        RopeRefusal{
            {"RegionOfAnInlineCall", kUnimplemented, "items[2].paged_cache.key_cache.region"},
            [](v1::ApplyRoPEItem* i) {
              SetPages(i);
              i->mutable_paged_cache()->mutable_key_cache()->mutable_region();
            }}),
    [](const auto& test) { return test.param.name; });

TEST(RopeRequestFromWireTest, KeysThatGoToPagesHaveNoOtherDestination) {
  v1::ApplyRoPEItem item = ValidRope();
  SetPages(&item);
  ASSERT_THAT(RopeRequestFromWire(item, "item", Sources::kShared), IsOk());
  item.mutable_tensors(0)->mutable_destination()->mutable_region();
  EXPECT_THAT(RopeRequestFromWire(item, "item", Sources::kShared),
              StatusIs(kInvalid, HasSubstr("item.tensors[0].destination: set; must be unset")));
}

TEST(RopeRequestFromWireTest, OutputDtypeEqualToTheInputsIsAccepted) {
  v1::ApplyRoPEItem item = ValidRope();
  item.mutable_tensors(0)->set_output_dtype(v1::DTYPE_BFLOAT16);
  EXPECT_THAT(RopeRequestFromWire(item, "item"), IsOk());
}

TEST(CountInlineTensorsTest, CountsWhatHasNoSource) {
  v1::EncodeItem encode = ValidEncode();
  EXPECT_EQ(CountInlineTensors(encode), 0);
  encode.mutable_positions()->mutable_tensor();
  encode.mutable_add_to();
  EXPECT_EQ(CountInlineTensors(encode), 2);
  encode.mutable_add_to()->mutable_region();
  EXPECT_EQ(CountInlineTensors(encode), 1);
}

TEST(CountInlineTensorsTest, CountsEveryTensorOfARotationEvenUnsupportedOnes) {
  v1::ApplyRoPEItem rope = ValidRope();
  rope.add_tensors();  // has no tensor: none of its bytes can be there
  rope.mutable_from_positions()->mutable_tensor();
  rope.mutable_paged_cache()->mutable_values();
  rope.mutable_paged_cache()->mutable_slot_mapping();
  rope.mutable_paged_cache()->mutable_key_cache()->mutable_region();
  rope.mutable_tensors(0)->mutable_destination();  // outputs take no bytes of the request
  EXPECT_EQ(CountInlineTensors(rope), 4);
}

}  // namespace
}  // namespace phasor
