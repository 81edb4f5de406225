// SPDX-License-Identifier: Apache-2.0
// Command lines of the server, with the environment and configuration files of a test.
#ifndef PHASOR_TESTS_SUPPORT_SERVER_COMMAND_FIXTURE_H_
#define PHASOR_TESTS_SUPPORT_SERVER_COMMAND_FIXTURE_H_

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/config/server_command.h"

namespace phasor::testing {

class ServerCommandFixture : public ::testing::Test {
 protected:
  absl::StatusOr<ServerCommand> Parse(const std::vector<std::string>& arguments) {
    return ParseServerCommand(arguments, [this](const std::string& name) {
      const auto variable = environment_.find(name);
      return variable == environment_.end() ? std::nullopt : std::optional(variable->second);
    });
  }

  // A file of this test, by its path.
  static std::string WriteConfig(const std::string& text) {
    const auto* const test = ::testing::UnitTest::GetInstance()->current_test_info();
    const std::string path =
        ::testing::TempDir() + "/" + test->test_suite_name() + "_" + test->name() + ".txtpb";
    std::ofstream(path) << text;
    return path;
  }

  std::map<std::string, std::string> environment_;
};

}  // namespace phasor::testing

#endif  // PHASOR_TESTS_SUPPORT_SERVER_COMMAND_FIXTURE_H_
