// SPDX-License-Identifier: Apache-2.0
// Runs `phasor` commands in this process.
#ifndef PHASOR_TESTS_SUPPORT_RUN_COMMAND_H_
#define PHASOR_TESTS_SUPPORT_RUN_COMMAND_H_

#include <algorithm>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "client/cli/commands.h"

namespace phasor::cli {

struct Outcome {
  absl::Status status;
  std::string out;
};

inline Outcome RunCommand(std::vector<std::string> arguments) {
  CLI::App app;
  app.require_subcommand(1);
  const auto commands = MakeCommands(app);
  std::reverse(arguments.begin(), arguments.end());
  app.parse(arguments);
  std::ostringstream out;
  for (const auto& command : commands) {
    if (!command->app()->parsed()) continue;
    absl::Status status = command->Run(out);
    return {std::move(status), out.str()};
  }
  return {absl::UnknownError("no command ran"), ""};
}

}  // namespace phasor::cli

#endif  // PHASOR_TESTS_SUPPORT_RUN_COMMAND_H_
