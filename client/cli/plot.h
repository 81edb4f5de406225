// SPDX-License-Identifier: Apache-2.0
// Pictures of an encoding: its values, and what f32 angles would cost. Threads: pure functions.
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

// `values` [rows, columns] as a picture: blue below zero, white at zero, red above; one cell is a
// square of whole pixels. INVALID_ARGUMENT: nothing to draw, or more than 4096 rows or columns.
absl::StatusOr<Canvas> HeatMap(absl::Span<const double> values, int64_t rows, int64_t columns,
                               const std::string& title);

// Largest error over all pairs of a sine or cosine at one position.
struct AngleError {
  int64_t position = 0;
  double exact = 0;          // float32 values from integer phases, as Phasor computes them
  double float32_angle = 0;  // sines and cosines of float32(position * float32(inv_freq))
};

// At about `count` positions from 1 to `max_position`, equally far apart on a logarithmic scale.
std::vector<AngleError> AngleErrors(const SpecDetails& spec, int64_t max_position, int count);

// Both curves over position, both axes logarithmic.
Canvas ErrorChart(absl::Span<const AngleError> errors, const std::string& title);

}  // namespace phasor::cli

#endif  // PHASOR_CLIENT_CLI_PLOT_H_
