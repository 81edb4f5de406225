// SPDX-License-Identifier: Apache-2.0
// Pictures of an encoding: its values, and the error of float32 angles. Threads: pure functions.
#ifndef PHASOR_CLIENT_CLI_PLOT_H_
#define PHASOR_CLIENT_CLI_PLOT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/cli/canvas.h"
#include "client/connection.h"

namespace phasor::cli {

// A picture of `values` [rows, columns]: blue below zero, white at zero, red above. A cell is a
// square of whole pixels. INVALID_ARGUMENT: no values, or more than 4096 rows or columns.
absl::StatusOr<Canvas> HeatMap(absl::Span<const double> values, int64_t rows, int64_t columns,
                               const std::string& title);

// The largest error of a sine or cosine at one position, over all pairs.
struct AngleError {
  int64_t position = 0;
  double exact = 0;          // of float32 values from integer phases, as Phasor computes them
  double float32_angle = 0;  // of sine and cosine of float32(position * float32(inv_freq))
};

// The errors at about `count` positions from 1 to `max_position`, evenly spaced on a logarithmic
// scale.
std::vector<AngleError> AngleErrors(const SpecDetails& spec, int64_t max_position, int count);

// Both curves over the position, with logarithmic axes.
Canvas ErrorChart(absl::Span<const AngleError> errors, const std::string& title);

}  // namespace phasor::cli

#endif  // PHASOR_CLIENT_CLI_PLOT_H_
