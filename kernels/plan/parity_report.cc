// SPDX-License-Identifier: Apache-2.0
// Decides whether a spec can be compared, compiles it with PARITY and measures the difference.
#include "kernels/plan/parity_report.h"

#include <utility>

#include "absl/status/status.h"
#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"
#include "kernels/plan/plan.h"
#include "kernels/spec/presets.h"

namespace phasor::parity {
namespace {

absl::StatusOr<Report> Measure(const Spec& spec, int64_t context_length, Dtype model) {
  PHASOR_ASSIGN_OR_RETURN(const ResolvedSpec resolved, ResolveSpec(spec));
  PHASOR_ASSIGN_OR_RETURN(const auto plan, CompilePlan(resolved));
  const std::vector<int64_t> positions = SampledPositions(context_length, MostPositions(*plan));
  return Report{.context_length = context_length,
                .positions = static_cast<int64_t>(positions.size()),
                .model = model,
                .largest = LargestDifference(*plan, positions, model),
                .inv_freq = plan->parity->frequency};
}

}  // namespace

absl::StatusOr<std::optional<Report>> Compare(Spec spec, const Comparison& comparison) {
  std::optional<int64_t> context_length = comparison.context_length;
  const bool asked = context_length.has_value();
  const Preset* const preset = FindPreset(spec.preset);
  const bool known =
      spec.parity.has_value() || (preset != nullptr && preset->spec.parity.has_value());
  if (!IsComputeDtype(comparison.model)) {
    return Invalid("parity_comparison.dtype: ", Name(comparison.model),
                   "; must be FLOAT64, FLOAT32, FLOAT16 or BFLOAT16");
  }
  if (asked && *context_length < 1) {
    return Invalid("parity_comparison.context_length: ", *context_length, "; must be at least 1");
  }
  if (asked && !known) {
    return Invalid(
        "parity_comparison.context_length: given for a spec without parity; must be only for one "
        "that has it");
  }
  if (!asked && preset != nullptr) context_length = preset->context_length;
  if (!known || !context_length.has_value()) return std::nullopt;
  spec.precision = Precision::kParity;
  absl::StatusOr<Report> report = Measure(spec, *context_length, comparison.model);
  if (report.ok()) return *std::move(report);
  // A preset whose fields the user has overridden may not have PARITY arithmetic.
  if (!asked) return std::nullopt;
  return std::move(report).status();
}

}  // namespace phasor::parity
