// SPDX-License-Identifier: Apache-2.0
// Flags, environment and file: their precedence, and what is refused.
#include "server/config/server_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <string>
#include <vector>

namespace phasor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ServerCommandTest : public ::testing::Test {
 protected:
  absl::StatusOr<ServerCommand> Parse(const std::vector<std::string>& arguments) {
    return ParseServerCommand(arguments, [this](const std::string& name) {
      const auto variable = environment_.find(name);
      return variable == environment_.end() ? std::nullopt : std::optional(variable->second);
    });
  }

  std::string WriteConfig(const std::string& text) {
    const std::string path = ::testing::TempDir() + "/server_command_test_" +
                             ::testing::UnitTest::GetInstance()->current_test_info()->name() +
                             ".conf";
    std::ofstream(path) << text;
    return path;
  }

  std::map<std::string, std::string> environment_;
};

TEST_F(ServerCommandTest, VersionIsPrinted) {
  const auto command = Parse({"--version"});
  ASSERT_TRUE(command.ok());
  EXPECT_THAT(command->print, HasSubstr("phasor-server 0."));
}

TEST_F(ServerCommandTest, FlagWinsOverEnvironmentOverFile) {
  const std::string path = WriteConfig("threads = 1\nmax-batch-items = 1\nmax-connections = 1\n");
  environment_ = {
      {"PHASOR_CONFIG", path}, {"PHASOR_THREADS", "2"}, {"PHASOR_MAX_BATCH_ITEMS", "2"}};
  const auto command = Parse({"--threads=3"});
  ASSERT_TRUE(command.ok()) << command.status();
  EXPECT_EQ(command->options.threads, 3);
  EXPECT_EQ(command->options.max_batch_items, 2);
  EXPECT_EQ(command->options.max_connections, 1);
}

TEST_F(ServerCommandTest, UnknownNamesAreRefusedWithTheNearestOne) {
  const auto flag = Parse({"--max-conections=5"});
  EXPECT_EQ(flag.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(flag.status().message(), HasSubstr("did you mean max-connections?"));
  const std::string path = WriteConfig("threads = 1\ntreads = 1\n");
  const auto key = Parse({"--config=" + path});
  EXPECT_THAT(key.status().message(), HasSubstr(path + ":2: treads: unknown option"));
  EXPECT_THAT(key.status().message(), HasSubstr("did you mean threads?"));
}

TEST_F(ServerCommandTest, VariablesThatKubernetesSetsAreIgnored) {
  environment_ = {{"PHASOR_PORT", "tcp://10.0.0.1:50051"}, {"PHASOR_SERVICE_HOST", "10.0.0.1"}};
  EXPECT_TRUE(Parse({}).ok());
}

TEST_F(ServerCommandTest, EmptyVariableCountsAsNotSet) {
  environment_ = {{"PHASOR_THREADS", ""}};
  EXPECT_TRUE(Parse({}).ok());
}

TEST_F(ServerCommandTest, ListenMayBeRepeated) {
  const auto command = Parse({"--listen", "127.0.0.1:0", "--listen=unix:/run/p.sock"});
  ASSERT_TRUE(command.ok());
  EXPECT_THAT(command->options.listen, ElementsAre("127.0.0.1:0", "unix:/run/p.sock"));
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
  EXPECT_THAT(Parse({"serve"}).status().message(), HasSubstr("serve: not a flag"));
  EXPECT_THAT(Parse({"--threads"}).status().message(), HasSubstr("threads: no value"));
}

TEST_F(ServerCommandTest, RefusesBrokenConfigFiles) {
  EXPECT_EQ(Parse({"--config=/nonexistent/file"}).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Parse({"--config", WriteConfig("threads 1\n")}).status().message(),
              HasSubstr(":1: no '='"));
}

TEST_F(ServerCommandTest, QuotedConfigValuesLoseTheirQuotes) {
  const auto command = Parse({"--config", WriteConfig("listen = \"127.0.0.1:0, unix:/p\"\n")});
  ASSERT_TRUE(command.ok()) << command.status();
  EXPECT_THAT(command->options.listen, ElementsAre("127.0.0.1:0", "unix:/p"));
}

}  // namespace
}  // namespace phasor
