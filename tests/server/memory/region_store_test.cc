// SPDX-License-Identifier: Apache-2.0
// Tests names, owners and lifetimes of regions.
#include "server/memory/region_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/shared_memory.h"
#include "tests/support/status_matchers.h"

namespace phasor::memory {
namespace {

using ::phasor::testing::IsOk;
using ::phasor::testing::SharedMemory;
using ::phasor::testing::StatusIs;
using ::testing::_;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const RegionCaller kMe = {"me"};
const RegionCaller kOther = {"other"};

class RegionStoreTest : public ::testing::Test {
 protected:
  RegionStoreOptions Options() {
    RegionStoreOptions options;
    options.enabled = true;
    options.names = std::make_shared<RegionNames>(3);
    options.lease = absl::Minutes(1);
    options.now = [this] { return now_; };
    return options;
  }

  absl::Status Register(const std::string& name, const std::string& owner) {
    return store_.Register(name, {memory_.key(), 0, 3}, {owner}, {.for_everybody = true});
  }
  absl::Status RegisterMine(const std::string& name) {
    return store_.Register(name, {memory_.key(), 0, 3}, kMe);
  }

  std::vector<std::string> Names() {
    std::vector<std::string> names;
    for (const NamedRegion& region : store_.List(kMe)) names.push_back(region.name);
    return names;
  }

  const SharedMemory memory_{"abc"};
  absl::Time now_ = absl::UnixEpoch();
  RegionStore store_{Options()};
};

TEST_F(RegionStoreTest, ARegionIsFoundUnderItsName) {
  ASSERT_THAT(Register("in", "me"), IsOk());
  const auto region = store_.Find("in", kMe, "x");
  ASSERT_THAT(region, IsOk());
  EXPECT_EQ((*region)->place().key, memory_.key());
  EXPECT_THAT(store_.Find("out", kMe, "inputs[0]"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("inputs[0]: region 'out'")));
}

TEST_F(RegionStoreTest, ANameIsTakenUntilItIsUnregistered) {
  ASSERT_THAT(Register("in", "me"), IsOk());
  EXPECT_THAT(Register("in", "me"),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("already in manager")));
  EXPECT_THAT(store_.Register("in", {"/phasor_test_no_such", 0, 1}, {"me"}),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("already in manager")));
  EXPECT_THAT(store_.Unregister("in", kMe), IsOk());
  EXPECT_THAT(store_.Unregister("in", kMe),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("'in'")));
  EXPECT_THAT(Register("in", "other"), IsOk());
}

TEST_F(RegionStoreTest, UnregisteringAllLeavesOthersAlone) {
  ASSERT_THAT(Register("a", "me"), IsOk());
  ASSERT_THAT(Register("b", "other"), IsOk());
  store_.UnregisterAll(kMe);
  EXPECT_THAT(Names(), ElementsAre("b"));
}

TEST_F(RegionStoreTest, AnUnusedRegionIsForgottenWhenItsLeaseEnds) {
  ASSERT_THAT(Register("used", "me"), IsOk());
  ASSERT_THAT(Register("unused", "me"), IsOk());
  now_ += absl::Seconds(50);
  ASSERT_THAT(store_.Find("used", kMe, "x"), IsOk());
  now_ += absl::Seconds(50);
  EXPECT_THAT(Names(), ElementsAre("used"));
  EXPECT_THAT(Register("unused", "other"), IsOk());
}

TEST_F(RegionStoreTest, ARegionInUseOutlivesItsName) {
  ASSERT_THAT(Register("in", "me"), IsOk());
  const auto region = store_.Find("in", kMe, "x");
  ASSERT_THAT(region, IsOk());
  store_.UnregisterAll(kMe);
  const auto data = (*region)->At(1, 1, "x");
  ASSERT_THAT(data, IsOk());
  EXPECT_EQ(**data, std::byte{'b'});
}

TEST_F(RegionStoreTest, RegionsAreLimitedInNumber) {
  for (const char* name : {"a", "b", "c"}) ASSERT_THAT(Register(name, "me"), IsOk());
  EXPECT_THAT(Register("d", "me"),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("at most 3")));
}

TEST_F(RegionStoreTest, NothingIsOpenedUnlessItIsEnabled) {
  RegionStore store{RegionStoreOptions()};
  EXPECT_THAT(store.Register("in", {memory_.key(), 0, 3}, {"me"}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("--shared-memory")));
  EXPECT_THAT(store.List(kMe), IsEmpty());
}

TEST_F(RegionStoreTest, ARegionNeedsAName) {
  for (const size_t bytes : {size_t{0}, size_t{256}}) {
    EXPECT_THAT(Register(std::string(bytes, 'n'), "me"),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("must be 1 to 255")));
  }
}

TEST_F(RegionStoreTest, AnIdentityHoldsNoMoreThanItMay) {
  const RegionCaller one = {"peer", "token:one", 1};
  const RegionPlace place = {memory_.key(), 0, 3};
  ASSERT_THAT(store_.Register("a", place, one), IsOk());
  EXPECT_THAT(store_.Register("b", place, one),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("regions: 1 are held already; must be at most 1")));
  EXPECT_THAT(store_.Register("b", place, {"peer", "token:two", 1}), IsOk());
  EXPECT_THAT(store_.Register("c", place, {"other peer", "token:one", 0}),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("at most 0")));
  ASSERT_THAT(store_.Unregister("a", one), IsOk());
  EXPECT_THAT(store_.Register("c", place, one), IsOk());
}

TEST_F(RegionStoreTest, ARegionIsItsOwnersAlone) {
  ASSERT_THAT(RegisterMine("in"), IsOk());
  EXPECT_THAT(store_.Find("in", kOther, "x"), StatusIs(absl::StatusCode::kNotFound, _));
  EXPECT_THAT(store_.Unregister("in", kOther), StatusIs(absl::StatusCode::kNotFound, _));
  EXPECT_THAT(store_.List(kOther), IsEmpty());
  store_.UnregisterAll(kOther);
  EXPECT_THAT(store_.Find("in", kMe, "x"), IsOk());
  EXPECT_THAT(Register("in", "other"), StatusIs(absl::StatusCode::kAlreadyExists, _));
}

TEST_F(RegionStoreTest, AnIdentityIsTheOwnerWhateverItsConnection) {
  ASSERT_THAT(store_.Register("in", {memory_.key(), 0, 3}, {"peer", "token:one"}), IsOk());
  EXPECT_THAT(store_.Find("in", {"other", "token:one"}, "x"), IsOk());
  EXPECT_THAT(store_.Find("in", {"peer", "token:two"}, "x"),
              StatusIs(absl::StatusCode::kNotFound, _));
}

TEST_F(RegionStoreTest, ARegionGoesWithItsConnection) {
  const RegionPlace place = {memory_.key(), 0, 3};
  ASSERT_THAT(RegisterMine("mine"), IsOk());
  ASSERT_THAT(store_.Register("identity's", place, {"me", "token:one"}), IsOk());
  store_.ForgetConnection("other");
  EXPECT_THAT(Names(), ElementsAre("mine"));
  store_.ForgetConnection("me");
  EXPECT_THAT(Names(), IsEmpty());
  EXPECT_THAT(store_.Find("identity's", {"other", "token:one"}, "x"), IsOk());
}

TEST_F(RegionStoreTest, ARegionOfAConnectionThatHasClosedMeanwhileGoesAtOnce) {
  RegionStoreOptions options = Options();
  options.is_open = [](const std::string& peer) { return peer != "me"; };
  RegionStore store(options);
  ASSERT_THAT(store.Register("a", {memory_.key(), 0, 3}, kMe), IsOk());
  ASSERT_THAT(store.Register("b", {memory_.key(), 0, 3}, kOther), IsOk());
  EXPECT_EQ(store.stats().pieces, 1);
}

TEST_F(RegionStoreTest, DepartedCallersLeaveTheirNamesWhenOthersNeedThem) {
  for (const char* name : {"a", "b"}) ASSERT_THAT(Register(name, "gone"), IsOk());
  store_.ForgetConnection("gone");
  ASSERT_THAT(Register("c", "me"), IsOk());
  EXPECT_THAT(Names(), ElementsAre("a", "b", "c"));
  ASSERT_THAT(Register("d", "me"), IsOk());
  EXPECT_THAT(Names(), ElementsAre("c", "d"));
}

TEST_F(RegionStoreTest, OtherHostsHaveNoRegions) {
  const RegionCaller remote = {.peer = "me", .remote = true};
  EXPECT_THAT(store_.Register("a", {memory_.key(), 0, 3}, remote),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("another host")));
  ASSERT_THAT(Register("in", "me"), IsOk());
  EXPECT_THAT(store_.Find("in", remote, "x"), StatusIs(absl::StatusCode::kNotFound, _));
  EXPECT_THAT(store_.List(remote), IsEmpty());
  EXPECT_THAT(store_.Unregister("in", remote), StatusIs(absl::StatusCode::kNotFound, _));
}

TEST_F(RegionStoreTest, ATimeToLiveMayBeShorterThanTheStores) {
  const auto keep = [&](const std::string& name, absl::Duration ttl) {
    return store_.Register(name, {memory_.key(), 0, 3}, kMe, {.ttl = ttl});
  };
  ASSERT_THAT(keep("short", absl::Seconds(5)), IsOk());
  ASSERT_THAT(keep("long", absl::Hours(5)), IsOk());
  EXPECT_EQ(store_.List(kMe)[0].ttl, absl::Minutes(1));
  now_ += absl::Seconds(6);
  EXPECT_THAT(Names(), ElementsAre("long"));
  now_ += absl::Minutes(1);
  EXPECT_EQ(store_.stats().pieces, 0) << "looking at it closes what is over";
}

TEST_F(RegionStoreTest, EachEndsAtItsOwnTimeWheneverOthersWereLookedAt) {
  const auto keep = [&](const std::string& name, int64_t seconds) {
    return store_.Register(name, {memory_.key(), 0, 3}, kMe, {.ttl = absl::Seconds(seconds)});
  };
  ASSERT_THAT(keep("b", 20), IsOk());
  ASSERT_THAT(keep("c", 40), IsOk());
  now_ += absl::Seconds(10);
  EXPECT_THAT(Names(), ElementsAre("b", "c"));
  ASSERT_THAT(keep("a", 5), IsOk());
  now_ += absl::Seconds(5);
  EXPECT_THAT(Names(), ElementsAre("a", "b", "c"));
  now_ += absl::Seconds(1);
  EXPECT_THAT(Names(), ElementsAre("b", "c"));
  ASSERT_THAT(store_.Find("b", kMe, "x"), IsOk());  // until 36
  now_ += absl::Seconds(20);
  EXPECT_THAT(Names(), ElementsAre("b", "c"));
  now_ += absl::Seconds(1);
  EXPECT_THAT(Names(), ElementsAre("c"));
  now_ += absl::Seconds(4);
  EXPECT_THAT(Names(), IsEmpty());
}

TEST_F(RegionStoreTest, ReleasedIsSaidWhenTheLastUserIsDone) {
  int released = 0;
  ASSERT_THAT(RegisterMine("in"), IsOk());
  auto first = *store_.Find("in", kMe, "x");
  auto second = *store_.Find("in", kMe, "x");
  ASSERT_THAT(store_.Unregister("in", kMe, [&] { ++released; }), IsOk());
  EXPECT_THAT(store_.Find("in", kMe, "x"), StatusIs(absl::StatusCode::kNotFound, _));
  EXPECT_EQ(store_.stats().pieces, 1) << "what is still used counts";
  first.reset();
  EXPECT_EQ(released, 0);
  second.reset();
  EXPECT_EQ(released, 1);
  EXPECT_EQ(store_.stats().pieces, 0);
  EXPECT_THAT(store_.Unregister("in", kMe, [&] { ++released; }),
              StatusIs(absl::StatusCode::kNotFound, _));
  EXPECT_EQ(released, 1);
  ASSERT_THAT(RegisterMine("in"), IsOk());
  ASSERT_THAT(store_.Unregister("in", kMe, [&] { ++released; }), IsOk());
  EXPECT_EQ(released, 2) << "nobody used it";
}

TEST_F(RegionStoreTest, BytesOfAnOwnerAreBounded) {
  RegionStoreOptions options = Options();
  options.owner_limits.max_bytes = 5;
  RegionStore store(options);
  ASSERT_THAT(store.Register("a", {memory_.key(), 0, 3}, kMe), IsOk());
  EXPECT_THAT(store.Register("b", {memory_.key(), 0, 3}, kMe),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("3 bytes beside 3")));
  EXPECT_THAT(store.Register("b", {memory_.key(), 0, 3}, kOther), IsOk());
}

}  // namespace
}  // namespace phasor::memory
