// SPDX-License-Identifier: Apache-2.0
// Names, owners and leases of regions.
#include "server/regions/region_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/shared_memory.h"
#include "tests/support/status_matchers.h"

namespace phasor::regions {
namespace {

using ::phasor::testing::IsOk;
using ::phasor::testing::SharedMemory;
using ::phasor::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class RegionStoreTest : public ::testing::Test {
 protected:
  RegionStoreOptions Options() {
    RegionStoreOptions options;
    options.enabled = true;
    options.max_regions = 3;
    options.lease = absl::Minutes(1);
    options.now = [this] { return now_; };
    return options;
  }

  absl::Status Register(const std::string& name, const std::string& owner) {
    return store_.Register(name, {memory_.key(), 0, 3}, {owner});
  }

  std::vector<std::string> Names() {
    std::vector<std::string> names;
    for (const NamedRegion& region : store_.List()) names.push_back(region.name);
    return names;
  }

  const SharedMemory memory_{"abc"};
  absl::Time now_ = absl::UnixEpoch();
  RegionStore store_{Options()};
};

TEST_F(RegionStoreTest, ARegionIsFoundUnderItsName) {
  ASSERT_THAT(Register("in", "me"), IsOk());
  const auto region = store_.Find("in", "x");
  ASSERT_THAT(region, IsOk());
  EXPECT_EQ((*region)->place().key, memory_.key());
  EXPECT_THAT(store_.Find("out", "inputs[0]"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("inputs[0]: region 'out'")));
}

TEST_F(RegionStoreTest, ANameIsTakenUntilItIsUnregistered) {
  ASSERT_THAT(Register("in", "me"), IsOk());
  EXPECT_THAT(Register("in", "me"),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("already in manager")));
  EXPECT_THAT(store_.Register("in", {"/phasor_test_no_such", 0, 1}, {"me"}),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("already in manager")));
  store_.Unregister("in");
  store_.Unregister("in");  // again is no error
  EXPECT_THAT(Register("in", "other"), IsOk());
}

TEST_F(RegionStoreTest, UnregisteringAllLeavesOthersAlone) {
  ASSERT_THAT(Register("a", "me"), IsOk());
  ASSERT_THAT(Register("b", "other"), IsOk());
  store_.UnregisterAll("me");
  EXPECT_THAT(Names(), ElementsAre("b"));
}

TEST_F(RegionStoreTest, AnUnusedRegionIsForgottenWhenItsLeaseEnds) {
  ASSERT_THAT(Register("used", "me"), IsOk());
  ASSERT_THAT(Register("unused", "me"), IsOk());
  now_ += absl::Seconds(50);
  ASSERT_THAT(store_.Find("used", "x"), IsOk());
  now_ += absl::Seconds(50);
  EXPECT_THAT(Names(), ElementsAre("used"));
  EXPECT_THAT(Register("unused", "other"), IsOk());
}

TEST_F(RegionStoreTest, ARegionInUseOutlivesItsName) {
  ASSERT_THAT(Register("in", "me"), IsOk());
  const auto region = store_.Find("in", "x");
  ASSERT_THAT(region, IsOk());
  store_.UnregisterAll("me");
  std::byte byte{};
  EXPECT_THAT((*region)->Read(1, 1, &byte, "x"), IsOk());
  EXPECT_EQ(byte, std::byte{'b'});
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
  EXPECT_THAT(store.List(), IsEmpty());
}

TEST_F(RegionStoreTest, ARegionNeedsAName) {
  EXPECT_THAT(Register("", "me"), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("name")));
}

TEST_F(RegionStoreTest, AnIdentityHoldsNoMoreThanItMay) {
  const regions::RegionOwner one = {"peer", "token:one", 1};
  const RegionPlace place = {memory_.key(), 0, 3};
  ASSERT_THAT(store_.Register("a", place, one), IsOk());
  EXPECT_THAT(store_.Register("b", place, one),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("1 regions are held by token:one, must be at most 1")));
  EXPECT_THAT(store_.Register("b", place, {"peer", "token:two", 1}), IsOk());
  EXPECT_THAT(store_.Register("c", place, {"other peer", "token:one", 0}),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("at most 0")));
  store_.Unregister("a");
  EXPECT_THAT(store_.Register("c", place, one), IsOk());
}

}  // namespace
}  // namespace phasor::regions
