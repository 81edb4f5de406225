// SPDX-License-Identifier: Apache-2.0
// Named encoders resolve to the same as their specs, and wrong names get good errors.
#include "kernels/spec/encoder_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/cpu_time.h"
#include "tests/support/status_matchers.h"

namespace phasor {
namespace {

using ::testing::HasSubstr;
using testing::StatusIs;

constexpr char kConfig[] =
    R"({"model_type": "llama", "hidden_size": 256, "num_attention_heads": 4, "rope_theta": 500000.0,
        "max_position_embeddings": 2048})";

std::vector<NamedSpec> Encoders() {
  return {{"rows", {.preset = "transformer", .dim = 64}},
          {"heads", {.preset = "rope-half-split", .rope_theta = 500000.0, .head_dim = 64}},
          {"model", {.config_json = kConfig}}};
}

EncoderSet MakeSet() { return *EncoderSet::Make(Encoders()); }

TEST(EncoderSetTest, NameResolvesToTheFingerprintOfTheSpecSpelledOut) {
  const EncoderSet set = MakeSet();
  for (const NamedSpec& encoder : Encoders()) {
    const auto named = set.Apply({.encoder = encoder.name}, "spec");
    ASSERT_TRUE(named.ok()) << named.status();
    const auto resolved = ResolveSpec(*named);
    ASSERT_TRUE(resolved.ok()) << resolved.status();
    const auto spelled_out = ResolveSpec(encoder.spec);
    ASSERT_TRUE(spelled_out.ok()) << spelled_out.status();
    EXPECT_EQ(*resolved, *spelled_out) << encoder.name;
    const EncoderSet::Encoder& kept = set.encoders().find(encoder.name)->second;
    EXPECT_EQ(kept.fingerprint, Fingerprint(*spelled_out));
    EXPECT_EQ(kept.kind, spelled_out->kind);
  }
}

TEST(EncoderSetTest, FieldsOfTheRequestOverrideTheEncoder) {
  const EncoderSet set = MakeSet();
  const auto spec = set.Apply({.encoder = "model", .rope_theta = 10000.0, .head_dim = 32}, "spec");
  ASSERT_TRUE(spec.ok()) << spec.status();
  const auto expected =
      ResolveSpec({.config_json = kConfig, .rope_theta = 10000.0, .head_dim = 32});
  EXPECT_EQ(*ResolveSpec(*spec), *expected);
}

TEST(EncoderSetTest, AModelRoundsAsItsClassForParityOnly) {
  const EncoderSet set = MakeSet();
  const Spec user{.encoder = "model", .precision = Precision::kParity};
  const auto parity = ResolveSpec(*set.Apply(user, "spec"));
  ASSERT_TRUE(parity.ok()) << parity.status();
  EXPECT_EQ(*parity, *ResolveSpec({.config_json = kConfig, .precision = Precision::kParity}));
  EXPECT_EQ(set.Apply({.encoder = "model"}, "spec")->parity, std::nullopt);
}

TEST(EncoderSetTest, SpecWithoutEncoderOrWithAnotherBaseIsLeftAlone) {
  const EncoderSet set = MakeSet();
  for (const Spec& spec : {Spec{.preset = "transformer", .dim = 8},
                           Spec{.preset = "transformer", .encoder = "rows"}}) {
    EXPECT_EQ(*set.Apply(spec, "spec"), spec);
  }
}

TEST(EncoderSetTest, UnknownNameIsNotFoundAndTheNearestIsSuggested) {
  EXPECT_THAT(MakeSet().Apply({.encoder = "head"}, "item.spec").status(),
              StatusIs(absl::StatusCode::kNotFound,
                       "item.spec.encoder: no encoder named \"head\"; did you mean \"heads\"? must "
                       "be one of heads, model, rows"));
}

TEST(EncoderSetTest, ErrorListsNoMoreThanTenNames) {
  std::vector<NamedSpec> many;
  for (char c = 'a'; c <= 'z'; ++c) {
    many.push_back({std::string(3, c), {.preset = "transformer", .dim = 64}});
  }
  const absl::Status status = EncoderSet::Make(many)->Apply({.encoder = "0"}, "spec").status();
  EXPECT_THAT(std::string(status.message()), ::testing::EndsWith("iii, jjj, ..."));
}

TEST(EncoderSetTest, ErrorShowsTheBeginningOfALongName) {
  const absl::Status status =
      MakeSet().Apply({.encoder = std::string(1 << 20, 'x')}, "spec").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_LT(status.message().size(), 256u);
}

// Names of 128 characters, the longest allowed.
EncoderSet LongNames(int count) {
  std::vector<NamedSpec> encoders;
  for (int i = 0; i < count; ++i) {
    const std::string number = std::to_string(10000 + i);
    encoders.push_back(
        {number + std::string(128 - number.size(), 'n'), {.preset = "transformer", .dim = 64}});
  }
  return *EncoderSet::Make(encoders);
}

// Every item of a batch may name an encoder that does not exist.
TEST(EncoderSetTest, TimeOfTheErrorDoesNotGrowWithTheSet) {
  const auto seconds = [](int count) {
    const EncoderSet set = LongNames(count);
    const Spec wrong = {.encoder = std::string(128, '1')};
    return testing::LeastSeconds([&] { EXPECT_FALSE(set.Apply(wrong, "spec").ok()); });
  };
  EXPECT_LT(seconds(1024), 4 * seconds(32));
}

TEST(EncoderSetTest, NearestNameOfALargeSetIsSuggested) {
  std::string wrong = LongNames(1024).encoders().begin()->first;
  wrong.replace(0, 5, "10777").pop_back();
  EXPECT_THAT(LongNames(1024).Apply({.encoder = wrong}, "spec").status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("did you mean \"10777n")));
}

TEST(EncoderSetTest, EmptySetLeavesTheErrorToResolveSpec) {
  const auto spec = EncoderSet().Apply({.encoder = "rows"}, "spec");
  ASSERT_TRUE(spec.ok());
  EXPECT_THAT(ResolveSpec(*spec), StatusIs(absl::StatusCode::kNotFound, HasSubstr("\"rows\"")));
}

TEST(EncoderSetTest, RefusesNamesThatAreNone) {
  for (const std::string& name : {std::string(), std::string(".a"), std::string("a/b"),
                                  std::string("a b"), std::string("A"), std::string(129, 'a')}) {
    EXPECT_THAT(CheckEncoder({name, {.preset = "transformer", .dim = 64}}, "encoders[0]"),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("encoders[0].name: ")))
        << name;
  }
}

TEST(EncoderSetTest, RefusesSpecsThatDoNotStandForOneFingerprint) {
  auto encoders = Encoders();
  encoders[1].spec = {.preset = "transformer"};
  EXPECT_THAT(EncoderSet::Make(encoders),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("encoders[1].spec.dim: ")));
  encoders[1].spec = {.encoder = "rows"};
  EXPECT_THAT(EncoderSet::Make(encoders),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("encoders[1].spec.encoder:")));
  encoders[1].spec = {.preset = "nope"};
  EXPECT_THAT(EncoderSet::Make(encoders), StatusIs(absl::StatusCode::kNotFound, HasSubstr("nope")));
}

TEST(EncoderSetTest, RefusesOneNameTwiceAndTooMany) {
  auto encoders = Encoders();
  encoders[2].name = "rows";
  EXPECT_THAT(EncoderSet::Make(encoders),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("encoders[2].name: 'rows'")));
  EXPECT_THAT(EncoderSet::Make(std::vector<NamedSpec>(kMaxEncoders + 1, Encoders()[0])),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("at most 1024")));
}

}  // namespace
}  // namespace phasor
