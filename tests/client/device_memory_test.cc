// SPDX-License-Identifier: Apache-2.0
// Tests views and release of registered GPU memory.
#include "client/device_memory.h"

#include <gtest/gtest.h>

#include "client/position_list.h"

namespace phasor {
namespace {

const TensorDesc kDesc = {Dtype::kFloat32, {2, 4}, {}};

class DeviceMemoryTest : public ::testing::Test {
 protected:
  DeviceMemory Make(absl::Status answer = absl::OkStatus()) {
    return DeviceMemory(std::make_shared<DeviceRegistration>(
        "kv", 100, nullptr, [this, answer](absl::Duration timeout) {
          ++ended_;
          timeout_ = timeout;
          return answer;
        }));
  }

  int ended_ = 0;
  absl::Duration timeout_;
};

TEST_F(DeviceMemoryTest, ViewsSayWhereTheyAreAndHowMuchIsThere) {
  const DeviceMemory memory = Make();
  const TensorView view = memory.View(kDesc, 60);
  EXPECT_EQ(view.desc.shape, kDesc.shape);
  EXPECT_EQ(view.data, nullptr);
  EXPECT_EQ(view.bytes, 40);
  EXPECT_EQ(view.device.offset_bytes, 60);
  ASSERT_NE(view.device.memory, nullptr);
  EXPECT_EQ(view.device.memory->name(), "kv");
  EXPECT_EQ(view.device, memory.View(kDesc, 60).device);
  EXPECT_FALSE(view.device == memory.View(kDesc).device);
  for (const int64_t outside : {int64_t{-1}, int64_t{101}, INT64_MIN, INT64_MAX}) {
    EXPECT_EQ(memory.View(kDesc, outside).bytes, 0);
  }
}

TEST_F(DeviceMemoryTest, APoolIsWhatIsLeftOfIt) {
  const DeviceMemory memory = Make();
  const KeyPool pool = memory.Pool(60);
  EXPECT_TRUE(pool.on_device());
  EXPECT_EQ(pool.device(), memory.View(kDesc, 60).device);
  EXPECT_EQ(pool.bytes(), 40);
  EXPECT_TRUE(pool.memory().empty());
  EXPECT_EQ(memory.Pool().bytes(), 100);
  EXPECT_EQ(memory.Pool(101).bytes(), 0);
  std::byte here[3];
  EXPECT_FALSE(KeyPool(here).on_device());
  EXPECT_EQ(KeyPool(here).bytes(), 3);
}

TEST_F(DeviceMemoryTest, ItsOwnerEndsItOnce) {
  {
    DeviceMemory memory = Make();
    DeviceMemory moved = std::move(memory);
    EXPECT_EQ(moved.size(), 100);
    EXPECT_EQ(ended_, 0);
    moved = Make();
    EXPECT_EQ(ended_, 1) << "the one before";
    moved = std::move(*&moved);
    EXPECT_EQ(ended_, 1);
  }
  EXPECT_EQ(ended_, 2);
}

TEST_F(DeviceMemoryTest, ReleaseSaysHowItEnded) {
  DeviceMemory memory = Make(absl::NotFoundError("gone"));
  const TensorView view = memory.View(kDesc);
  EXPECT_FALSE(view.device.memory->ended());
  EXPECT_EQ(memory.Release(absl::Seconds(3)), absl::NotFoundError("gone"));
  EXPECT_EQ(timeout_, absl::Seconds(3));
  EXPECT_TRUE(view.device.memory->ended()) << "the view knows";
  EXPECT_EQ(memory.size(), 0);
  EXPECT_TRUE(memory.Release().ok());
  EXPECT_EQ(ended_, 1);
}

TEST_F(DeviceMemoryTest, PositionsKnowThatTheyLieThere) {
  EXPECT_TRUE(PositionList(Make().View({Dtype::kInt64, {4}, {}})).on_device());
  EXPECT_FALSE(PositionList({1, 2}).on_device());
}

}  // namespace
}  // namespace phasor
