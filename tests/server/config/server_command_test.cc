// SPDX-License-Identifier: Apache-2.0
// Tests flags, environment and file: their precedence, and what is refused.
#include "server/config/server_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "server/config/option_table.h"
#include "tests/support/server_command_fixture.h"

namespace phasor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;

using ServerCommandTest = testing::ServerCommandFixture;

TEST_F(ServerCommandTest, VersionSaysWhichBitsItComputes) {
  const auto command = Parse({"--version"});
  ASSERT_TRUE(command.ok());
  EXPECT_THAT(command->print, MatchesRegex("phasor-server 0\\.[0-9.]+ \\(numerics [0-9]+\\)\n"));
}

TEST_F(ServerCommandTest, FlagWinsOverEnvironmentOverFile) {
  const std::string path = WriteConfig("threads: 1 max_batch_items: 1 max_connections: 1");
  environment_ = {
      {"PHASOR_CONFIG", path}, {"PHASOR_THREADS", "2"}, {"PHASOR_MAX_BATCH_ITEMS", "2"}};
  const auto command = Parse({"--threads=3"});
  ASSERT_TRUE(command.ok()) << command.status();
  EXPECT_EQ(command->options.threads, 3);
  EXPECT_EQ(command->options.max_batch_items, 2);
  EXPECT_EQ(command->options.max_connections, 1);
}

TEST_F(ServerCommandTest, UnknownFlagsAreRefusedWithTheNearestOne) {
  const auto flag = Parse({"--max-conections=5"});
  EXPECT_EQ(flag.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(flag.status().message(), HasSubstr("did you mean max-connections?"));
  EXPECT_THAT(Parse({"--chek-config"}).status().message(), HasSubstr("did you mean check-config?"));
  EXPECT_THAT(Parse({"--config=a", "--config=b"}).status().message(),
              HasSubstr("config: given twice ('a' and 'b'); must be once"));
  EXPECT_THAT(Parse({"--check-config=perhaps"}).status().message(),
              HasSubstr("check-config: 'perhaps' is not accepted; accepted: true, false"));
  EXPECT_EQ(Parse({"--check-config=false"})->print, "");
}

TEST_F(ServerCommandTest, ErrorsNameTheSourceOfTheValue) {
  const std::string path = WriteConfig("threads: 1\nmax_header_bytes: \"1\"\n");
  EXPECT_EQ(Parse({"--config", path}).status().message(),
            path +
                ":2: max-header-bytes: '1' is not accepted; accepted: 1KiB to 64MiB (bytes, KiB, "
                "MiB, GiB, TiB)");
  const std::string relative = WriteConfig("\n\nlease_socket: \"relative\"");
  EXPECT_EQ(Parse({"--config", relative}).status().message(),
            relative + ":3: lease-socket: 'relative' is not accepted; must be an absolute path");
  const std::string too_long = "/" + std::string(107, 'x');
  EXPECT_EQ(
      Parse({"--lease-socket", too_long}).status().message(),
      "lease-socket: " + too_long +
          " is longer than 107 bytes, the system's limit for Unix sockets; use a shorter path");
  environment_ = {{"PHASOR_THREADS", "many"}};
  EXPECT_EQ(Parse({}).status().message(),
            "PHASOR_THREADS: threads: 'many' is not accepted; accepted: 0 to 1024");
  EXPECT_EQ(Parse({"--threads=many"}).status().message(),
            "threads: 'many' is not accepted; accepted: 0 to 1024");
}

TEST_F(ServerCommandTest, VariablesThatKubernetesSetsAreIgnored) {
  environment_ = {{"PHASOR_PORT", "tcp://10.0.0.1:50051"}, {"PHASOR_SERVICE_HOST", "10.0.0.1"}};
  EXPECT_TRUE(Parse({}).ok());
}

TEST_F(ServerCommandTest, VariablesThatAreNearlyAnOptionAreSuspect) {
  EXPECT_THAT(SuspectVariables({"PHASOR_TREADS", "PHASOR_THREADS", "PHASOR_CONFIG", "PATH"}),
              ElementsAre("PHASOR_TREADS: ignored; did you mean PHASOR_THREADS?"));
  EXPECT_THAT(SuspectVariables({"PHASOR_PORT", "PHASOR_SERVICE_HOST", "PHASOR_SERVICE_PORT",
                                "PHASOR_SERVICE_PORT_GRPC", "PHASOR_PORT_50051_TCP",
                                "PHASOR_PORT_50051_TCP_PROTO", "PHASOR_PORT_50051_TCP_PORT",
                                "PHASOR_PORT_50051_TCP_ADDR", "PHASOR_HEADLESS_PORT"}),
              IsEmpty());
}

TEST_F(ServerCommandTest, EmptyVariableCountsAsNotSet) {
  environment_ = {{"PHASOR_THREADS", ""}};
  EXPECT_TRUE(Parse({}).ok());
}

TEST_F(ServerCommandTest, AFlagForTheFileWithoutAPathIsRefused) {
  environment_ = {{"PHASOR_CONFIG", WriteConfig("threads: 1")}};
  EXPECT_EQ(Parse({"--config="}).status().message(),
            "config: '' cannot be read (No such file or directory); must be readable by this user");
}

TEST_F(ServerCommandTest, ListenMayBeRepeated) {
  const auto command = Parse({"--listen", "127.0.0.1:0", "--listen=unix:/run/p.sock"});
  ASSERT_TRUE(command.ok());
  EXPECT_THAT(command->options.listen, ElementsAre("127.0.0.1:0", "unix:/run/p.sock"));
}

TEST_F(ServerCommandTest, OtherFlagsMayNotBeRepeated) {
  EXPECT_EQ(Parse({"--threads=2", "--threads", "3"}).status().message(),
            "threads: given twice ('2' and '3'); must be once");
}

TEST_F(ServerCommandTest, UnderscoresAreAsGoodAsDashes) {
  EXPECT_EQ(Parse({"--max_batch_items=5"})->options.max_batch_items, 5);
}

TEST_F(ServerCommandTest, SwitchNeedsNoValue) {
  environment_ = {{"PHASOR_REFLECTION", "off"}};
  EXPECT_FALSE(Parse({})->options.reflection);
  EXPECT_TRUE(Parse({"--reflection"})->options.reflection);
}

TEST_F(ServerCommandTest, RefusesWhatIsNoFlagAndFlagsWithoutValue) {
  EXPECT_EQ(Parse({"--reflection", "false"}).status().message(),
            "false: not a flag; accepted: --name=value, --name value; of switches: --name, "
            "--name=value");
  EXPECT_THAT(Parse({"--threads"}).status().message(), HasSubstr("threads: no value"));
}

TEST_F(ServerCommandTest, FileThatCannotBeReadIsNotFound) {
  EXPECT_EQ(Parse({"--config=/nonexistent/file"}).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(ServerCommandTest, CheckConfigPrintsThatAllIsValidOrFails) {
  const std::string good = WriteConfig(
      "threads: 3 encoders { name: \"a\" spec { preset: "
      "\"transformer\" dim: 8 } }");
  EXPECT_EQ(Parse({"--check-config", "--config", good})->print,
            "phasor-server: the configuration is valid\n");
  EXPECT_FALSE(Parse({"--check-config", "--config", WriteConfig("threads: -1")}).ok());
  EXPECT_FALSE(
      Parse({"--check-config", "--config", WriteConfig("encoders { name: \"a\" spec { } }")}).ok());
  EXPECT_FALSE(Parse({"--check-config", "--lease-socket=relative"}).ok());
}

TEST_F(ServerCommandTest, PrintConfigSaysWhereEachValueIsFrom) {
  const std::string path = WriteConfig("threads: 1\nmax_batch_items: 7\ndrain_delay: \"5s\"\n");
  environment_ = {{"PHASOR_MAX_BATCH_ITEMS", "8"}};
  const auto command = Parse({"--print-config", "--config", path, "--threads=2"});
  ASSERT_TRUE(command.ok()) << command.status();
  EXPECT_THAT(command->print, HasSubstr("threads: 2  # --threads\n"));
  EXPECT_THAT(command->print, HasSubstr("max_batch_items: 8  # PHASOR_MAX_BATCH_ITEMS\n"));
  EXPECT_THAT(command->print, HasSubstr("drain_delay: \"5s\"  # " + path + ":3\n"));
  EXPECT_THAT(command->print, HasSubstr("reflection: true  # default\n"));
}

TEST_F(ServerCommandTest, PrintedConfigurationReadsBackAsTheSame) {
  const std::vector<std::string> flags = {
      "--listen=127.0.0.1:0,unix:/a b",  "--threads=2",       "--reflection=false",
      "--max-inflight-bytes=1000001KiB", "--drain-delay=90s", "--print-config"};
  const std::string encoders =
      "encoders { name: \"a\" spec { preset: \"transformer\" dim: 8 rope_theta: 0.1 } }";
  auto with_encoders = flags;
  with_encoders.push_back("--config=" + WriteConfig(encoders));
  const auto first = Parse(with_encoders);
  ASSERT_TRUE(first.ok()) << first.status();
  const auto second = Parse({"--print-config", "--config", WriteConfig(first->print)});
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->options.encoders, first->options.encoders);
  for (const Option& option : Options()) {
    EXPECT_EQ(TextOf(second->options, option), TextOf(first->options, option)) << option.name;
  }
}

}  // namespace
}  // namespace phasor
