// SPDX-License-Identifier: Apache-2.0
// Tests the configuration message: one field per option, two notations, and error messages.
#include "server/config/config_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "phasor/config/v1/server_config.pb.h"
#include "tests/support/status_matchers.h"

namespace phasor {
namespace {

using google::protobuf::FieldDescriptor;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using testing::StatusIs;

// The JSON parser of protobuf 22 and later takes the last of fields given twice, and does not say
// where an unknown value is.
constexpr bool kLaterProtobuf = GOOGLE_PROTOBUF_VERSION >= 4022000;

// Writes a file and reads it as a configuration.
absl::StatusOr<ConfigFile> Read(const std::string& text, const std::string& extension = ".txtpb") {
  const std::string path = ::testing::TempDir() + "/config_file_test_" +
                           ::testing::UnitTest::GetInstance()->current_test_info()->name() +
                           extension;
  std::ofstream(path) << text;
  return ReadConfigFile(path);
}

// The message of the error without the file's folder.
std::string ErrorOf(const std::string& text, const std::string& extension = ".txtpb") {
  const std::string message(Read(text, extension).status().message());
  return message.substr(message.find(extension + ":") + extension.size() + 1);
}

std::string FieldNameOf(const Option& option) {
  return absl::StrReplaceAll(option.name, {{"-", "_"}});
}

std::string TypeOf(const Option& option) {
  const auto is = [&](auto kind) { return std::holds_alternative<decltype(kind)>(option.value); };
  if (is(option_kinds::Addresses{})) return "repeated string";
  if (is(option_kinds::Count{})) return "optional int64";
  return is(option_kinds::Switch{}) ? "optional bool" : "optional string";
}

TEST(ConfigFileTest, EveryOptionHasAFieldThatSaysWhatTheTableSays) {
  std::ifstream file(PHASOR_CONFIG_PROTO);
  std::ostringstream all;
  for (std::string word; file >> word;) {
    if (word != "//") all << word << ' ';
  }
  for (const Option& option : Options()) {
    std::string help = option.help;
    help[0] = static_cast<char>(std::toupper(help[0]));
    const std::string expected = absl::StrCat(
        help, ". Default ", FormatOption(ServerOptions(), option),
        "; accepted: ", AcceptedBy(option), ". ", TypeOf(option), " ", FieldNameOf(option), " = ");
    EXPECT_NE(all.str().find(expected), std::string::npos)
        << "server_config.proto has no such comment and field:\n  // " << expected << "<number>;";
  }
}

TEST(ConfigFileTest, EveryFieldHasAnOption) {
  const auto* const message = config::v1::ServerConfig::descriptor();
  for (int i = 0; i < message->field_count(); ++i) {
    const std::string name = absl::StrReplaceAll(message->field(i)->name(), {{"_", "-"}});
    EXPECT_TRUE(name == "encoders" || FindOption(name) != nullptr) << name;
  }
  EXPECT_EQ(message->field_count(), static_cast<int>(Options().size()) + 1);
}

TEST(ConfigFileTest, TextFormatAndJsonSayTheSame) {
  const auto text = Read(
      "# a comment\nlisten: [\"127.0.0.1:0\", \"unix:/a\"]\nthreads: 4\nreflection: false\n"
      "max_message_bytes: \"64MiB\"\nencoders { name: \"a\" spec { preset: \"transformer\" dim: 8 "
      "} }");
  const auto json = Read(
      R"({"listen": ["127.0.0.1:0", "unix:/a"], "threads": 4, "reflection": false,
          "maxMessageBytes": "64MiB",
          "encoders": [{"name": "a", "spec": {"preset": "transformer", "dim": 8}}]})",
      ".json");
  ASSERT_TRUE(text.ok()) << text.status();
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ(text->values.size(), 4u);
  for (const auto& [name, value] : text->values) {
    EXPECT_EQ(json->values.at(name).text, value.text) << name;
  }
  EXPECT_EQ(text->values.at("listen").text, "127.0.0.1:0,unix:/a");
  EXPECT_EQ(text->values.at("reflection").text, "false");
  EXPECT_EQ(text->encoders, json->encoders);
  EXPECT_EQ(text->encoders, (std::vector<NamedSpec>{{"a", {.preset = "transformer", .dim = 8}}}));
}

TEST(ConfigFileTest, OtherExtensionsAreJsonWhenTheyBeginWithABrace) {
  EXPECT_TRUE(Read(" \n{\"threads\": 1}", ".conf").ok());
  EXPECT_TRUE(Read("threads: 1", ".conf").ok());
  EXPECT_TRUE(Read("", ".conf").ok());
}

TEST(ConfigFileTest, ValuesKnowTheirLine) {
  const auto file = Read("\nthreads: 4\n\n\nlisten: \"a:1\"\n");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_THAT(file->values.at("threads").where, EndsWith(".txtpb:2"));
  EXPECT_THAT(file->values.at("listen").where, EndsWith(".txtpb:5"));
  EXPECT_THAT(Read("{\"threads\": 4}", ".json")->values.at("threads").where, EndsWith(".json"));
}

TEST(ConfigFileTest, UnknownFieldsAreRefusedWithTheNearestName) {
  EXPECT_EQ(ErrorOf("threads: 1\nmax_mesage_bytes: \"1KiB\""),
            "2: unknown field 'max_mesage_bytes'; did you mean 'max_message_bytes'?");
  EXPECT_EQ(ErrorOf("encoders {\n name: \"a\"\n spec { dime: 4 } }"),
            "3: unknown field 'dime'; did you mean 'dim'?");
  EXPECT_EQ(ErrorOf(R"({"max_mesage_bytes": "1KiB"})", ".json"),
            " unknown field 'max_mesage_bytes'; did you mean 'max_message_bytes'?");
  EXPECT_EQ(ErrorOf(R"({"encoders": [{}, {"spec": {"dime": 4}}]})", ".json"),
            " encoders[1].spec: unknown field 'dime'; did you mean 'dim'?");
}

TEST(ConfigFileTest, UnknownValuesAreRefusedWithTheNearestName) {
  EXPECT_THAT(ErrorOf("encoders {\n name: \"a\"\n spec { precision: PRECISION_EXAKT } }"),
              StartsWith("3: precision: unknown value 'PRECISION_EXAKT'; did you mean "
                         "\"PRECISION_EXACT\"? must be one of PRECISION_UNSPECIFIED, "));
  if (kLaterProtobuf) {
    EXPECT_THAT(ErrorOf(R"({"encoders": [{}, {"spec": {"precision": "exact"}}]})", ".json"),
                HasSubstr("unknown enum value: 'exact'"));
    return;
  }
  EXPECT_THAT(ErrorOf(R"({"encoders": [{}, {"spec": {"precision": "exact"}}]})", ".json"),
              StartsWith(" encoders[1].spec.precision: unknown value 'exact'; did you mean "
                         "\"PRECISION_EXACT\"? must be one of PRECISION_"));
  EXPECT_THAT(
      ErrorOf(R"({"encoders": [{"spec": {"precision": "PRECISION_PARTY"}}]})", ".json"),
      StartsWith(" encoders[0].spec.precision: unknown value 'PRECISION_PARTY'; did you mean "
                 "\"PRECISION_PARITY\"?"));
}

TEST(ConfigFileTest, FieldsGivenTwiceAreRefused) {
  EXPECT_THAT(ErrorOf("threads: 2\nthreads: 3\n"), HasSubstr("2: Non-repeated field \"threads\""));
  if (kLaterProtobuf) return;
  EXPECT_THAT(ErrorOf(R"({"threads": 2, "threads": 3})", ".json"),
              HasSubstr("Cannot set 'threads'"));
}

TEST(ConfigFileTest, ValuesOfAnotherTypeAreRefused) {
  EXPECT_THAT(ErrorOf("threads: many"), HasSubstr("1: Expected integer, got: many"));
  EXPECT_THAT(ErrorOf("max_message_bytes: 5"), HasSubstr("1: Expected string, got: 5"));
  EXPECT_THAT(ErrorOf(R"({"max_message_bytes": 5})", ".json"),
              HasSubstr(kLaterProtobuf
                            ? "max_message_bytes: unexpected character: '5'; expected '\"'"
                            : " max_message_bytes: 5 is not accepted; must be a string in quotes"));
  if (!kLaterProtobuf) {
    EXPECT_EQ(ErrorOf(R"({"encoders": [{"spec": {"dim": "y"}}]})", ".json"),
              " encoders[0].spec.dim: \"y\" is not accepted; must be a whole number");
    EXPECT_EQ(ErrorOf(R"({"shared_memory": 1})", ".json"),
              " shared_memory: 1 is not accepted; must be true or false");
  }
  EXPECT_THAT(ErrorOf("{\"threads\": 4", ".json"),
              HasSubstr(kLaterProtobuf ? "expected ',' at 1:" : "Unexpected end of string"));
  EXPECT_THAT(ErrorOf("threads = 1"), HasSubstr("1: Expected \":\", found \"=\""));
}

TEST(ConfigFileTest, BadEncodersAreRefusedWithTheirPathAndLine) {
  const std::string good = "encoders { name: \"a\" spec { preset: \"transformer\" dim: 8 } }\n";
  EXPECT_THAT(ErrorOf(good + "encoders { name: \"b\" spec { preset: \"transformer\" } }"),
              StartsWith("2: encoders[1].spec.dim: "));
  EXPECT_THAT(ErrorOf(good + "encoders { name: \"b/c\" spec { preset: \"transformer\" dim: 8 } }"),
              StartsWith("2: encoders[1].name: 'b/c' is no name of an encoder"));
  EXPECT_THAT(ErrorOf(good + "encoders { name: \"b\" spec { encoder: \"a\" } }"),
              StartsWith("2: encoders[1].spec.encoder: "));
  EXPECT_THAT(ErrorOf(good + good), HasSubstr("encoders[1].name: 'a' is given twice"));
  EXPECT_THAT(ErrorOf("encoders { name: \"b\" spec { kind: 99 } }"), HasSubstr("1: "));
}

TEST(ConfigFileTest, RefusesFoldersAndHugeFiles) {
  EXPECT_THAT(ReadConfigFile(::testing::TempDir()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("' is not a regular file")));
  EXPECT_THAT(Read(std::string(kMaxConfigBytes + 1, ' ')),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("is larger than ")));
}

}  // namespace
}  // namespace phasor
