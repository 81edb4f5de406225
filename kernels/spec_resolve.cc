// SPDX-License-Identifier: Apache-2.0
// Spec -> ResolvedSpec: base, overrides, checks, canonical value.
#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "kernels/parity/check.h"
#include "kernels/presets.h"
#include "kernels/spec.h"
#include "kernels/spec_fields.h"
#include "kernels/spec_names.h"
#include "kernels/status_macros.h"
#include "kernels/text.h"

namespace phasor {
namespace {

// The first field that is set and not built yet, or nullptr.
const char* UnbuiltField(const Spec& spec) {
  if (spec.frequency_unit == FrequencyUnit::kTurns) return "frequency_unit";
  if (!spec.phase.empty()) return "phase";
  if (spec.min_freq.has_value()) return "min_freq";
  if (spec.max_freq.has_value()) return "max_freq";
  if (spec.live_pairs.has_value()) return "live_pairs";
  if (!spec.axes_theta.empty()) return "axes_theta";
  if (!spec.axes_position_scale.empty()) return "axes_position_scale";
  if (spec.frequency_heads.has_value()) return "frequency_heads";
  if (spec.sequence_length.has_value()) return "sequence_length";
  if (spec.cos_bias.has_value()) return "cos_bias";
  if (spec.pad_front.has_value()) return "pad_front";
  if (spec.odd_dim == OddDim::kSplit) return "odd_dim";
  if (spec.xpos.has_value()) return "xpos";
  return nullptr;
}

double WithoutNegativeZero(double x) { return x == 0 ? 0.0 : x; }

// One resolution. Borrows the user's spec and the path.
// Threads: one thread.
class Resolver {
 public:
  Resolver(const Spec& user, std::string_view path) : user_(user), path_(path) {}

  absl::StatusOr<ResolvedSpec> Run() {
    PHASOR_RETURN_IF_ERROR(CheckBuilt());
    PHASOR_RETURN_IF_ERROR(ApplyBase());
    PHASOR_RETURN_IF_ERROR(ResolveKindAndFamily());
    PHASOR_RETURN_IF_ERROR(RejectUnusedFields());
    PHASOR_RETURN_IF_ERROR(ResolveFrequencies());
    if (out_.kind == SpecKind::kEncoding) {
      PHASOR_RETURN_IF_ERROR(ResolveEncoding());
    } else {
      PHASOR_RETURN_IF_ERROR(ResolveRotary());
    }
    PHASOR_RETURN_IF_ERROR(CheckDenominators());
    PHASOR_RETURN_IF_ERROR(ResolvePrecision());
    return std::move(out_);
  }

 private:
  template <typename... T>
  absl::Status Invalid(std::string_view field, const T&... message) const {
    return absl::InvalidArgumentError(StrCat(path_, ".", field, ": ", message...));
  }
  absl::Status Missing(std::string_view field) const { return Invalid(field, "not set, required"); }
  absl::Status Unbuilt(std::string_view field, std::string_view what) const {
    return absl::UnimplementedError(StrCat(path_, ".", field, ": ", what, " is not built yet"));
  }

  // What the wire knows and this version does not compute.
  absl::Status CheckBuilt() const {
    const int bases = !user_.preset.empty() + !user_.config_json.empty() + !user_.encoder.empty();
    if (bases > 1)
      return Invalid("preset",
                     "more than one base, at most one of preset, config_json and encoder");
    if (!user_.config_json.empty())
      return Unbuilt("config_json", "reading a model's configuration");
    if (!user_.encoder.empty()) {
      return absl::NotFoundError(StrCat(path_, ".encoder: no encoder named \"", user_.encoder,
                                        "\" is configured, must be a configured name"));
    }
    if (!std::holds_alternative<std::monostate>(user_.rope_scaling)) {
      return Unbuilt("rope_scaling", "scaling for longer contexts");
    }
    if (const char* field = UnbuiltField(user_)) return Unbuilt(field, "this field");
    if (!user_.inv_freq.empty()) return Unbuilt("inv_freq", "a list of frequencies");
    if (!user_.mrope_section.empty()) return Unbuilt("mrope_section", "an M-RoPE section list");
    if (!user_.axis_of_pair.empty()) return Unbuilt("axis_of_pair", "an axis per pair");
    if (user_.order == TrigOrder::kCosOnly) return Unbuilt("order", "COS_ONLY");
    if (user_.family == FrequencyFamily::kExplicit || user_.family == FrequencyFamily::kLinear ||
        user_.family == FrequencyFamily::kLogRange) {
      return Unbuilt("family", Name(*user_.family));
    }
    if (user_.axis_rule.has_value() && *user_.axis_rule != AxisRule::kSingle &&
        *user_.axis_rule != AxisRule::kAxial) {
      return Unbuilt("axis_rule", Name(*user_.axis_rule));
    }
    return absl::OkStatus();
  }

  absl::Status ApplyBase() {
    if (user_.preset.empty()) {
      merged_ = user_;
      return absl::OkStatus();
    }
    const Preset* preset = FindPreset(user_.preset);
    if (preset == nullptr) {
      return absl::NotFoundError(StrCat(path_, ".preset: no preset named \"", user_.preset,
                                        "\", must be one of ListPresets"));
    }
    merged_ = MergeSpec(preset->spec, user_);
    return absl::OkStatus();
  }

  absl::Status ResolveKindAndFamily() {
    if (!merged_.kind.has_value()) return Missing("kind");
    if (!merged_.family.has_value()) return Missing("family");
    out_.kind = *merged_.kind;
    out_.family = *merged_.family;
    if (out_.kind == SpecKind::kRotary && out_.family == FrequencyFamily::kPerElement) {
      return Invalid("family",
                     "PER_ELEMENT makes no pairs, a ROTARY spec takes GEOMETRIC, PERIODS or "
                     "PERIODS_EXCLUSIVE");
    }
    return absl::OkStatus();
  }

  // A field that would change nothing is a misunderstanding. A preset's own fields may go unused
  // when the caller overrides its kind or family.
  absl::Status RejectUnusedFields() const {
    absl::Status status;
    VisitSpecFields([&](const SpecField& field, auto member, auto) {
      if (!IsSet(user_.*member) || field.used(out_) || !status.ok()) return;
      status = Invalid(field.name, "has no meaning for ", Name(out_.kind), " specs of family ",
                       Name(out_.family), ", must not be set");
    });
    return status;
  }

  absl::Status Positive(std::string_view field, const std::optional<double>& value,
                        double* out) const {
    if (!value.has_value()) return Missing(field);
    if (!std::isfinite(*value) || *value <= 0)
      return Invalid(field, *value, ", must be finite and > 0");
    *out = *value;
    return absl::OkStatus();
  }

  absl::Status Finite(std::string_view field, const std::optional<double>& value,
                      double* out) const {
    if (!value.has_value()) return absl::OkStatus();
    if (!std::isfinite(*value)) return Invalid(field, *value, ", must be finite");
    *out = WithoutNegativeZero(*value);
    return absl::OkStatus();
  }

  absl::Status ResolveFrequencies() {
    PHASOR_RETURN_IF_ERROR(Finite("position_scale", merged_.position_scale, &out_.position_scale));
    if (field_use::IsPeriods(out_)) {
      PHASOR_RETURN_IF_ERROR(Positive("min_period", merged_.min_period, &out_.min_period));
      return Positive("max_period", merged_.max_period, &out_.max_period);
    }
    PHASOR_RETURN_IF_ERROR(Positive("rope_theta", merged_.rope_theta, &out_.rope_theta));
    if (out_.family == FrequencyFamily::kPerElement) return absl::OkStatus();
    return Finite("downscale_freq_shift", merged_.downscale_freq_shift, &out_.downscale_freq_shift);
  }

  absl::Status ResolveEncoding() {
    PHASOR_RETURN_IF_ERROR(ResolveArrangement());
    PHASOR_RETURN_IF_ERROR(ResolveDim());
    PHASOR_RETURN_IF_ERROR(ResolveAxes());
    if (field_use::IsPeriods(out_) && out_.axes != 1) {
      return Invalid("axes", out_.axes, ", an encoding of family ", Name(out_.family), " takes 1");
    }
    const int64_t content = out_.dim - out_.pad_back;
    if (out_.axes == 1) {
      out_.grouping = AxisGrouping::kAxisMajor;  // one block, whatever the grouping
    }
    return ResolveAxesDim("dim", content, out_.grouping == AxisGrouping::kSum);
  }

  absl::Status ResolveArrangement() {
    out_.grouping = merged_.grouping.value_or(AxisGrouping::kAxisMajor);
    const bool component_major = out_.grouping == AxisGrouping::kComponentMajor;
    if (out_.family == FrequencyFamily::kPerElement) {
      if (component_major)
        return Invalid("grouping", "COMPONENT_MAJOR, PER_ELEMENT takes AXIS_MAJOR or SUM");
      return absl::OkStatus();
    }
    if (!merged_.order.has_value()) return Missing("order");
    if (!merged_.arrangement.has_value()) return Missing("arrangement");
    out_.order = *merged_.order;
    out_.arrangement = *merged_.arrangement;
    if (component_major && out_.arrangement == Arrangement::kInterleaved) {
      return Invalid("arrangement", "INTERLEAVED, COMPONENT_MAJOR grouping takes CONCATENATED");
    }
    return absl::OkStatus();
  }

  absl::Status ResolveDim() {
    if (!merged_.dim.has_value()) return Missing("dim");
    out_.dim = *merged_.dim;
    if (out_.dim < 1 || out_.dim > kMaxWidth) {
      return Invalid("dim", out_.dim, " is out of range, must be in [1, ", kMaxWidth, "]");
    }
    const int64_t pad = merged_.pad_back.value_or(0);
    if (pad < 0 || pad > 1) return Invalid("pad_back", pad, " is out of range, must be 0 or 1");
    if (out_.dim % 2 == 0) return absl::OkStatus();
    if (field_use::IsPeriods(out_)) return Invalid("dim", out_.dim, " is odd, must be even");
    if (pad == 0) return Invalid("dim", out_.dim, " is odd, must be even unless pad_back is 1");
    if (out_.dim == 1)
      return Invalid("dim", "1 leaves no room beside the padding, must be at least 3");
    out_.pad_back = 1;
    return absl::OkStatus();
  }

  absl::Status ResolveAxes() {
    const int64_t listed = static_cast<int64_t>(merged_.axes_dim.size());
    const int64_t axes = merged_.axes.value_or(
        listed == 0 ? 1 : static_cast<int>(std::min<int64_t>(listed, kMaxAxes + 1)));
    if (axes < 1 || axes > kMaxAxes) {
      return Invalid(
          merged_.axes.has_value() ? "axes" : "axes_dim",
          axes > kMaxAxes ? StrCat("more than ", kMaxAxes, " axes") : StrCat(axes, " axes"),
          ", must be in [1, ", kMaxAxes, "]");
    }
    if (listed != 0 && listed != axes) {
      return Invalid("axes_dim", listed, " entries, must be as many as axes (", axes, ")");
    }
    out_.axes = static_cast<int>(axes);
    return absl::OkStatus();
  }

  // The width of each axis' block: given, or equal shares of `width`. `shared`: every axis has all.
  absl::Status ResolveAxesDim(std::string_view width_field, int64_t width, bool shared) {
    out_.axes_dim = merged_.axes_dim;
    if (out_.axes_dim.empty()) {
      const int64_t share = shared ? width : width / out_.axes;
      if (!shared && share * out_.axes != width) {
        return Invalid("axes_dim", "not set, required since ", width_field, " ", width,
                       " does not split evenly over ", out_.axes, " axes");
      }
      out_.axes_dim.assign(out_.axes, share);
    }
    int64_t sum = 0;
    for (size_t a = 0; a < out_.axes_dim.size(); ++a) {
      const int64_t block = out_.axes_dim[a];
      const std::string field = StrCat("axes_dim[", a, "]");
      if (block < 2 || block > width || block % 2 != 0) {
        return Invalid(field, block, ", must be even and in [2, ", width, "]");
      }
      if (shared && block != width)
        return Invalid(field, block, ", must be ", width, " for grouping SUM");
      sum += block;
    }
    if (!shared && sum != width) {
      return Invalid("axes_dim", "sums to ", sum, ", must sum to ", width, " (", width_field, ")");
    }
    return absl::OkStatus();
  }

  absl::Status ResolveRotary() {
    if (!merged_.head_dim.has_value()) return Missing("head_dim");
    out_.head_dim = *merged_.head_dim;
    if (out_.head_dim < 2 || out_.head_dim > kMaxWidth) {
      return Invalid("head_dim", out_.head_dim, " is out of range, must be in [2, ", kMaxWidth,
                     "]");
    }
    PHASOR_RETURN_IF_ERROR(ResolveRotaryDim());
    if (!merged_.pairing.has_value()) return Missing("pairing");
    out_.pairing = *merged_.pairing;
    out_.pairing_out = merged_.pairing_out.value_or(out_.pairing);
    PHASOR_RETURN_IF_ERROR(
        Finite("attention_factor", merged_.attention_factor, &out_.attention_factor));
    PHASOR_RETURN_IF_ERROR(ResolveAxes());
    if (merged_.axis_rule == AxisRule::kSingle && out_.axes != 1) {
      return Invalid("axis_rule", "SINGLE, must be AXIAL for ", out_.axes, " axes");
    }
    out_.axis_rule = out_.axes == 1 ? AxisRule::kSingle : AxisRule::kAxial;
    return ResolveAxesDim("rotary_dim", out_.rotary_dim, /*shared=*/false);
  }

  absl::Status ResolveRotaryDim() {
    out_.rotary_begin = merged_.rotary_begin.value_or(0);
    if (out_.rotary_begin < 0 || out_.rotary_begin > out_.head_dim - 2) {
      return Invalid("rotary_begin", out_.rotary_begin, " is out of range, must be in [0, ",
                     out_.head_dim - 2, "]");
    }
    if (merged_.rotary_dim.has_value() && merged_.partial_rotary_factor.has_value()) {
      return Invalid("partial_rotary_factor", "set beside rotary_dim, at most one of them");
    }
    std::string_view field = "rotary_dim";
    out_.rotary_dim = merged_.rotary_dim.value_or(out_.head_dim);
    if (const auto& factor = merged_.partial_rotary_factor; factor.has_value()) {
      field = "partial_rotary_factor";
      if (!(*factor > 0 && *factor <= 1)) return Invalid(field, *factor, ", must be in (0, 1]");
      out_.rotary_dim = static_cast<int64_t>(static_cast<double>(out_.head_dim) * *factor);
    }
    const std::string given = field == "rotary_dim" ? StrCat(out_.rotary_dim)
                                                    : StrCat("gives rotary_dim ", out_.rotary_dim);
    if (out_.rotary_dim % 2 != 0) return Invalid(field, given, " is odd, must be even");
    const int64_t room = out_.head_dim - out_.rotary_begin;
    if (out_.rotary_dim < 2 || out_.rotary_dim > room) {
      return Invalid(field, given, " is out of range, must be in [2, ", room,
                     "] (head_dim - rotary_begin)");
    }
    return absl::OkStatus();
  }

  // base^(-j / (n - shift)) needs n != shift, except that one pair has exponent 0 in any case.
  absl::Status CheckDenominators() const {
    for (const int64_t width : out_.axes_dim) {
      const int64_t pairs = width / 2;
      if (pairs > 1 && static_cast<double>(pairs) == out_.downscale_freq_shift) {
        return Invalid("downscale_freq_shift", out_.downscale_freq_shift,
                       " is the number of pairs, must differ from it");
      }
    }
    return absl::OkStatus();
  }

  absl::Status ResolvePrecision() {
    out_.precision = merged_.precision.value_or(Precision::kExact);
    if (out_.precision == Precision::kExact) {
      return user_.parity.has_value()
                 ? Invalid("parity", "set beside precision EXACT, must be only for PARITY")
                 : absl::OkStatus();
    }
    if (!merged_.parity.has_value()) {
      return Invalid("parity", "not set, required for precision PARITY",
                     user_.preset.empty() ? "" : StrCat(": preset ", user_.preset, " names none"));
    }
    PHASOR_ASSIGN_OR_RETURN(out_.parity, parity::Resolve(*merged_.parity, out_, path_));
    return absl::OkStatus();
  }

  const Spec& user_;
  std::string_view path_;
  Spec merged_;
  ResolvedSpec out_;
};

}  // namespace

absl::StatusOr<ResolvedSpec> ResolveSpec(const Spec& spec, std::string_view path) {
  return Resolver(spec, path).Run();
}

}  // namespace phasor
