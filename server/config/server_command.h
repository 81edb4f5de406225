// SPDX-License-Identifier: Apache-2.0
// The command line of phasor-server: combines flags, environment variables and the configuration
// file, in this order of precedence.
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
  std::string print;          // not empty: print it and exit (--help, --check-config, ...)
  bool reads_options = true;  // false: it asks for --help or --version only
};

// Returns the value of an environment variable; nullopt if it is not set.
using GetEnvironment = std::function<std::optional<std::string>(const std::string& name)>;

// Reads the flags in `arguments`, which do not contain the program's name, the environment, and the
// file of --config. Validates the result. Empty variables count as not set. Unknown PHASOR_
// variables are ignored, because Kubernetes sets some (PHASOR_PORT, ...) for a Service named
// phasor.
// INVALID_ARGUMENT: an unknown flag or field, or an invalid value. For encoders, the errors of
// ResolveSpec. NOT_FOUND: also if the file cannot be read.
absl::StatusOr<ServerCommand> ParseServerCommand(const std::vector<std::string>& arguments,
                                                 const GetEnvironment& environment);

// Error messages for those of these variables whose names are almost, but not exactly, an option's.
std::vector<std::string> SuspectVariables(const std::vector<std::string>& names);

// The text of --help: every option with its default, unit and range.
std::string ServerHelp();

}  // namespace phasor

#endif  // PHASOR_SERVER_CONFIG_SERVER_COMMAND_H_
