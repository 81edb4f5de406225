// SPDX-License-Identifier: Apache-2.0
// `phasor move-keys`: moves the keys of a cache in files, or compares them.
#ifndef PHASOR_CLIENT_CLI_MOVE_COMMAND_H_
#define PHASOR_CLIENT_CLI_MOVE_COMMAND_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "kernels/request/move_keys.h"

namespace phasor::cli {

// Parses "first:count:from:to" or "first:count:from:to:to_first". INVALID_ARGUMENT: anything else.
absl::StatusOr<KeyRun> ParseKeyRun(std::string_view text);

}  // namespace phasor::cli

#endif  // PHASOR_CLIENT_CLI_MOVE_COMMAND_H_
