// SPDX-License-Identifier: Apache-2.0
// Buffers for chunks: taken, given back, grown, and missing when memory runs out.
#include "kernels/cuda/slots.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/support/fake_driver.h"

namespace phasor::cuda {
namespace {

using testing::FakeDevice;
using testing::FakeDriver;

struct SlotsFixture {
  explicit SlotsFixture(int most) : slots(&driver, most) {}
  std::shared_ptr<FakeDevice> device = std::make_shared<FakeDevice>();
  FakeDriver driver{device};
  Slots slots;
};

TEST(SlotsTest, GivenSlotsAreTakenAgain) {
  SlotsFixture f(2);
  Slot* const slot = *f.slots.Take(1000, true);
  EXPECT_GE(slot->capacity, 1000);
  f.slots.Give(slot);
  EXPECT_EQ(*f.slots.Take(1000, true), slot);
  EXPECT_EQ(f.device->calls("CreateStream"), 1);
  EXPECT_EQ(f.device->calls("Allocate"), 2);
  f.slots.Give(slot);
}

TEST(SlotsTest, NoSlotIsNullUnlessItWaits) {
  SlotsFixture f(1);
  Slot* const slot = *f.slots.Take(1, false);
  EXPECT_EQ(*f.slots.Take(1, false), nullptr);
  std::thread giver([&] { f.slots.Give(slot); });
  EXPECT_EQ(*f.slots.Take(1, true), slot);
  giver.join();
  f.slots.Give(slot);
}

TEST(SlotsTest, ASlotOfNothingHasAStreamToo) {
  SlotsFixture f(1);
  Slot* const slot = *f.slots.Take(0, true);
  EXPECT_NE(slot->stream, nullptr);
  EXPECT_GT(slot->capacity, 0);
  f.slots.Give(slot);
}

TEST(SlotsTest, GrowsAndPrefersTheSmallestThatFits) {
  SlotsFixture f(2);
  Slot* const small = *f.slots.Take(1, true);
  Slot* const large = *f.slots.Take(3 << 20, true);
  EXPECT_EQ(large->capacity, 4 << 20);
  f.slots.Give(large);
  f.slots.Give(small);
  EXPECT_EQ(*f.slots.Take(100, true), small);
  f.slots.Give(small);
  EXPECT_EQ(*f.slots.Take(2 << 20, true), large);
  f.slots.Give(large);
  EXPECT_EQ(*f.slots.Take(5 << 20, true), large) << "of those that do not fit, the largest grows";
  EXPECT_EQ(f.device->bytes(), 4 * (small->capacity + large->capacity));
  f.slots.Give(large);
}

TEST(SlotsTest, WithoutMemoryTheSlotIsEmptyAndUsableLater) {
  SlotsFixture f(1);
  f.device->FailWith([](const std::string& call, int64_t n) {
    return call == "Allocate" && n == 1 ? absl::ResourceExhaustedError("full") : absl::OkStatus();
  });
  EXPECT_EQ(f.slots.Take(1, true).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(f.device->bytes(), 0);
  const auto slot = f.slots.Take(1, true);
  ASSERT_TRUE(slot.ok());
  f.slots.Give(*slot);
}

}  // namespace
}  // namespace phasor::cuda
