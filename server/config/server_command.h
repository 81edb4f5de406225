// SPDX-License-Identifier: Apache-2.0
// The command line of phasor-server: flags, environment and configuration file, in that order of
// precedence.
#ifndef PHASOR_SERVER_CONFIG_SERVER_COMMAND_H_
#define PHASOR_SERVER_CONFIG_SERVER_COMMAND_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/config/options.h"

namespace phasor {

// A command line of the server.
struct ServerCommand {
  ServerOptions options;
  std::string print;  // not empty: print this (--help, --check-config, ...) and exit
};

// Value of an environment variable, if it is set.
using GetEnvironment = std::function<std::optional<std::string>(const std::string& name)>;

// Reads flags (`arguments` without the program's name), environment and the file of --config, and
// validates. INVALID_ARGUMENT: an unknown flag or field, or a value that is not accepted; of
// encoders also what ResolveSpec returns. NOT_FOUND: the file cannot be read, too. Empty variables
// count as not set. Unknown PHASOR_ variables are ignored: Kubernetes sets some (PHASOR_PORT, ...)
// for a Service named phasor.
absl::StatusOr<ServerCommand> ParseServerCommand(const std::vector<std::string>& arguments,
                                                 const GetEnvironment& environment);

// What is wrong with variables of these names: those that are nearly, but not quite, an option's.
std::vector<std::string> SuspectVariables(const std::vector<std::string>& names);

// The text of --help: every option with its default, unit and range.
std::string ServerHelp();

}  // namespace phasor

#endif  // PHASOR_SERVER_CONFIG_SERVER_COMMAND_H_
