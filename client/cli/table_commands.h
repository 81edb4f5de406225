// SPDX-License-Identifier: Apache-2.0
// The subcommands `bias` and `tables`.
#ifndef PHASOR_CLIENT_CLI_TABLE_COMMANDS_H_
#define PHASOR_CLIENT_CLI_TABLE_COMMANDS_H_

#include <CLI/CLI.hpp>
#include <memory>
#include <vector>

#include "client/cli/commands.h"

namespace phasor::cli {

// Adds bias, and tables with list, get, upload and delete.
void AddTableCommands(CLI::App& app, std::vector<std::unique_ptr<Command>>* commands);

}  // namespace phasor::cli

#endif  // PHASOR_CLIENT_CLI_TABLE_COMMANDS_H_
