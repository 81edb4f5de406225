// SPDX-License-Identifier: Apache-2.0
// Copies between the items of a call and regions that they are not computed in.
#include "server/memory/transfers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "kernels/plan/plan.h"
#include "tests/support/shared_memory.h"
#include "tests/support/status_matchers.h"

namespace phasor::memory {
namespace {

using ::phasor::testing::IsOk;
using ::phasor::testing::kInvalid;
using ::phasor::testing::SharedMemory;
using ::phasor::testing::StatusIs;
using ::testing::HasSubstr;

class TransfersTest : public ::testing::Test {
 protected:
  static std::shared_ptr<const Region> Open(const SharedMemory& memory, int64_t offset,
                                            int64_t bytes) {
    return *Region::Open({memory.key(), offset, bytes}, {});
  }
  // Items of one input and one output.
  static std::vector<engine::Item> Items(size_t count) {
    engine::Item item;
    item.inputs.resize(1);
    item.outputs.resize(1);
    return std::vector<engine::Item>(count, item);
  }
  // A result of so many items, whose only outputs are `bytes`, one after another.
  engine::Result ResultOf(size_t items, const std::string& bytes) {
    engine::Result result;
    result.buffer = pool_.Get(static_cast<int64_t>(bytes.size()));
    std::memcpy(result.buffer->data(), bytes.data(), bytes.size());
    const auto each = static_cast<int64_t>(bytes.size() / items);
    for (size_t i = 0; i < items; ++i) {
      result.items.emplace_back().outputs = {{static_cast<int64_t>(i) * each, each}};
    }
    return result;
  }

  const SharedMemory memory_{"0123456789"};
  const std::shared_ptr<const Region> region_ = Open(memory_, 1, 9);
  engine::BufferPool pool_{1 << 20};
  Transfers transfers_;
};

TEST_F(TransfersTest, InputsAreReadAndOutputsWritten) {
  transfers_.AddInput(0, 0, {region_, nullptr, 1, 3, "in"});
  transfers_.AddOutput(0, 0, {region_, nullptr, 5, 2, "out"});
  EXPECT_EQ(transfers_.bytes(), 5);
  std::vector<engine::Item> items = Items(1);
  ASSERT_THAT(transfers_.Fetch(pool_, absl::MakeSpan(items)), IsOk());
  ASSERT_EQ(PieceBytes(items[0].inputs[0].bytes), 3);
  EXPECT_EQ(std::memcmp(items[0].inputs[0].bytes[0].data(), "234", 3), 0);
  EXPECT_EQ(memory_.bytes(), "0123456789");
  engine::Result result = ResultOf(1, "XY");
  transfers_.Store(items, result);
  EXPECT_TRUE(result.items[0].status.ok());
  EXPECT_EQ(memory_.bytes(), "012345XY89");
}

TEST_F(TransfersTest, AnItemWhoseMemoryIsGoneFailsAlone) {
  const SharedMemory short_memory("abcdef");
  transfers_.AddInput(0, 0, {Open(short_memory, 0, 6), nullptr, 0, 6, "items[0]"});
  transfers_.AddInput(1, 0, {region_, nullptr, 0, 2, "items[1]"});
  short_memory.Resize(3);
  std::vector<engine::Item> items = Items(2);
  ASSERT_THAT(transfers_.Fetch(pool_, absl::MakeSpan(items)), IsOk());
  EXPECT_THAT(items[0].status, StatusIs(kInvalid, HasSubstr("items[0]: ")));
  ASSERT_TRUE(items[1].status.ok());
  EXPECT_EQ(std::memcmp(items[1].inputs[0].bytes[0].data(), "12", 2), 0);
}

TEST_F(TransfersTest, AnItemThatFailedWritesNothing) {
  transfers_.AddOutput(0, 0, {region_, nullptr, 0, 2, "out"});
  const std::vector<engine::Item> items = Items(1);
  engine::Result result = ResultOf(1, "XY");
  result.items[0].status = absl::InvalidArgumentError("no");
  transfers_.Store(items, result);
  EXPECT_EQ(memory_.bytes(), "0123456789");
}

TEST_F(TransfersTest, MemoryThatWasShrunkIsNotWrittenAndInPlaceThatIsAborted) {
  transfers_.AddOutput(0, 0, {region_, nullptr, 4, 2, "items[0].out"});
  transfers_.AddOutput(1, 0, {region_, nullptr, 6, 2, "items[1].out"});
  transfers_.NoteInPlace(1);
  memory_.Resize(4);
  const std::vector<engine::Item> items = Items(2);
  engine::Result result = ResultOf(2, "XYZW");
  transfers_.Store(items, result);
  EXPECT_THAT(result.items[0].status, StatusIs(kInvalid, HasSubstr("items[0].out: ")));
  EXPECT_THAT(result.items[1].status,
              StatusIs(absl::StatusCode::kAborted, HasSubstr("items[1].out: ")));
  EXPECT_TRUE(result.items[0].outputs.empty() && result.items[1].outputs.empty());
  EXPECT_EQ(memory_.bytes(), "0123") << "it did not grow again";
}

// What others write beside the rows of a pool while the call runs stays.
TEST_F(TransfersTest, OfAPoolOnlyTheRowsThatWereMovedGoBack) {
  MoveRequest request{.pools = {4 * 16},
                      .layouts = {{.pages = 4, .heads = 1, .head_dim = 8}},
                      .specs = {{.spec = {.preset = "rope-half-split", .head_dim = 8}}},
                      .layers = {{.spec = 0}},
                      .groups = {{.slots = {.slots = {0, 1},
                                            .to_slots = {2, 3},
                                            .from_positions = {1, 2},
                                            .positions = {3, 4}}}}};
  request.groups[0].slots.to_slots = {3, 2};
  const SharedMemory memory("#" + std::string(64, 'o'));
  const RegionPart part{Open(memory, 1, 64), nullptr, 0, 64, "pool"};
  std::vector<engine::Item> items;
  items.emplace_back(Prepared(*PrepareMove(request, CompilePlan, "item")));
  transfers_.AddInput(0, 0, part);
  transfers_.AddOutput(0, 0, part);
  ASSERT_THAT(transfers_.Fetch(pool_, absl::MakeSpan(items)), IsOk());
  const Region& other = *part.host;
  ASSERT_THAT(
      other.Write(0, 32, reinterpret_cast<const std::byte*>(std::string(32, 'w').data()), "other"),
      IsOk());
  engine::Result result = ResultOf(1, std::string(64, 'm'));
  transfers_.Store(items, result);
  EXPECT_THAT(result.items[0].status, IsOk());
  EXPECT_EQ(memory.bytes(), "#" + std::string(32, 'w') + std::string(32, 'm'));
}

TEST_F(TransfersTest, APartOfALargeRegionTakesItsOwnSize) {
  const SharedMemory large("x");
  const int64_t size = int64_t{64} << 30;
  large.Resize(size);
  transfers_.AddInput(0, 0, {Open(large, 0, size), nullptr, size - 4096, 4096, "in"});
  EXPECT_EQ(transfers_.bytes(), 4096);
  std::vector<engine::Item> items = Items(1);
  ASSERT_THAT(transfers_.Fetch(pool_, absl::MakeSpan(items)), IsOk());
  EXPECT_EQ(items[0].inputs[0].bytes[0][4095], std::byte{0});
}

TEST_F(TransfersTest, NoMemoryIsTheAnswerOfTheCall) {
  transfers_.AddInput(0, 0, {region_, nullptr, 0, int64_t{1} << 60, "in"});
  std::vector<engine::Item> items = Items(1);
  EXPECT_THAT(transfers_.Fetch(pool_, absl::MakeSpan(items)),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("no memory")));
}

}  // namespace
}  // namespace phasor::memory
