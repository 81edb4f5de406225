// SPDX-License-Identifier: Apache-2.0
// Tests names, owners, limits and lifetimes of GPU regions.
#include "server/memory/device_region_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/device_backend.h"
#include "tests/support/eventually.h"
#include "tests/support/fake_clock.h"
#include "tests/support/shared_memory.h"
#include "tests/support/status_matchers.h"

namespace phasor::memory {
namespace {

using ::phasor::testing::DeviceBackend;
using ::phasor::testing::Eventually;
using ::phasor::testing::IsOk;
using ::phasor::testing::StatusIs;
using ::testing::HasSubstr;
using Code = absl::StatusCode;

const RegionCaller kMine = {"p", "me"};
const RegionCaller kTheirs = {"q", "other"};

class DeviceRegionStoreTest : public ::testing::Test {
 protected:
  absl::Status Register(const std::string& name, const RegionCaller& caller = kMine,
                        const RegionTerms& terms = {}) {
    return store_.Register(name, {.handle = memory_->handle(), .bytes = 100}, caller, terms, {});
  }
  absl::StatusOr<std::shared_ptr<DeviceRegion>> Find(const std::string& name,
                                                     const RegionCaller& caller = kMine) {
    return store_.Find(name, caller, "path");
  }
  int64_t open() { return backend_.device().open_mappings(); }

  DeviceBackend backend_;
  engine::FakeClock clock_;
  std::shared_ptr<testing::FakeExport> memory_ = backend_.device().Export(4096);
  const std::shared_ptr<RegionNames> names_ = std::make_shared<RegionNames>(3);
  DeviceRegionStore store_{backend_.cuda().devices(),
                           {.enabled = true, .names = names_, .lease = absl::Minutes(10)},
                           &clock_};
};

TEST_F(DeviceRegionStoreTest, FindsWhatWasRegistered) {
  ASSERT_THAT(Register("a"), IsOk());
  EXPECT_EQ((*Find("a"))->place().bytes, 100);
  EXPECT_THAT(Find("b"), StatusIs(Code::kNotFound, HasSubstr("path: region 'b'")));
  EXPECT_THAT(Register("a"), StatusIs(Code::kAlreadyExists, ::testing::_));
  EXPECT_THAT(Register(""), StatusIs(Code::kInvalidArgument, HasSubstr("name: ")));
  const auto regions = store_.List(kMine);
  ASSERT_EQ(regions.size(), 1u);
  EXPECT_EQ(regions[0].name, "a");
  EXPECT_FALSE(regions[0].dirty);
}

TEST_F(DeviceRegionStoreTest, RefusesWithoutPermissionOrDevice) {
  DeviceRegionStore off(backend_.cuda().devices(), {}, &clock_);
  DeviceRegionStore none(DeviceList(), {.enabled = true}, &clock_);
  EXPECT_FALSE(off.enabled() || none.enabled());
  EXPECT_THAT(off.Register("a", {}, {}, {}, {}),
              StatusIs(Code::kFailedPrecondition, HasSubstr("--shared-memory")));
  EXPECT_THAT(none.Register("a", {}, {}, {}, {}),
              StatusIs(Code::kFailedPrecondition, HasSubstr("--backend=cuda")));
}

TEST_F(DeviceRegionStoreTest, RegionsAreCountedByOwnerAndInAll) {
  const RegionCaller one{"p", "one", 1};
  ASSERT_THAT(Register("a", one), IsOk());
  EXPECT_THAT(Register("b", one),
              StatusIs(Code::kResourceExhausted, HasSubstr("1 are held already")));
  ASSERT_THAT(Register("b"), IsOk());
  ASSERT_THAT(Register("c"), IsOk());
  EXPECT_THAT(Register("d"), StatusIs(Code::kResourceExhausted, HasSubstr("at most 3")));
  EXPECT_EQ(open(), 1) << "one handle is open once";
}

TEST_F(DeviceRegionStoreTest, WhatIsOneOwnersExistsForNobodyElse) {
  ASSERT_THAT(Register("a"), IsOk());
  EXPECT_THAT(Find("a", kTheirs), StatusIs(Code::kNotFound, ::testing::_));
  EXPECT_TRUE(store_.List(kTheirs).empty());
  EXPECT_THAT(store_.Unregister("a", kTheirs), StatusIs(Code::kNotFound, ::testing::_));
  EXPECT_THAT(Register("a", kTheirs), StatusIs(Code::kAlreadyExists, ::testing::_));
  store_.UnregisterAll(kTheirs);
  EXPECT_THAT(Find("a"), IsOk());
  EXPECT_THAT(store_.Unregister("a", kMine), IsOk());
  EXPECT_EQ(open(), 0);
}

TEST_F(DeviceRegionStoreTest, APeersRegionsGoTogether) {
  ASSERT_THAT(Register("a"), IsOk());
  ASSERT_THAT(Register("b", {"q", "me"}), IsOk());
  store_.UnregisterAll(kMine);
  EXPECT_THAT(Find("a"), StatusIs(Code::kNotFound, ::testing::_));
  EXPECT_THAT(Find("b"), IsOk());
}

TEST_F(DeviceRegionStoreTest, ARegionGoesWithItsConnection) {
  const RegionCaller stranger = {"p", ""};
  ASSERT_THAT(Register("stranger's", stranger), IsOk());
  ASSERT_THAT(Register("identity's"), IsOk());
  ASSERT_THAT(Register("everybody's", stranger, {.for_everybody = true}), IsOk());
  auto user = *Find("stranger's", stranger);
  store_.ForgetConnection("q");
  EXPECT_TRUE(store_.Has("stranger's", stranger));
  store_.ForgetConnection("p");
  EXPECT_FALSE(store_.Has("stranger's", stranger));
  EXPECT_TRUE(store_.Has("identity's", {"another connection", "me"}));
  EXPECT_TRUE(store_.Has("everybody's", {"another connection", ""}));
  EXPECT_EQ(store_.stats().pieces, 3) << "a call still uses it";
  user.reset();
  EXPECT_EQ(store_.stats().pieces, 2);
}

TEST_F(DeviceRegionStoreTest, TheMemoryOfAConnectionIsClosedWithIt) {
  ASSERT_THAT(Register("a", {"p", ""}), IsOk());
  EXPECT_EQ(open(), 1);
  store_.ForgetConnection("p");
  EXPECT_EQ(open(), 0);
}

TEST_F(DeviceRegionStoreTest, ARegionOfAConnectionThatHasClosedMeanwhileGoesAtOnce) {
  DeviceRegionStore store(
      backend_.cuda().devices(),
      {.enabled = true, .is_open = [](const std::string& peer) { return peer != "p"; }}, &clock_);
  const DevicePlace place = {.handle = memory_->handle(), .bytes = 100};
  ASSERT_THAT(store.Register("a", place, {"p", ""}, {}, {}), IsOk());
  ASSERT_THAT(store.Register("b", place, {"q", ""}, {}, {}), IsOk());
  EXPECT_EQ(store.stats().pieces, 1);
}

TEST_F(DeviceRegionStoreTest, DepartedCallersLeaveTheirNamesWhenOthersNeedThem) {
  const RegionTerms everybody = {.for_everybody = true};
  for (const char* name : {"a", "b"}) ASSERT_THAT(Register(name, kTheirs, everybody), IsOk());
  store_.ForgetConnection("q");
  ASSERT_THAT(Register("c"), IsOk());
  EXPECT_TRUE(store_.Has("a", kMine)) << "there is room for three";
  ASSERT_THAT(Register("d"), IsOk());
  EXPECT_FALSE(store_.Has("a", kMine) || store_.Has("b", kMine));
}

TEST_F(DeviceRegionStoreTest, UnregisteringWaitsForTheUsers) {
  ASSERT_THAT(Register("a"), IsOk());
  auto user = *Find("a");
  bool released = false;
  ASSERT_THAT(store_.Unregister("a", kMine, [&] { released = true; }), IsOk());
  EXPECT_THAT(Find("a"), StatusIs(Code::kNotFound, ::testing::_));
  EXPECT_FALSE(released);
  EXPECT_EQ(open(), 1);
  user.reset();
  EXPECT_TRUE(released);
  EXPECT_EQ(open(), 0);
}

TEST_F(DeviceRegionStoreTest, IsClosedWhenItsTimeIsOverWithoutAnyCall) {
  ASSERT_THAT(Register("a"), IsOk());
  ASSERT_THAT(Register("short", kMine, {.ttl = absl::Minutes(1)}), IsOk());
  clock_.Advance(absl::Seconds(59));
  EXPECT_THAT(Find("a"), IsOk());
  clock_.Advance(absl::Seconds(1));
  EXPECT_TRUE(Eventually([&] { return !store_.Has("short", kMine); }));
  clock_.Advance(absl::Seconds(598));
  EXPECT_TRUE(store_.Has("a", kMine)) << "its time began anew when it was found";
  clock_.Advance(absl::Seconds(2));
  EXPECT_TRUE(Eventually([&] { return open() == 0; }));
  EXPECT_FALSE(store_.Has("a", kMine));
}

TEST_F(DeviceRegionStoreTest, WhatWasOnALostDeviceIsDirtyUntilItIsRegisteredAgain) {
  ASSERT_THAT(Register("a"), IsOk());
  ASSERT_THAT(Register("b"), IsOk());
  backend_.Lose();
  EXPECT_TRUE(store_.List(kMine)[0].dirty);
  EXPECT_THAT(Register("c"), StatusIs(Code::kUnavailable, HasSubstr("the device is lost")));
  backend_.cuda().Retry();  // a fresh context, in which the old addresses mean nothing
  ASSERT_THAT(store_.Unregister("a", kMine), IsOk());
  ASSERT_THAT(Register("a"), IsOk());
  EXPECT_FALSE(store_.List(kMine)[0].dirty);
  EXPECT_TRUE(store_.List(kMine)[1].dirty);
  EXPECT_THAT(Find("a"), IsOk());
  EXPECT_THAT(Find("b"), StatusIs(Code::kFailedPrecondition, HasSubstr("registered again")));
  bool released = false;
  ASSERT_THAT(store_.Unregister("b", kMine, [&] { released = true; }), IsOk());
  EXPECT_TRUE(released);
}

TEST_F(DeviceRegionStoreTest, UnregisteringWaitsForUsersOfBeforeTheDeviceWasLost) {
  ASSERT_THAT(Register("a"), IsOk());
  auto user = *Find("a");
  backend_.Lose();
  Register("b").IgnoreError();  // lets go of what was lost
  bool released = false;
  ASSERT_THAT(store_.Unregister("a", kMine, [&] { released = true; }), IsOk());
  EXPECT_FALSE(released);
  user.reset();
  EXPECT_TRUE(released);
}

TEST_F(DeviceRegionStoreTest, ANameIsFreeOnceItsRegionOfTheHostsMemoryHasExpired) {
  const testing::SharedMemory memory("abc");
  RegionStoreOptions options{.enabled = true, .names = names_, .lease = absl::Minutes(1)};
  options.now = [&] { return clock_.Now(); };
  RegionStore host(options);
  ASSERT_THAT(host.Register("a", {memory.key(), 0, 3}, kMine), IsOk());
  clock_.Advance(absl::Seconds(59));
  EXPECT_THAT(Register("a"), StatusIs(Code::kAlreadyExists, ::testing::_));
  clock_.Advance(absl::Seconds(2));
  EXPECT_THAT(Register("a"), IsOk());
  // The other way round a thread of the store's frees it.
  clock_.Advance(absl::Minutes(11));
  EXPECT_TRUE(Eventually([&] { return host.Register("a", {memory.key(), 0, 3}, kMine).ok(); }));
}

TEST_F(DeviceRegionStoreTest, ManyCyclesLeaveNothingOpen) {
  for (int i = 0; i < 1000; ++i) {
    ASSERT_THAT(Register("a"), IsOk());
    ASSERT_THAT(store_.Unregister("a", kMine), IsOk());
  }
  EXPECT_EQ(open(), 0);
  EXPECT_EQ(backend_.device().calls("OpenIpc"), 1000);
}

}  // namespace
}  // namespace phasor::memory
