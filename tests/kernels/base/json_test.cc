// SPDX-License-Identifier: Apache-2.0
// JSON from outside: limits, duplicate keys, types, and the errors with their paths.
#include "kernels/base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "tests/support/cpu_time.h"
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
                    "bytes of JSON; must be at most");
  const auto nested = [](int depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_THAT(ParseJson(nested(kMaxJsonDepth), "it"), IsOk());
  ExpectJsonRefused(nested(kMaxJsonDepth + 1), "nested deeper than 32");
  ExpectJsonRefused(nested(500000), "nested deeper than 32");
}

// An object or a list with `count` members or elements.
std::string JsonObjectOf(size_t count) {
  std::string text = "{";
  for (size_t i = 0; i < count; ++i) text += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\":1";
  return text + "}";
}
std::string JsonListOf(size_t count, const std::string& element) {
  std::string text = "[";
  for (size_t i = 0; i < count; ++i) text += (i == 0 ? "" : ",") + element;
  return text + "]";
}

TEST(JsonTest, RefusesMoreValuesThanItsLimit) {
  const size_t inside = kMaxJsonValues - 1;  // in the object or list, which is a value too
  EXPECT_THAT(ParseJson(JsonObjectOf(inside), "it"), IsOk());
  EXPECT_THAT(ParseJson(JsonListOf(inside, "[]"), "it"), IsOk());
  const std::string refusal =
      "it: more than 65536 values; must be at most as many; leave out what is not read";
  ExpectJsonRefused(JsonObjectOf(inside + 1), refusal);
  ExpectJsonRefused(JsonListOf(inside + 1, "1"), refusal);
  ExpectJsonRefused(JsonListOf(250, JsonObjectOf(300)), refusal);
  // Text after the limit is not read.
  ExpectJsonRefused(JsonListOf(inside + 1, "1") + "}", refusal);
}

TEST(JsonTest, TimeToParseGrowsWithTheKeysNotTheirSquare) {
  const auto seconds = [](size_t keys) {
    const std::string text = JsonObjectOf(keys);
    return testing::LeastSeconds([&] { EXPECT_THAT(ParseJson(text, "it"), IsOk()); });
  };
  EXPECT_LT(seconds(40000), testing::kMostGrowth * seconds(10000));
}

TEST(JsonTest, TimeToReadAListDoesNotGrowWithItsPath) {
  const Json list = *ParseJson(JsonListOf(2000, "1"), "it");
  const auto seconds = [&](size_t path_bytes) {
    const std::string path(path_bytes, 'x');
    std::vector<int64_t> out;
    return testing::LeastSeconds([&] { EXPECT_THAT(ReadJson(list, path, &out), IsOk()); });
  };
  EXPECT_LT(seconds(100000), testing::kMostGrowth * seconds(10));
}

TEST(JsonTest, ErrorsShowTheBeginningOfALongKey) {
  const std::string key(500000, 'k');
  const Json json = *ParseJson("{\"" + key + "\": 1}", "it");
  EXPECT_EQ(JsonObject(json, "it").PathOf(key), "it." + std::string(61, 'k') + "...");
  ExpectJsonRefused("{\"" + key + "\": 1, \"" + key + "\": 2}", "kkk...\" twice in one object");
  EXPECT_LT(UnknownKey("it", key, {"known"}).message().size(), 200u);
}

// Statuses of batch items are protobuf strings, which must be UTF-8.
TEST(JsonTest, ErrorsCutBetweenTheCharactersOfAKey) {
  std::string key = "x";
  while (key.size() < 100) key += "\u00e9";
  EXPECT_THAT(std::string(UnknownKey("it", key, {"known"}).message()),
              StartsWith("it." + key.substr(0, 61) + "...: no such field"));
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
      StatusIs(absl::StatusCode::kInvalidArgument, "p: 1.5; must be an integer of 64 bits"));
  EXPECT_FALSE(ReadJson(Json(uint64_t{1} << 63), "p", &integer).ok());
  EXPECT_FALSE(ReadJson(Json(int64_t{1} << 31), "p", &small).ok());
  EXPECT_FALSE(ReadJson(Json(1), "p", &flag).ok());
  EXPECT_FALSE(ReadJson(Json("1"), "p", &number).ok());
  EXPECT_FALSE(ReadJson(Json(1), "p", &text).ok());
  EXPECT_FALSE(ReadJson(Json(1), "p", &list).ok());
  EXPECT_THAT(ReadJson(Json::parse("[1, true]"), "p", &list),
              StatusIs(absl::StatusCode::kInvalidArgument, StartsWith("p[1]: true; must be")));
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
