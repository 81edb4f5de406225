// SPDX-License-Identifier: Apache-2.0
// Errors of calls in the words of the command line.
#ifndef PHASOR_CLIENT_CLI_ERROR_FLAGS_H_
#define PHASOR_CLIENT_CLI_ERROR_FLAGS_H_

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>

namespace phasor::cli {

// The message with the flag of `command` instead of the field path in front:
// "item.spec.rotary_dim: 3 is odd; ..." becomes "--rotary-dim: 3 is odd; ...". The message as it
// is, if `command` has no flag for the field, or has the field from the file of --spec.
std::string WithFlag(const CLI::App& command, std::string_view message);

}  // namespace phasor::cli

#endif  // PHASOR_CLIENT_CLI_ERROR_FLAGS_H_
