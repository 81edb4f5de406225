// SPDX-License-Identifier: Apache-2.0
// Keys about rotation: which are recognized, and which are refused for which models.
#include "kernels/spec/config_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/support/status_matchers.h"

namespace phasor {
namespace {

using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusIs;

absl::Status KeysOf(const std::string& text, const std::string& model_type, bool generic = false) {
  const Json json = Json::parse(text);
  const ConfigModel* const model = FindConfigModel(model_type);
  return CheckConfigKeys(JsonObject(json, "config"),
                         model == nullptr ? GenericConfigModel(false) : *model, generic);
}

TEST(ConfigKeysTest, NamesSayWhatIsAboutRotation) {
  for (const char* key : {"rope_theta", "swa_rope_theta", "no_rope_layers", "use_alibi", "mscale"})
    EXPECT_TRUE(IsAboutRotation(key)) << key;
  for (const char* key : {"", "head_dim", "hidden_size", "rop", "position"})
    EXPECT_FALSE(IsAboutRotation(key)) << key;
}

TEST(ConfigKeysTest, AKeyThatIsNotUnderstoodIsAnErrorUnlessNull) {
  EXPECT_THAT(KeysOf(R"({"swa_rope_theta": 5})", "llama"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("swa_rope_theta")));
  EXPECT_THAT(KeysOf(R"({"swa_rope_theta": null, "vocab_size": 5})", "llama"), IsOk());
}

TEST(ConfigKeysTest, BasesBelongToTheModelsThatReadThem) {
  const struct {
    const char *key, *reader, *other;
  } cases[] = {{"rope_local_base_freq", "gemma3_text", "olmo3"},
               {"rope_local_base_freq", "gemma3n_text", "gemma4_text"},
               {"global_rope_theta", "modernbert", "gemma3_text"},
               {"local_rope_theta", "modernbert-decoder", "olmo3"},
               {"rope_theta", "olmo3", "modernbert"}};
  for (const auto& [key, reader, other] : cases) {
    const std::string text = "{\"" + std::string(key) + "\": 7.0}";
    EXPECT_THAT(KeysOf(text, reader), IsOk()) << key;
    EXPECT_THAT(KeysOf(text, other),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("is nothing that model_type " + std::string(other))));
  }
}

TEST(ConfigKeysTest, AnUnknownModelMaySayWhetherItInterleaves) {
  EXPECT_THAT(KeysOf(R"({"rope_interleave": true})", "other", true), IsOk());
  EXPECT_FALSE(KeysOf(R"({"rope_interleave": true})", "llama").ok());
}

}  // namespace
}  // namespace phasor
