// SPDX-License-Identifier: Apache-2.0
// Tests parsing a policy and finding grants.
#include "server/security/policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/text.h"
#include "tests/support/status_matchers.h"

namespace phasor::security {
namespace {

using ::testing::_;
using ::testing::HasSubstr;
using testing::StatusIs;

const std::vector<std::string>& Known() {
  static const auto* const known = new std::vector<std::string>{"a.B/One", "a.B/Two", "a.BC/One"};
  return *known;
}

absl::StatusOr<Policy> Parse(const std::string& identities) {
  return Policy::Parse(StrCat("{\"identities\": ", identities, "}"), "p", Known());
}

TEST(PolicyTest, GrantsWhatItNames) {
  const auto policy = Parse(R"([
    {"identity": "token:ci", "methods": ["a.B/One"], "max_inflight_bytes": 5, "max_regions": 0},
    {"identity": "san:spiffe://x/y", "methods": ["a.B/*"]},
    {"identity": "*", "methods": ["*"]}])");
  ASSERT_TRUE(policy.ok()) << policy.status();
  std::string name;
  const Grant* const ci = policy->Find("token:ci", &name);
  ASSERT_NE(ci, nullptr);
  EXPECT_EQ(name, "token:ci");
  EXPECT_TRUE(ci->Allows("a.B/One"));
  EXPECT_FALSE(ci->Allows("a.B/OneMore"));
  EXPECT_FALSE(ci->Allows("a.B/Two"));
  EXPECT_FALSE(ci->Allows(""));
  EXPECT_EQ(ci->max_inflight_bytes, 5);
  EXPECT_EQ(ci->max_regions, 0);
  const Grant* const service = policy->Find("san:spiffe://x/y", &name);
  EXPECT_TRUE(service->Allows("a.B/Two"));
  EXPECT_FALSE(service->Allows("a.BC/One"));
  EXPECT_EQ(service->max_inflight_bytes, kUnlimited);
  const Grant* const other = policy->Find("token:other", &name);
  EXPECT_EQ(name, "*");
  EXPECT_TRUE(other->Allows("a.BC/One"));
}

TEST(PolicyTest, WhoIsNotNamedHasNothing) {
  const auto policy = Parse(R"([{"identity": "token:ci", "methods": []}])");
  ASSERT_TRUE(policy.ok()) << policy.status();
  std::string name;
  EXPECT_EQ(policy->Find("token:c", &name), nullptr);
  EXPECT_FALSE(policy->Find("token:ci", &name)->Allows("a.B/One"));
}

TEST(PolicyTest, RefusesWhatItDoesNotUnderstand) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({})", "identities: not set; must be a list"},
      {R"([5])", "identities[0]: 5; must be an object"},
      {R"([{"identity": "ci"}])", "must be token:NAME, san:NAME, unix or *"},
      {R"([{"methods": ["*"]}])", "identity: ''"},
      {R"([{"identity": "token:"}])", "must be token:NAME"},
      {R"([{"identity": "unix", "method": []}])", "method"},
      {R"([{"identity": "unix", "methods": "*"}])", "must be a list"},
      {R"([{"identity": "unix", "methods": ["a.B/Three"]}])", "names no method of this server"},
      {R"([{"identity": "unix", "methods": ["a.B*"]}])", "names no method of this server"},
      {R"([{"identity": "unix", "methods": [""]}])", "names no method of this server"},
      {R"([{"identity": "unix", "max_regions": -1}])", "max_regions: -1; must be at least 0"},
      {R"([{"identity": "unix", "max_inflight_bytes": "1"}])", "max_inflight_bytes"},
      {R"([{"identity": "unix"}, {"identity": "unix"}])", "stands above already"},
  };
  for (const auto& [identities, message] : cases) {
    EXPECT_THAT(Parse(identities), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)))
        << identities;
  }
  EXPECT_THAT(Policy::Parse("{", "p", Known()), StatusIs(absl::StatusCode::kInvalidArgument, _));
  EXPECT_THAT(Policy::Parse(R"({"identities": [], "x": 1})", "p", Known()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("x")));
}

}  // namespace
}  // namespace phasor::security
