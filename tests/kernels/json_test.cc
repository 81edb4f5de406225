// SPDX-License-Identifier: Apache-2.0
#include "kernels/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "tests/support/status_matchers.h"

namespace phasor {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using testing::IsOk;
using ::testing::StartsWith;
using testing::StatusIs;

void ExpectJsonRefused(const std::string& text, const std::string& message) {
  EXPECT_THAT(ParseJson(text, "it"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)))
      << text.substr(0, 80);
}

TEST(JsonTest, RefusesWhatIsNotJson) {
  for (const char* text :
       {"", "{", "{]", "NaN", "[Infinity]", "{\"a\": 1,}", "1e999", "\xff", "1 2"}) {
    ExpectJsonRefused(text, "it: not JSON");
  }
}

TEST(JsonTest, RefusesAKeyTwiceInOneObject) {
  ExpectJsonRefused(R"({"a": 1, "b": {"c": 1, "c": 2}})", "it: key \"c\" twice");
  EXPECT_THAT(ParseJson(R"({"a": {"a": 1}, "b": [{"a": 1}, {"a": 1}]})", "it"), IsOk());
}

TEST(JsonTest, RefusesMoreThanItsLimits) {
  ExpectJsonRefused("\"" + std::string(kMaxJsonBytes, 'x') + "\"",
                    "bytes of JSON, must be at most");
  const auto nested = [](int depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_THAT(ParseJson(nested(kMaxJsonDepth), "it"), IsOk());
  ExpectJsonRefused(nested(kMaxJsonDepth + 1), "nested deeper than 32");
  ExpectJsonRefused(nested(500000), "nested deeper than 32");
}

TEST(JsonTest, KeepsTheOrderOfKeysAndEveryBitOfNumbers) {
  const auto json = ParseJson(R"({"z": 0.30000000000000004, "a": 9223372036854775807})", "it");
  ASSERT_THAT(json, IsOk());
  EXPECT_EQ(json->begin().key(), "z");
  double z = 0;
  int64_t a = 0;
  ASSERT_THAT(ReadJson((*json)["z"], "z", &z), IsOk());
  ASSERT_THAT(ReadJson((*json)["a"], "a", &a), IsOk());
  EXPECT_EQ(z, 0.30000000000000004);
  EXPECT_EQ(a, INT64_MAX);
}

TEST(JsonTest, RefusesValuesOfAnotherType) {
  int64_t integer = 0;
  int small = 0;
  bool flag = false;
  double number = 0;
  std::string text;
  std::vector<int64_t> list;
  EXPECT_THAT(
      ReadJson(Json(1.5), "p", &integer),
      StatusIs(absl::StatusCode::kInvalidArgument, "p: 1.5, must be an integer of 64 bits"));
  EXPECT_FALSE(ReadJson(Json(uint64_t{1} << 63), "p", &integer).ok());
  EXPECT_FALSE(ReadJson(Json(int64_t{1} << 31), "p", &small).ok());
  EXPECT_FALSE(ReadJson(Json(1), "p", &flag).ok());
  EXPECT_FALSE(ReadJson(Json("1"), "p", &number).ok());
  EXPECT_FALSE(ReadJson(Json(1), "p", &text).ok());
  EXPECT_FALSE(ReadJson(Json(1), "p", &list).ok());
  EXPECT_THAT(ReadJson(Json::parse("[1, true]"), "p", &list),
              StatusIs(absl::StatusCode::kInvalidArgument, StartsWith("p[1]: true, must be")));
  EXPECT_THAT(ReadJson(Json::parse("[1, 2]"), "p", &list), IsOk());
  EXPECT_THAT(list, ElementsAre(1, 2));
}

TEST(JsonTest, NamesTheNearestKnownKeyAndCutsLongValues) {
  EXPECT_THAT(
      UnknownKey("spec", "rope_thta", {"dim", "rope_theta", "rotary_dim"}),
      StatusIs(absl::StatusCode::kInvalidArgument, EndsWith("nearest known one is rope_theta")));
  const absl::Status wrong = WrongJson("p", Json(std::string(10000, 'x') + "\xff"), "a number");
  EXPECT_LT(wrong.message().size(), 120u);
}

TEST(JsonTest, NullMembersCountAsAbsent) {
  const Json json = Json::parse(R"({"a": null, "b": 2})");
  const JsonObject object(json, "o");
  std::optional<int64_t> value;
  ASSERT_THAT(object.Read("a", &value), IsOk());
  EXPECT_EQ(value, std::nullopt);
  ASSERT_THAT(object.Read("b", &value), IsOk());
  EXPECT_EQ(value, 2);
  EXPECT_EQ(object.Find("c"), nullptr);
  EXPECT_EQ(object.PathOf("b"), "o.b");
}

}  // namespace
}  // namespace phasor
