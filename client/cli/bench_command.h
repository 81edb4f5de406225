// SPDX-License-Identifier: Apache-2.0
// `phasor bench`: measures how fast a server answers, and on request how fast an echo server does.
#ifndef PHASOR_CLIENT_CLI_BENCH_COMMAND_H_
#define PHASOR_CLIENT_CLI_BENCH_COMMAND_H_

#include <CLI/CLI.hpp>
#include <memory>
#include <vector>

#include "client/cli/commands.h"

namespace phasor::cli {

// Adds `bench`, and `echo-server`, which `bench` starts and --help does not list.
void AddBenchCommands(CLI::App& app, std::vector<std::unique_ptr<Command>>* commands);

}  // namespace phasor::cli

#endif  // PHASOR_CLIENT_CLI_BENCH_COMMAND_H_
