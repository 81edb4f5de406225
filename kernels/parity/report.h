// SPDX-License-Identifier: Apache-2.0
// How far a spec's PARITY arithmetic is from the exact one, for `phasor resolve`.
// Threads: pure functions.
#ifndef PHASOR_CLIENT_CLI_PARITY_REPORT_H_
#define PHASOR_CLIENT_CLI_PARITY_REPORT_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/dtype.h"
#include "kernels/parity/difference.h"
#include "kernels/spec.h"

namespace phasor::cli {

struct ParityReport {
  int64_t context_length = 0;
  int64_t positions = 0;  // that were looked at
  Dtype model = Dtype::kBFloat16;
  parity::Difference largest;
  std::vector<double> inv_freq;  // as rounded, radians per position; empty for GGML
};

// How far upstream's arithmetic, the `parity` block of `spec` or of its preset, is from the exact
// one below `context_length`, or below its preset's. Computed here: the numbers are the same
// everywhere. nullopt: nothing is known of an upstream, or how far to look, and nothing was asked
// for. INVALID_ARGUMENT: a context_length below 1, or beside a spec that has no PARITY.
absl::StatusOr<std::optional<ParityReport>> MakeParityReport(Spec spec,
                                                             std::optional<int64_t> context_length,
                                                             Dtype model);

std::string FormatReport(const ParityReport& report);
nlohmann::ordered_json ToJson(const ParityReport& report);

}  // namespace phasor::cli

#endif  // PHASOR_CLIENT_CLI_PARITY_REPORT_H_
