// SPDX-License-Identifier: Apache-2.0
// Tests that requests to move keys convert to the wire and back, and that errors name their fields.
#include "proto/convert_move.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"

namespace phasor {
namespace {

using ::phasor::testing::IsOk;
using ::phasor::testing::kInvalid;
using ::phasor::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

KeyLayout FullLayout() {
  return {.name = "vllm-flash",
          .code = KeyCode::kFloat8E5M2,
          .pages = 1000,
          .page_size = 16,
          .heads = 8,
          .head_dim = 128,
          .layers = 2,
          .page_bytes = 1,
          .slot_bytes = 2,
          .head_bytes = 3,
          .lane_bytes = 4,
          .group_lanes = 5,
          .group_bytes = 6,
          .lanes_offset = 7,
          .row_bytes = 8,
          .scale = 0.5F,
          .scales = KeyScales{-4, 10, 11, 12},
          .hadamard = 64};
}

MoveRequest FullRequest() {
  MoveRequest request;
  request.pools = {1 << 20, 7};
  request.layouts = {FullLayout(), {.code = KeyCode::kQ8_0, .pages = 3, .heads = 1}};
  request.specs = {{.spec = {.preset = "llama-3"},
                    .from_spec = Spec{.preset = "llama-2"},
                    .fingerprint = "abc",
                    .from_fingerprint = "def"},
                   {.spec = {.preset = "llama-3"}}};
  request.layers = {{.layout = 1,
                     .spec = 0,
                     .group = 1,
                     .place = {1, 5},
                     .layer = 1,
                     .copy_values = false,
                     .to_place = KeyPlace{0, 9},
                     .to_layout = 0,
                     .model_layer = 0},
                    {}};
  request.groups.resize(2);
  request.groups[0].runs = {{.block_table = {4, 2},
                             .first = 3,
                             .count = 12,
                             .from = -7,
                             .to = int64_t{1} << 40,
                             .to_block_table = {9},
                             .to_first = 0},
                            {}};
  request.groups[1].slots = {{1, 2}, {3, 4}, {5, 6}, {-7, 8}};
  request.groups[1].slot_positions = KeyPlace{1, 3};
  request.mode = MoveMode::kCompare;
  request.tolerance = 0.25;
  request.pins = {.numerics_version = 3, .backend = "cpu"};
  return request;
}

TEST(ConvertMoveTest, EveryFieldSurvivesTheWire) {
  const MoveRequest request = FullRequest();
  const v1::MoveKeysItem wire = ToWire(request);
  const auto back = MoveRequestFromWire(wire, "item");
  ASSERT_THAT(back, IsOk());
  EXPECT_EQ(back->pools, request.pools);
  EXPECT_EQ(back->layouts[0].name, "vllm-flash");
  EXPECT_EQ(back->layouts[0].scales, request.layouts[0].scales);
  EXPECT_EQ(back->layouts[0].row_bytes, 8);
  EXPECT_EQ(back->layouts[1].page_bytes, std::nullopt);
  EXPECT_EQ(back->layouts[1].code, KeyCode::kQ8_0);
  EXPECT_EQ(back->specs[0].from_spec, request.specs[0].from_spec);
  EXPECT_EQ(back->specs[0].from_fingerprint, "def");
  EXPECT_EQ(back->layers[0].to_place->offset_bytes, 9);
  EXPECT_FALSE(back->layers[0].copy_values);
  EXPECT_EQ(back->layers[1].spec, std::nullopt);
  EXPECT_FALSE(back->groups[0].slot_positions.has_value());
  EXPECT_EQ(back->groups[1].slot_positions->pool, 1);
  EXPECT_EQ(back->groups[1].slot_positions->offset_bytes, 3);
  EXPECT_TRUE(back->layers[1].copy_values);
  EXPECT_THAT(back->groups[0].runs[0].block_table, ElementsAre(4, 2));
  EXPECT_EQ(back->groups[0].runs[0].from, -7);
  EXPECT_EQ(back->groups[0].runs[0].to_first, 0);
  EXPECT_EQ(back->groups[0].runs[1].to_first, std::nullopt);
  EXPECT_THAT(back->groups[1].slots.positions, ElementsAre(-7, 8));
  EXPECT_EQ(back->mode, MoveMode::kCompare);
  EXPECT_EQ(back->tolerance, 0.25);
  EXPECT_EQ(back->pins, request.pins);
  EXPECT_EQ(ToWire(*back).SerializeAsString(), wire.SerializeAsString());
}

// All fields of a message are set, so that the test above says something about each.
void ExpectFull(const google::protobuf::Message& message) {
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const auto* const field = message.GetDescriptor()->field(i);
    const auto& reflection = *message.GetReflection();
    EXPECT_TRUE(field->is_repeated() ? reflection.FieldSize(message, field) > 0
                                     : reflection.HasField(message, field))
        << field->full_name();
  }
}

TEST(ConvertMoveTest, NoFieldIsForgotten) {
  const v1::MoveKeysItem wire = ToWire(FullRequest());
  ExpectFull(wire);
  ExpectFull(wire.layouts(0));
  ExpectFull(wire.layouts(0).scales());
  ExpectFull(wire.specs(0));
  ExpectFull(wire.layers(0));
  ExpectFull(wire.layers(0).place());
  ExpectFull(wire.groups(0).runs(0));
  ExpectFull(wire.groups(1).slots());
}

TEST(ConvertMoveTest, WhatIsNotSetHasItsDefault) {
  v1::MoveKeysItem wire;
  wire.add_layouts()->set_code(v1::KEY_CODE_FLOAT16);
  wire.add_layers()->mutable_place();
  const auto request = MoveRequestFromWire(wire, "item");
  ASSERT_THAT(request, IsOk());
  EXPECT_EQ(request->layouts[0].page_size, 1);
  EXPECT_EQ(request->layouts[0].layers, 1);
  EXPECT_TRUE(request->layers[0].copy_values);
  EXPECT_EQ(request->mode, MoveMode::kCopyOnWrite);
  EXPECT_EQ(request->tolerance, std::nullopt);
}

TEST(ConvertMoveTest, ErrorsNameTheField) {
  const auto status = [](auto change) {
    v1::MoveKeysItem wire = ToWire(FullRequest());
    change(&wire);
    return MoveRequestFromWire(wire, "item").status();
  };
  EXPECT_THAT(status([](auto* wire) { wire->mutable_layouts(1)->clear_code(); }),
              StatusIs(kInvalid, HasSubstr("item.layouts[1].code: not set; must be one of")));
  EXPECT_THAT(status([](auto* wire) { wire->mutable_specs(1)->clear_spec(); }),
              StatusIs(kInvalid, HasSubstr("item.specs[1].spec: not set")));
  EXPECT_THAT(status([](auto* wire) { wire->mutable_layers(1)->clear_place(); }),
              StatusIs(kInvalid, HasSubstr("item.layers[1].place: not set")));
  EXPECT_THAT(status([](auto* wire) { wire->set_mode(static_cast<v1::MoveMode>(9)); }),
              StatusIs(kInvalid, HasSubstr("item.mode: unknown value 9")));
}

TEST(ConvertMoveTest, PoolsAreAllOnDevicesOrAllOnTheHost) {
  const auto status = [](auto change) {
    v1::MoveKeysItem wire = ToWire(FullRequest());
    change(&wire);
    return MoveRequestFromWire(wire, "item").status();
  };
  EXPECT_THAT(status([](auto* wire) { wire->mutable_pools(1)->mutable_device(); }),
              StatusIs(kInvalid, HasSubstr("item.pools[1]: device memory, pools[0] is host memory; "
                                           "must be alike")));
  EXPECT_THAT(status([](auto* wire) { wire->mutable_pools(0)->mutable_device(); }),
              StatusIs(kInvalid, HasSubstr("item.pools[1]: host memory, pools[0] is device")));
  const auto on_device = [&](v1::MoveMode mode) {
    return status([&](auto* wire) {
      for (auto& pool : *wire->mutable_pools()) pool.mutable_device()->set_region("r");
      for (auto& group : *wire->mutable_groups()) group.clear_slot_positions();
      wire->set_mode(mode);
    });
  };
  EXPECT_TRUE(on_device(v1::MOVE_MODE_COPY_ON_WRITE).ok());
  EXPECT_TRUE(on_device(v1::MOVE_MODE_MOVE).ok());
  EXPECT_TRUE(on_device(v1::MOVE_MODE_COMPARE).ok());
}

TEST(ConvertMoveTest, OnlyPoolsWithoutASourceAreInline) {
  v1::MoveKeysItem wire = ToWire(FullRequest());
  EXPECT_EQ(CountInlineTensors(wire), 2);
  wire.mutable_pools(0)->mutable_region()->set_region("r");
  EXPECT_EQ(CountInlineTensors(wire), 1);
}

TEST(ConvertMoveTest, DifferencesSurviveTheWire) {
  const KeyDifference found{.max_abs = 4,
                            .rms = 1,
                            .reference_rms = 2,
                            .bad_rows = 3,
                            .first_bad_token = 0,
                            .first_bad_slot = 8,
                            .first_bad_head = 0};
  const v1::KeyDifference wire = ToWire(found);
  ExpectFull(wire);
  EXPECT_EQ(wire.relative_rms(), 0.5);
  const KeyDifference back = DifferenceFromWire(wire);
  EXPECT_EQ(ToWire(back).SerializeAsString(), wire.SerializeAsString());
  EXPECT_EQ(back.first_bad_slot, 8);
  const v1::KeyDifference none = ToWire(KeyDifference());
  EXPECT_FALSE(none.has_first_bad_token());
  EXPECT_EQ(DifferenceFromWire(none).first_bad_token, -1);
  EXPECT_EQ(DifferenceFromWire(none).first_bad_head, -1);
}

}  // namespace
}  // namespace phasor
