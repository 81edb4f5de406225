// SPDX-License-Identifier: Apache-2.0
// Tests which identity a caller gets, and what it allows.
#include "server/security/rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/sha256.h"
#include "kernels/base/text.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace phasor::security {
namespace {

using ::testing::_;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::StatusIs;

constexpr char kMethod[] = "a.B/One";

class RulesTest : public ::testing::Test {
 protected:
  std::shared_ptr<const Rules> Load(bool tokens, bool certificates, const std::string& policy = "",
                                    const Rules* before = nullptr) {
    dir_.Write("tokens", StrCat("ci sha256:", Sha256Hex(token_), "\n"));
    dir_.Write("policy", StrCat("{\"identities\": [", policy, "]}"));
    const RuleFiles files = {tokens ? dir_.path() + "/tokens" : "",
                             policy.empty() ? "" : dir_.path() + "/policy", certificates};
    const std::vector<std::string> known = {kMethod, "a.B/Two"};
    auto rules = Rules::Load(files, known, before);
    EXPECT_TRUE(rules.ok()) << rules.status();
    return rules.value_or(nullptr);
  }
  Presented WithToken(const std::string& value) const { return {.authorization = {value}}; }

  const std::string token_ = std::string(kMinTokenBytes, 't');
  const testing::TempDir dir_;
};

TEST_F(RulesTest, WithoutTokensAndCertificatesEverybodyMayEverything) {
  const Decision decision = Load(false, false)->Decide({}, kMethod);
  EXPECT_TRUE(decision.status.ok());
  EXPECT_EQ(decision.identity, "");
  EXPECT_EQ(decision.quota, nullptr);
}

TEST_F(RulesTest, AGoodTokenIsItsName) {
  const auto rules = Load(true, false);
  for (const char* scheme : {"Bearer ", "bearer ", "BEARER "}) {
    const Decision decision = rules->Decide(WithToken(scheme + token_), kMethod);
    EXPECT_TRUE(decision.status.ok()) << decision.status;
    EXPECT_EQ(decision.identity, "token:ci");
  }
}

TEST_F(RulesTest, BadTokensAreUnauthenticatedAndNotRepeated) {
  const auto rules = Load(true, true);
  const std::string other(kMinTokenBytes, 'o');
  for (const std::string& value : {"Bearer " + other, "Bearer  " + token_, "Bearer " + token_ + " ",
                                   "Basic " + token_, token_, std::string("Bearer "), std::string(),
                                   std::string("Bearer\0", 7) + token_, "Bearer@" + token_}) {
    Presented caller = WithToken(value);
    caller.certificate = true;  // does not make up for it
    caller.unix_socket = true;
    const Decision decision = rules->Decide(caller, kMethod);
    EXPECT_THAT(decision.status, StatusIs(absl::StatusCode::kUnauthenticated, _)) << value;
    EXPECT_THAT(std::string(decision.status.message()), Not(HasSubstr(other)));
    EXPECT_THAT(std::string(decision.status.message()), Not(HasSubstr(token_)));
  }
  Presented twice = WithToken("Bearer " + token_);
  twice.authorization.push_back("Bearer " + token_);
  EXPECT_THAT(rules->Decide(twice, kMethod).status,
              StatusIs(absl::StatusCode::kUnauthenticated, HasSubstr("given twice")));
  EXPECT_THAT(rules->Decide({}, kMethod).status,
              StatusIs(absl::StatusCode::kUnauthenticated, HasSubstr("must be 'Bearer TOKEN'")));
}

TEST_F(RulesTest, ACertificateIsItsFirstName) {
  Presented caller;
  caller.certificate = true;
  caller.names = {"spiffe://x", "b.example.org"};
  for (const bool tokens : {false, true}) {
    const Decision decision = Load(tokens, true)->Decide(caller, kMethod);
    EXPECT_TRUE(decision.status.ok()) << decision.status;
    EXPECT_EQ(decision.identity, "san:spiffe://x");
  }
  EXPECT_THAT(Load(true, false)->Decide(caller, kMethod).status,
              StatusIs(absl::StatusCode::kUnauthenticated, _));
}

TEST_F(RulesTest, UnixSocketsStandForTheirPermissionsUnlessThereAreTokens) {
  const Presented caller = {.unix_socket = true};
  EXPECT_EQ(Load(false, true)->Decide(caller, kMethod).identity, "unix");
  EXPECT_THAT(Load(true, true)->Decide(caller, kMethod).status,
              StatusIs(absl::StatusCode::kUnauthenticated, _));
  EXPECT_THAT(Load(false, true)->Decide({}, kMethod).status,
              StatusIs(absl::StatusCode::kUnauthenticated, HasSubstr("client certificate")));
}

TEST_F(RulesTest, ThePolicyDecidesWhatAnIdentityMay) {
  const auto rules = Load(true, true, R"({"identity": "token:ci", "methods": ["a.B/One"]},
      {"identity": "san:b.example.org", "methods": ["*"], "max_regions": 3})");
  const Presented ci = WithToken("Bearer " + token_);
  EXPECT_TRUE(rules->Decide(ci, kMethod).status.ok());
  EXPECT_THAT(
      rules->Decide(ci, "a.B/Two").status,
      StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("token:ci may not call a.B/Two")));
  Presented named = {.certificate = true, .names = {"a.example.org", "b.example.org"}};
  const Decision decision = rules->Decide(named, "a.B/Two");
  EXPECT_TRUE(decision.status.ok()) << decision.status;
  EXPECT_EQ(decision.identity, "san:b.example.org");
  EXPECT_EQ(decision.max_regions, 3);
  named.names = {"token:ci"};  // a certificate cannot pose as a token
  EXPECT_THAT(rules->Decide(named, kMethod).status,
              StatusIs(absl::StatusCode::kPermissionDenied, _));
  named.names = {};
  EXPECT_THAT(rules->Decide(named, kMethod).status,
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("a caller without a name")));
}

TEST_F(RulesTest, TheFirstNameWithAGrantOfItsOwnWinsOverThatOfEverybody) {
  const auto rules = Load(false, true, R"({"identity": "*", "methods": ["a.B/One"]},
      {"identity": "san:b", "methods": ["a.B/Two"], "max_regions": 3},
      {"identity": "san:c", "methods": ["a.B/One"], "max_regions": 5})");
  Presented named = {.certificate = true};
  for (const std::vector<std::string>& names :
       {std::vector<std::string>{"a", "b", "c"}, {"b", "c", "a"}, {"b", "a"}}) {
    named.names = names;
    const Decision decision = rules->Decide(named, "a.B/Two");
    EXPECT_TRUE(decision.status.ok()) << decision.status;
    EXPECT_EQ(decision.identity, "san:b");
    EXPECT_EQ(decision.max_regions, 3);
  }
  named.names = {"x", "y"};
  EXPECT_EQ(rules->Decide(named, kMethod).identity, "san:x");
}

TEST_F(RulesTest, QuotasGoOnCountingUnlessTheirBoundsChange) {
  const std::string policy = R"({"identity": "token:ci", "methods": ["*"], "max_inflight_bytes": )";
  const Presented ci = WithToken("Bearer " + token_);
  const auto first = Load(true, false, policy + "100}");
  const Decision decision = first->Decide(ci, kMethod);
  ASSERT_NE(decision.quota, nullptr);
  const auto permit = decision.quota->Take(80);
  ASSERT_TRUE(permit.ok());
  const auto same = Load(true, false, policy + "100}", first.get());
  EXPECT_THAT(same->Decide(ci, kMethod).quota->Take(21),
              StatusIs(absl::StatusCode::kUnavailable, _));
  const auto other = Load(true, false, policy + "200}", same.get());
  EXPECT_TRUE(other->Decide(ci, kMethod).quota->Take(200).ok());
  EXPECT_THAT(other->Decide(ci, kMethod).quota->Take(201),
              StatusIs(absl::StatusCode::kResourceExhausted, _));
}

TEST_F(RulesTest, FilesThatAreWrongAreNamed) {
  dir_.Write("bad", "x");
  EXPECT_THAT(Rules::Load({.tokens = dir_.path() + "/bad"}, {}, nullptr),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("tokens-file: ")));
  EXPECT_THAT(Rules::Load({.policy = dir_.path() + "/bad"}, {}, nullptr),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("policy-file: ")));
  EXPECT_THAT(Rules::Load({.tokens = dir_.path() + "/none"}, {}, nullptr),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("tokens-file: ")));
}

}  // namespace
}  // namespace phasor::security
