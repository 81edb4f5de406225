// SPDX-License-Identifier: Apache-2.0
// Positions on the command line: numbers, ranges or a file.
#ifndef PHASOR_CLIENT_CLI_POSITION_FLAGS_H_
#define PHASOR_CLIENT_CLI_POSITION_FLAGS_H_

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/npy.h"
#include "client/client.h"
#include "client/position_list.h"

namespace phasor::cli {

// Parses "start:stop" or "start:stop:step"; stop is excluded. If one number is real, all are.
// INVALID_ARGUMENT: anything else, or a step of 0.
absl::StatusOr<AxisRange> ParseRange(std::string_view text, std::string_view flag);

// The position flags of a command. Owns the numbers that the list borrows. Threads: one.
class PositionFlags {
 public:
  // Adds --<prefix>positions, --<prefix>range and --<prefix>positions-file. At most one may be
  // given.
  void Add(CLI::App& app, const std::string& prefix);
  bool given() const;
  // The positions; they borrow from this object. INVALID_ARGUMENT: no flag was given, or its value
  // is malformed. Also the errors of ReadNpy.
  absl::StatusOr<PositionList> Get();
  // After Get(). INVALID_ARGUMENT: positions were written with several axes, and not as many as the
  // spec or the table takes. It would take them for a batch of lists.
  absl::Status CheckAxes(const Client& client, const Spec& spec) const;
  absl::Status CheckAxes(int axes) const;

 private:
  absl::StatusOr<PositionList> GetWritten();
  absl::StatusOr<PositionList> GetRanges() const;

  std::string prefix_;
  int written_axes_ = 0;             // 0: none were written
  std::string written_;              // "10,12"; with several axes "0/1,0/2"
  std::vector<std::string> ranges_;  // several ranges make a grid
  std::string file_;
  std::vector<int64_t> integers_;
  std::vector<double> reals_;
  NpyArray array_;
};

}  // namespace phasor::cli

#endif  // PHASOR_CLIENT_CLI_POSITION_FLAGS_H_
