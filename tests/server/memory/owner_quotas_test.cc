// SPDX-License-Identifier: Apache-2.0
// Tests per-owner quotas.
#include "server/memory/owner_quotas.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>

#include "tests/support/status_matchers.h"

namespace phasor::memory {
namespace {

using ::phasor::testing::IsOk;
using ::phasor::testing::StatusIs;
using ::testing::HasSubstr;

constexpr auto kExhausted = absl::StatusCode::kResourceExhausted;

TEST(OwnerQuotasTest, PiecesAndBytesOfOneOwnerAreBoundedAndGivenBack) {
  const auto quotas =
      std::make_shared<OwnerQuotas>(OwnerLimits{.max_bytes = 10, .max_pieces = 2}, "lease");
  std::optional<OwnerQuotas::Share> one = *quotas->Take("me", 4);
  EXPECT_THAT(
      quotas->Take("me", 7),
      StatusIs(kExhausted, HasSubstr("lease: 7 bytes beside 4; must be at most 10 together")));
  const auto two = quotas->Take("me", 6);
  ASSERT_THAT(two, IsOk());
  EXPECT_THAT(quotas->Take("me", 0),
              StatusIs(kExhausted, HasSubstr("2 are held already; must be at most 2")));
  EXPECT_THAT(quotas->Take("other", 10), IsOk());
  EXPECT_EQ(quotas->all().pieces, 2);
  EXPECT_EQ(quotas->all().bytes, 10);
  one.reset();
  EXPECT_THAT(quotas->Take("me", 4), IsOk());
}

TEST(OwnerQuotasTest, AnOwnerMayBeAllowedLess) {
  const auto quotas = std::make_shared<OwnerQuotas>(OwnerLimits{}, "regions");
  EXPECT_THAT(quotas->Take("me", 1, 0), StatusIs(kExhausted, HasSubstr("at most 0")));
  EXPECT_EQ(quotas->all().pieces, 0);
}

TEST(OwnerQuotasTest, AShareOutlivesWhoGaveIt) {
  auto quotas = std::make_shared<OwnerQuotas>(OwnerLimits{}, "lease");
  const std::weak_ptr<OwnerQuotas> seen = quotas;
  std::optional<OwnerQuotas::Share> share = *quotas->Take("me", 1);
  quotas.reset();
  ASSERT_FALSE(seen.expired()) << "a share keeps the quotas that it will be given back to";
  EXPECT_EQ(seen.lock()->all().bytes, 1);
  share.reset();
  EXPECT_TRUE(seen.expired());
}

}  // namespace
}  // namespace phasor::memory
