// SPDX-License-Identifier: Apache-2.0
#include "client/cli/parity_report.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "kernels/plan.h"
#include "kernels/presets.h"
#include "kernels/status_macros.h"
#include "kernels/text.h"

namespace phasor::cli {

namespace {

absl::StatusOr<ParityReport> Measure(const Spec& spec, int64_t context_length, Dtype model) {
  if (context_length < 1) {
    return absl::InvalidArgumentError(
        StrCat("context_length: ", context_length, ", must be at least 1"));
  }
  PHASOR_ASSIGN_OR_RETURN(const ResolvedSpec resolved, ResolveSpec(spec));
  PHASOR_ASSIGN_OR_RETURN(const auto plan, CompilePlan(resolved));
  ParityReport report;
  report.context_length = context_length;
  report.positions = static_cast<int64_t>(parity::SampledPositions(context_length).size());
  report.model = model;
  report.largest = parity::LargestDifference(*plan, context_length, model);
  report.inv_freq = plan->parity->frequency;
  return report;
}

}  // namespace

absl::StatusOr<std::optional<ParityReport>> MakeParityReport(Spec spec,
                                                             std::optional<int64_t> context_length,
                                                             Dtype model) {
  const bool asked = context_length.has_value();
  const Preset* const preset = FindPreset(spec.preset);
  const bool known =
      spec.parity.has_value() || (preset != nullptr && preset->spec.parity.has_value());
  if (!asked && preset != nullptr) context_length = preset->context_length;
  if (asked && !known) {
    return absl::InvalidArgumentError(
        "context_length: given for a spec without parity, must be only for one that has it");
  }
  if (!known || !context_length.has_value()) return std::nullopt;
  spec.precision = Precision::kParity;
  absl::StatusOr<ParityReport> report = Measure(spec, *context_length, model);
  if (report.ok()) return *std::move(report);
  // A preset with fields of its user's may have no PARITY.
  if (!asked) return std::nullopt;
  return std::move(report).status();
}

std::string FormatReport(const ParityReport& report) {
  const parity::Difference& d = report.largest;
  return absl::StrFormat(
      "largest difference of upstream's arithmetic (PARITY) from exact, positions below %d (%d "
      "looked "
      "at), %s tensors\n"
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
