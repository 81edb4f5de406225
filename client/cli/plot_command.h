// SPDX-License-Identifier: Apache-2.0
// `phasor plot`: draws an encoding.
#ifndef PHASOR_CLIENT_CLI_PLOT_COMMAND_H_
#define PHASOR_CLIENT_CLI_PLOT_COMMAND_H_

#include <memory>

#include "client/cli/commands.h"

namespace phasor::cli {

std::unique_ptr<Command> MakePlotCommand(CLI::App& parent);

}  // namespace phasor::cli

#endif  // PHASOR_CLIENT_CLI_PLOT_COMMAND_H_
