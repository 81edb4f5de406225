// SPDX-License-Identifier: Apache-2.0
// Checks the stages of parity arithmetic one by one, and the combinations of stages that ggml has.
#include "kernels/spec/parity_check.h"

#include <optional>
#include <variant>

#include "absl/status/status.h"
#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"
#include "kernels/spec/names.h"

namespace phasor::parity {
namespace {

template <typename... T>
absl::Status InvalidParity(std::string_view path, std::string_view field, const T&... message) {
  return Invalid(path, ".parity.", field, ": ", message...);
}

absl::Status Missing(std::string_view path, std::string_view field) {
  return InvalidParity(path, field, "not set; must be given for precision PARITY");
}

// These stages run before there is a tensor, so they cannot take its type.
absl::Status CheckOwnType(std::string_view path, std::string_view field,
                          std::optional<ParityType> type) {
  if (type != ParityType::kModel) return absl::OkStatus();
  return InvalidParity(path, field, "MODEL; must be FLOAT64, FLOAT32, FLOAT16 or BFLOAT16");
}

// Parity computes powers and quotients of many digits for every frequency, so widths are limited.
constexpr int64_t kMaxWidth = 8192;

absl::Status CheckWidth(const ResolvedSpec& spec, std::string_view path) {
  const int64_t width =
      spec.kind == SpecKind::kRotary ? spec.rotary_dim * spec.frequency_heads : spec.dim;
  if (width <= kMaxWidth) return absl::OkStatus();
  return Invalid(path, ".precision: PARITY of ", width, " columns; must be at most ", kMaxWidth);
}

absl::Status CheckFrequency(ParityFrequency frequency, const ResolvedSpec& spec,
                            std::string_view path) {
  const bool pow =
      frequency == ParityFrequency::kFloat32Pow || frequency == ParityFrequency::kFloat64;
  if (pow) return absl::OkStatus();
  if (spec.family != FrequencyFamily::kGeometric) {
    return InvalidParity(path, "frequency", Name(frequency), " makes GEOMETRIC frequencies; ",
                         Name(spec.family), " takes FLOAT32_POW or FLOAT64");
  }
  const bool by_division =
      !IsSet(spec.rope_scaling) || std::holds_alternative<LinearScaling>(spec.rope_scaling);
  if (frequency != ParityFrequency::kGgml && !by_division) {
    return InvalidParity(path, "frequency", Name(frequency),
                         " goes with no rope_scaling but linear; must be FLOAT32_POW or FLOAT64");
  }
  if (frequency == ParityFrequency::kGgml && spec.kind != SpecKind::kRotary) {
    return InvalidParity(path, "frequency", "GGML has no encodings; must be another one");
  }
  return absl::OkStatus();
}

// Refuses what ggml cannot express.
absl::Status CheckGgml(const ParityArithmetic& given, const ResolvedSpec& spec,
                       std::string_view path) {
  if (given.angle != ParityType::kFloat32) {
    return InvalidParity(path, "angle", Name(*given.angle), "; GGML takes FLOAT32");
  }
  if (spec.position_scale != 1 || !spec.axes_position_scale.empty() ||
      spec.downscale_freq_shift != 0 || spec.live_pairs.has_value() || !spec.phase.empty() ||
      spec.frequency_unit != FrequencyUnit::kRadians) {
    return InvalidParity(
        path, "frequency",
        "GGML has no position scales, downscale_freq_shift, live_pairs, phase or TURNS; "
        "must not be set");
  }
  const auto* yarn = std::get_if<YarnScaling>(&spec.rope_scaling);
  if (yarn != nullptr && (!*yarn->truncate || *yarn->log_interpolation)) {
    return InvalidParity(
        path, "frequency",
        "GGML truncates YaRN's range and interpolates linearly; rope_scaling must too");
  }
  if (std::holds_alternative<MixedNtkScaling>(spec.rope_scaling)) {
    return InvalidParity(path, "frequency", "GGML has no mixed_ntk; must be another rope_scaling");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ParityArithmetic> Resolve(const ParityArithmetic& given, const ResolvedSpec& spec,
                                         std::string_view path) {
  if (!given.frequency.has_value()) return Missing(path, "frequency");
  if (!given.angle.has_value()) return Missing(path, "angle");
  if (!given.table.has_value()) return Missing(path, "table");
  if (spec.xpos.has_value()) {
    return Invalid(path, ".xpos: has no PARITY arithmetic; precision must be EXACT");
  }
  PHASOR_RETURN_IF_ERROR(CheckWidth(spec, path));
  const bool rotary = spec.kind == SpecKind::kRotary;
  if (rotary && !given.math.has_value()) return Missing(path, "math");
  PHASOR_RETURN_IF_ERROR(CheckOwnType(path, "frequency_storage", given.frequency_storage));
  PHASOR_RETURN_IF_ERROR(CheckOwnType(path, "position", given.position));
  PHASOR_RETURN_IF_ERROR(CheckOwnType(path, "angle", given.angle));
  PHASOR_RETURN_IF_ERROR(CheckFrequency(*given.frequency, spec, path));
  if (given.frequency == ParityFrequency::kGgml) {
    PHASOR_RETURN_IF_ERROR(CheckGgml(given, spec, path));
  }
  ParityArithmetic out = given;
  if (!out.position.has_value()) out.position = out.angle;
  if (!out.math.has_value()) out.math = ParityType::kModel;
  return out;
}

}  // namespace phasor::parity
