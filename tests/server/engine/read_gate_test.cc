// SPDX-License-Identifier: Apache-2.0
// Tests who may read while the byte budget has little room.
#include "server/engine/read_gate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace phasor::engine {
namespace {

class TestReader final : public Reader {
 public:
  bool waits() const override { return waits_; }
  void Read(Permit room) override { rooms_.push_back(std::move(room)); }
  void StopWaiting() { waits_ = false; }
  size_t reads() const { return rooms_.size(); }
  int64_t room() const { return rooms_.back().bytes(); }

 private:
  bool waits_ = true;
  std::vector<Permit> rooms_;
};

class ReadGateTest : public ::testing::Test {
 protected:
  // Takes bytes of the budget.
  void Spend(int64_t bytes) { spent_.emplace(*admission_.Take(bytes)); }
  void GiveBack() { spent_.reset(); }

  Admission admission_{800};
  ReadGate gate_{&admission_};
  std::optional<Permit> spent_;
  std::shared_ptr<TestReader> first_ = std::make_shared<TestReader>();
  std::shared_ptr<TestReader> second_ = std::make_shared<TestReader>();
};

TEST_F(ReadGateTest, AnEighthOfTheBudgetIsEnoughBesideTheMessage) {
  Spend(600);
  EXPECT_TRUE(gate_.MayRead(first_, 100));
  EXPECT_FALSE(gate_.MayRead(first_, 101));
  EXPECT_EQ(gate_.waiting(), 1);
  EXPECT_EQ(admission_.taken_bytes(), 600);
}

TEST_F(ReadGateTest, RoomIsHeldForThoseThatWaitedInOrder) {
  Spend(800);
  ASSERT_FALSE(gate_.MayRead(first_, 150));
  ASSERT_FALSE(gate_.MayRead(second_, 80));
  gate_.Look();
  EXPECT_EQ(first_->reads() + second_->reads(), 0u);
  GiveBack();
  Spend(700);
  gate_.Look();  // 100 are free: enough for the second, whose turn it is not
  EXPECT_EQ(first_->reads() + second_->reads(), 0u);
  GiveBack();
  Spend(600);
  gate_.Look();
  EXPECT_EQ(first_->reads(), 1u);
  EXPECT_EQ(first_->room(), 150);
  EXPECT_EQ(second_->reads(), 0u);
  EXPECT_EQ(admission_.taken_bytes(), 750);
  first_.reset();  // what it held is there for the second
  gate_.Look();
  EXPECT_EQ(second_->room(), 80);
  EXPECT_EQ(gate_.waiting(), 0);
}

TEST_F(ReadGateTest, WhoIsGoneIsPassedOver) {
  Spend(800);
  ASSERT_FALSE(gate_.MayRead(first_, 700));
  ASSERT_FALSE(gate_.MayRead(second_, 80));
  first_.reset();
  GiveBack();
  Spend(700);
  gate_.Look();
  EXPECT_EQ(second_->reads(), 1u);
}

// However long somebody waits before them.
TEST_F(ReadGateTest, WhoWaitsNoMoreKeepsNoPlace) {
  Spend(800);
  ASSERT_FALSE(gate_.MayRead(first_, 700));
  ASSERT_FALSE(gate_.MayRead(second_, 80));
  auto gone = std::make_shared<TestReader>();
  ASSERT_FALSE(gate_.MayRead(gone, 80));
  second_->StopWaiting();
  EXPECT_EQ(gate_.waiting(), 3);
  gone.reset();
  gate_.Look();
  EXPECT_EQ(gate_.waiting(), 1);
  EXPECT_EQ(first_->reads(), 0u);
  EXPECT_EQ(second_->room(), 0) << "told, but nothing is kept free for it";
  EXPECT_EQ(admission_.taken_bytes(), 800);
}

TEST_F(ReadGateTest, ASmallerBudgetShutsNobodyOut) {
  Spend(800);
  ASSERT_FALSE(gate_.MayRead(first_, 700));
  admission_.SetLimit(400);
  GiveBack();
  gate_.Look();
  EXPECT_EQ(first_->room(), 200);
}

TEST_F(ReadGateTest, OnceOpenAllMayRead) {
  Spend(800);
  ASSERT_FALSE(gate_.MayRead(first_, 80));
  gate_.Open();
  EXPECT_EQ(first_->room(), 0);
  EXPECT_TRUE(gate_.MayRead(second_, 80));
}

}  // namespace
}  // namespace phasor::engine
