// SPDX-License-Identifier: Apache-2.0
// `phasor top`: shows what a server does, live, from its metrics.
#ifndef PHASOR_CLIENT_CLI_TOP_COMMAND_H_
#define PHASOR_CLIENT_CLI_TOP_COMMAND_H_

#include <CLI/CLI.hpp>
#include <memory>

#include "client/cli/commands.h"

namespace phasor::cli {

std::unique_ptr<Command> MakeTopCommand(CLI::App& parent);

}  // namespace phasor::cli

#endif  // PHASOR_CLIENT_CLI_TOP_COMMAND_H_
