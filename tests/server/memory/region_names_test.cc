// SPDX-License-Identifier: Apache-2.0
// Tests reserving and freeing names of regions.
#include "server/memory/region_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

namespace phasor::memory {
namespace {

using ::testing::HasSubstr;

TEST(RegionNamesTest, ANameIsTakenUntilItIsLetGo) {
  const auto names = std::make_shared<RegionNames>();
  {
    const auto name = names->Take("q");
    ASSERT_TRUE(name.ok()) << name.status();
    EXPECT_EQ(names->Take("q").status().code(), absl::StatusCode::kAlreadyExists);
    EXPECT_TRUE(names->Take("k").ok());
  }
  EXPECT_TRUE(names->Take("q").ok());
}

TEST(RegionNamesTest, AMovedNameIsStillTaken) {
  const auto names = std::make_shared<RegionNames>();
  std::optional<RegionNames::Name> kept(*names->Take("q"));
  EXPECT_FALSE(names->Take("q").ok());
  kept.reset();
  EXPECT_TRUE(names->Take("q").ok());
}

TEST(RegionNamesTest, AreOneToManyBytesAndNotTooMany) {
  const auto names = std::make_shared<RegionNames>(1);
  for (const size_t bytes : {size_t{0}, kMaxRegionNameBytes + 1}) {
    const absl::Status status = names->Take(std::string(bytes, 'a')).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("must be 1 to 255"));
  }
  const auto only = names->Take(std::string(kMaxRegionNameBytes, 'a'));
  ASSERT_TRUE(only.ok());
  EXPECT_EQ(names->Take("b").status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(RegionNamesTest, ANameMayOutliveTheSet) {
  auto names = std::make_shared<RegionNames>();
  const auto name = names->Take("q");
  names.reset();
  EXPECT_TRUE(name.ok());  // given back to a set that it keeps
}

}  // namespace
}  // namespace phasor::memory
