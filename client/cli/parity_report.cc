// SPDX-License-Identifier: Apache-2.0
#include "client/cli/parity_report.h"

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "kernels/plan.h"
#include "kernels/status_macros.h"
#include "kernels/text.h"

namespace phasor::cli {

absl::StatusOr<ParityReport> MakeParityReport(const Spec& spec, int64_t context_length,
                                              Dtype model) {
  if (context_length < 1) {
    return absl::InvalidArgumentError(
        StrCat("context_length: ", context_length, ", must be at least 1"));
  }
  PHASOR_ASSIGN_OR_RETURN(const ResolvedSpec resolved, ResolveSpec(spec));
  if (resolved.precision != Precision::kParity) {
    return absl::InvalidArgumentError(
        "context_length: given for a spec with precision EXACT, must be only for PARITY");
  }
  PHASOR_ASSIGN_OR_RETURN(const auto plan, CompilePlan(resolved));
  ParityReport report;
  report.context_length = context_length;
  report.positions = static_cast<int64_t>(parity::SampledPositions(context_length).size());
  report.model = model;
  report.largest = parity::LargestDifference(*plan, context_length, model);
  report.inv_freq = plan->parity->frequency;
  return report;
}

std::string FormatReport(const ParityReport& report) {
  const parity::Difference& d = report.largest;
  return absl::StrFormat(
      "largest difference from exact, positions below %d (%d looked at), %s tensors\n"
      "  angle           %.3g radians, at %d\n"
      "  sine or cosine  %.3g, at %d\n",
      report.context_length, report.positions, std::string(Name(report.model)), d.angle,
      d.angle_position, d.value, d.value_position);
}

nlohmann::ordered_json ToJson(const ParityReport& report) {
  const parity::Difference& d = report.largest;
  return {{"context_length", report.context_length},
          {"positions", report.positions},
          {"dtype", Name(report.model)},
          {"largest_angle_difference", d.angle},
          {"largest_angle_position", d.angle_position},
          {"largest_value_difference", d.value},
          {"largest_value_position", d.value_position},
          {"inv_freq", report.inv_freq}};
}

}  // namespace phasor::cli
