// SPDX-License-Identifier: Apache-2.0
// Slots of every kind of request, and the jobs that their memory makes.
#include "kernels/request/prepared.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/support/status_matchers.h"

namespace phasor {
namespace {

using ::phasor::testing::IsOk;
using ::phasor::testing::kInvalid;
using ::phasor::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const auto kPlans = [](const ResolvedSpec& spec) { return CompilePlan(spec); };

std::vector<Role> RolesOf(const Slots& slots) {
  std::vector<Role> roles;
  for (const InputSlot& slot : slots.inputs) roles.push_back(slot.role);
  return roles;
}

EncodeRequest Rows(int64_t count) {
  EncodeRequest request;
  request.spec.preset = "transformer";
  request.spec.dim = 8;
  request.positions = AxisRange(IntegerRange{0, 1, count});
  return request;
}

// q [tokens, 2, 8] and k [tokens, 1, 8] in f16.
RopeRequest Rotation(int64_t tokens) {
  RopeRequest request;
  request.spec.preset = "rope-half-split";
  request.positions = AxisRange(IntegerRange{0, 1, tokens});
  request.tensors = {{Dtype::kFloat16, {tokens, 2, 8}, {}}, {Dtype::kFloat16, {tokens, 1, 8}, {}}};
  return request;
}

RopeRequest IntoPages(int64_t tokens) {
  RopeRequest request = Rotation(tokens);
  PagedCache& cache = request.paged_cache.emplace();
  cache.key_index = 1;
  cache.values = {Dtype::kFloat16, {tokens, 1, 8}, {}};
  cache.key_cache = cache.value_cache = {Dtype::kFloat16, {2, 4, 1, 8}, {}};
  cache.slot_mapping = {Dtype::kInt32, {tokens}, {}};
  return request;
}

TEST(PreparedTest, ARangeOfPositionsHasNoSlot) {
  const auto prepared = PrepareEncode(Rows(3), kPlans, "item");
  ASSERT_THAT(prepared, IsOk());
  const Slots slots = SlotsOf(*prepared);
  EXPECT_THAT(slots.inputs, IsEmpty());
  ASSERT_EQ(slots.outputs.size(), 1u);
  EXPECT_EQ(slots.outputs[0].bytes, 3 * 8 * 4);
  EXPECT_EQ(slots.outputs[0].input, -1);
}

TEST(PreparedTest, DenseRowsMayBeCopiedToTheirSumAndStridedOnesMayNot) {
  EncodeRequest request = Rows(3);
  request.add_to = TensorDesc{Dtype::kFloat32, {3, 8}, {}};
  Slots slots = SlotsOf(*PrepareEncode(request, kPlans, "item"));
  ASSERT_THAT(RolesOf(slots), ElementsAre(Role::kAddTo));
  EXPECT_EQ(slots.inputs[0].reading, Reading::kLikeOutput);
  EXPECT_EQ(slots.outputs[0].input, 0);
  request.add_to->strides = {16, 1};
  slots = SlotsOf(*PrepareEncode(request, kPlans, "item"));
  EXPECT_EQ(slots.inputs[0].reading, Reading::kWhole);
  EXPECT_EQ(slots.inputs[0].bytes, (2 * 16 + 8) * 4);
}

TEST(PreparedTest, SlotsOfARotationStandInTheOrderOfMessages) {
  RopeRequest request = Rotation(2);
  request.positions = PositionTensor{Dtype::kInt64, {2}};
  request.direction = Direction::kDelta;
  request.from_positions = Positions(PositionTensor{Dtype::kInt32, {2}});
  const Slots slots = SlotsOf(*PrepareRope(request, kPlans, "item"));
  EXPECT_THAT(RolesOf(slots),
              ElementsAre(Role::kPositions, Role::kTensor, Role::kTensor, Role::kFromPositions));
  EXPECT_EQ(slots.inputs[2].index, 1);
  EXPECT_EQ(slots.inputs[3].bytes, 8);
  EXPECT_EQ(slots.outputs[1].input, 2);
}

TEST(PreparedTest, PagesBringWhatTheCachesHoldAndTheirSlots) {
  const Slots slots = SlotsOf(*PrepareRope(IntoPages(2), kPlans, "item"));
  EXPECT_THAT(RolesOf(slots), ElementsAre(Role::kTensor, Role::kTensor, Role::kValues,
                                          Role::kKeyCache, Role::kValueCache, Role::kSlotMapping));
  EXPECT_EQ(slots.outputs[1].role, Role::kKeyCache);
  EXPECT_EQ(slots.outputs[1].bytes, 2 * 4 * 8 * 2);
  EXPECT_EQ(slots.outputs[1].like_input_bytes, 2 * 8 * 2);  // that are written
  EXPECT_EQ(slots.outputs[2].input, 2);                     // the values
  EXPECT_EQ(slots.inputs[1].reading, Reading::kWhole);      // keys do not lie as the cache does
}

TEST(PreparedTest, NumbersAreCheckedUnderTheirPath) {
  Prepared prepared = *PrepareRope(IntoPages(2), kPlans, "item");
  const InputSlot slot = SlotsOf(prepared).inputs[5];
  const int32_t twice[] = {3, 3};
  EXPECT_THAT(SetNumbers(slot, reinterpret_cast<const std::byte*>(twice), "item", &prepared),
              StatusIs(kInvalid, HasSubstr("item.paged_cache.slot_mapping[1]: slot 3")));
  const int32_t slots[] = {3, 4};
  EXPECT_THAT(SetNumbers(slot, reinterpret_cast<const std::byte*>(slots), "item", &prepared),
              IsOk());
  EXPECT_THAT(std::get<PreparedRope>(prepared).pages->key_offsets, ElementsAre(48, 64));
}

TEST(PreparedTest, AJobHasTheMemoryOfItsSlots) {
  const Prepared prepared = *PrepareRope(Rotation(2), kPlans, "item");
  std::vector<std::byte> memory(4 * 64);
  const auto at = [&](size_t i) { return memory.data() + 64 * i; };
  const Job job = MakeJob(prepared, {{Role::kTensor, 1, at(1)}, {Role::kTensor, 0, at(0)}},
                          {{at(2)}, {at(3), /*like_input=*/true}});
  const auto& rotary = std::get<RotaryJob>(job);
  EXPECT_EQ(rotary.tensors[0].x, at(0));
  EXPECT_EQ(rotary.tensors[1].x, at(1));
  EXPECT_EQ(rotary.tensors[1].y, at(3));
}

// A move of 3 tokens of bfloat16 [4 slots, 1 head, 8 lanes] from pool 0 to pool 1.
MoveRequest Moved(MoveMode mode) {
  MoveRequest request;
  request.pools = {64, 64};
  request.layouts = {{.pages = 4, .heads = 1, .head_dim = 8}};
  request.specs = {{.spec = {.preset = "rope-half-split"}}};
  request.layers = {{.spec = 0}};
  if (mode != MoveMode::kMove) request.layers[0].to_place = KeyPlace{1, 0};
  request.groups = {
      {.runs = {{.block_table = {0, 1, 2, 3}, .first = 1, .count = 3, .from = 0, .to = 9}}}};
  request.mode = mode;
  return request;
}

TEST(PreparedTest, APoolThatIsWrittenIsAnOutputThatBeginsAsItCame) {
  const Prepared copy = *PrepareMove(Moved(MoveMode::kCopyOnWrite), kPlans, "item");
  const Slots slots = SlotsOf(copy);
  ASSERT_THAT(RolesOf(slots), ElementsAre(Role::kPool, Role::kPool));
  EXPECT_EQ(slots.inputs[0].reading, Reading::kInPart);
  EXPECT_EQ(slots.inputs[0].output, -1);
  EXPECT_EQ(slots.inputs[0].extra_bytes, 3 * 4 * 8);  // slots and positions
  EXPECT_EQ(slots.inputs[1].reading, Reading::kInitial);
  EXPECT_EQ(slots.inputs[1].output, 0);
  EXPECT_EQ(slots.inputs[1].extra_bytes, 0);
  ASSERT_EQ(slots.outputs.size(), 1u);
  EXPECT_EQ(slots.outputs[0].role, Role::kPool);
  EXPECT_EQ(slots.outputs[0].index, 1);
  EXPECT_EQ(slots.outputs[0].bytes, 64);
  EXPECT_FALSE(slots.outputs[0].moves_within);
  EXPECT_EQ(BytesInPart(copy), 2 * 3 * 16);
  const Prepared move = *PrepareMove(Moved(MoveMode::kMove), kPlans, "item");
  EXPECT_TRUE(SlotsOf(move).outputs[0].moves_within);
  EXPECT_EQ(SlotsOf(move).outputs[0].index, 0);
  EXPECT_EQ(BytesInPart(Prepared(*PrepareEncode(Rows(3), kPlans, "item"))), 0);
}

TEST(PreparedTest, AComparisonReadsItsPoolsAndWritesAReport) {
  const Prepared prepared = *PrepareMove(Moved(MoveMode::kCompare), kPlans, "item");
  const Slots slots = SlotsOf(prepared);
  EXPECT_EQ(slots.inputs[1].reading, Reading::kInPart);
  ASSERT_EQ(slots.outputs.size(), 1u);
  EXPECT_EQ(slots.outputs[0].role, Role::kReport);
  EXPECT_EQ(slots.outputs[0].bytes, static_cast<int64_t>(sizeof(KeyReport)));
  std::vector<std::byte> memory(3 * 64);
  const auto at = [&](size_t i) { return memory.data() + 64 * i; };
  const Job job =
      MakeJob(prepared, {{Role::kPool, -1, at(0)}, {Role::kPool, -1, at(1)}}, {{at(2)}});
  EXPECT_THAT(std::get<MoveJob>(job).pools, ElementsAre(at(0), at(1)));
  EXPECT_EQ(std::get<MoveJob>(job).reports, at(2));
}

TEST(PreparedTest, AMoveHasTheMemoryOfItsPools) {
  const Prepared prepared = *PrepareMove(Moved(MoveMode::kCopyOnWrite), kPlans, "item");
  std::vector<std::byte> memory(2 * 64);
  const Job job = MakeJob(prepared, {{Role::kPool, -1, memory.data()}}, {{memory.data() + 64}});
  EXPECT_THAT(std::get<MoveJob>(job).pools, ElementsAre(memory.data(), memory.data() + 64));
  EXPECT_EQ(std::get<MoveJob>(job).reports, nullptr);
}

TEST(PreparedTest, EveryRoleIsAField) {
  EXPECT_EQ(FieldOf(Role::kPool, 3), "pools[3]");
  EXPECT_EQ(FieldOf(Role::kTensor, 1), "tensors[1].tensor");
  EXPECT_EQ(FieldOf(Role::kSlotMapping, 0), "paged_cache.slot_mapping");
  EXPECT_EQ(FieldOf(Role::kOutput, 0), "destination");
}

}  // namespace
}  // namespace phasor
