// SPDX-License-Identifier: Apache-2.0
// `phasor check-cache`: checks whether the keys of a prompt at two offsets differ by the rotation
// that a model's specification says, and otherwise finds out by which.
#ifndef PHASOR_CLIENT_CLI_CHECK_COMMAND_H_
#define PHASOR_CLIENT_CLI_CHECK_COMMAND_H_

#include <memory>

#include "client/cli/commands.h"

namespace phasor::cli {

std::unique_ptr<Command> MakeCheckCommand(CLI::App& parent);

}  // namespace phasor::cli

#endif  // PHASOR_CLIENT_CLI_CHECK_COMMAND_H_
