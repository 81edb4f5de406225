// SPDX-License-Identifier: Apache-2.0
// Positions from the command line: written out, as ranges, or from a file.
#ifndef PHASOR_CLIENT_CLI_POSITION_FLAGS_H_
#define PHASOR_CLIENT_CLI_POSITION_FLAGS_H_

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/npy.h"
#include "client/position_list.h"

namespace phasor::cli {

// "start:stop" or "start:stop:step", stop excluded; integers, or reals as soon as one of them is.
// INVALID_ARGUMENT: anything else, or a step of 0.
absl::StatusOr<AxisRange> ParseRange(std::string_view text, std::string_view flag);

// Threads: none. Owns the numbers that the list borrows.
class PositionFlags {
 public:
  // Flags --<prefix>positions, --<prefix>range and --<prefix>positions-file, of which at most one
  // may be given.
  void Add(CLI::App& app, const std::string& prefix);
  bool given() const;
  // INVALID_ARGUMENT: none given, or malformed. Also ReadNpy's errors. Lives as long as this.
  absl::StatusOr<PositionList> Get();

 private:
  absl::StatusOr<PositionList> GetWritten();
  absl::StatusOr<PositionList> GetRanges() const;

  std::string prefix_;
  std::string written_;              // "10,12" or, with axes, "0/1,0/2"
  std::vector<std::string> ranges_;  // several: a grid
  std::string file_;
  std::vector<int64_t> integers_;
  std::vector<double> reals_;
  NpyArray array_;
};

}  // namespace phasor::cli

#endif  // PHASOR_CLIENT_CLI_POSITION_FLAGS_H_
