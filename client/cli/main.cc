// SPDX-License-Identifier: Apache-2.0
// `phasor`, the command line. Exit status: 0 for success; 1 for an error, printed to stderr as
// "phasor: <code>: <message>"; 2 for a command line that cannot be parsed.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <iostream>
#include <string>

#include "client/cli/commands.h"
#include "client/cli/error_flags.h"
#include "client/cli/npy.h"

namespace {

int Fail(const absl::Status& status, const CLI::App& command) {
  std::cerr << "phasor: " << absl::StatusCodeToString(status.code()) << ": "
            << phasor::cli::WithFlag(command, std::string(status.message())) << "\n";
  return 1;
}

std::string FitsInt64(const std::string& text) {
  errno = 0;
  static_cast<void>(std::strtoll(text.c_str(), nullptr, 0));
  return errno == ERANGE ? "'" + text + "'; must be a number of 64 bits" : "";
}

// CLI11 2.1 takes the nearest number instead of one that is too large.
void CheckIntegers(CLI::App& app) {
  for (CLI::Option* const option : app.get_options()) {
    if (option->get_type_name().starts_with("INT")) option->check(FitsInt64);
  }
  for (CLI::App* const command : app.get_subcommands(nullptr)) CheckIntegers(*command);
}

// Where a command shows its result: elsewhere, if standard output takes the bytes of an --output.
std::ostream& ResultStream(const CLI::App& command) {
  const CLI::Option* const output = command.get_option_no_throw("--output");
  if (output == nullptr) return std::cout;
  const auto& paths = output->results();
  return std::any_of(paths.begin(), paths.end(), phasor::cli::IsStandardOutput) ? std::cerr
                                                                                : std::cout;
}

}  // namespace

int main(int argc, char** argv) {
  // gRPC logs each failed attempt to connect. The error says it once.
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  CLI::App app(
      "Computes exact position embeddings and rotary embeddings, in this process or on "
      "a server.",
      "phasor");
  app.set_version_flag("--version", PHASOR_VERSION);
  app.require_subcommand(1);
  const auto commands = phasor::cli::MakeCommands(app);
  CheckIntegers(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {  // CLI11 reports errors by throwing
    const bool wrong = error.get_exit_code() != 0;
    const std::string unknown = wrong ? phasor::cli::UnknownArgument(app) : "";
    if (!unknown.empty()) {
      std::cerr << "phasor: " << unknown << "\n";
      return 2;
    }
    if (app.exit(error) != 0) return 2;
    if (std::cout.flush()) return 0;
    return Fail(phasor::cli::CannotPrint(), app);
  }
  for (const auto& command : commands) {
    if (!command->app()->parsed()) continue;
    absl::Status status = command->Run(ResultStream(*command->app()));
    if (!std::cout.flush()) status.Update(phasor::cli::CannotPrint());
    if (status.ok()) return 0;
    return Fail(status, *command->app());
  }
  return 2;
}
