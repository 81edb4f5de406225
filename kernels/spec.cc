// SPDX-License-Identifier: Apache-2.0
// Spec -> ResolvedSpec: base, overrides, checks, canonical value; and the way back.
#include "kernels/spec.h"

#include <bit>
#include <cmath>
#include <iterator>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "kernels/presets.h"
#include "kernels/spec_names.h"
#include "kernels/status_macros.h"
#include "kernels/text.h"

namespace phasor {
namespace {

template <typename T>
void Override(std::optional<T>& base, const std::optional<T>& with) {
  if (with.has_value()) base = with;
}

template <typename T>
void Override(std::vector<T>& base, const std::vector<T>& with) {
  if (!with.empty()) base = with;
}

// `base` with every field that `with` sets replaced.
Spec Merge(Spec base, const Spec& with) {
  Override(base.kind, with.kind);
  Override(base.dim, with.dim);
  Override(base.axes, with.axes);
  Override(base.axes_dim, with.axes_dim);
  Override(base.family, with.family);
  Override(base.rope_theta, with.rope_theta);
  Override(base.downscale_freq_shift, with.downscale_freq_shift);
  Override(base.min_period, with.min_period);
  Override(base.max_period, with.max_period);
  Override(base.position_scale, with.position_scale);
  Override(base.order, with.order);
  Override(base.arrangement, with.arrangement);
  Override(base.grouping, with.grouping);
  Override(base.head_dim, with.head_dim);
  Override(base.rotary_begin, with.rotary_begin);
  Override(base.pairing, with.pairing);
  Override(base.pairing_out, with.pairing_out);
  Override(base.axis_rule, with.axis_rule);
  Override(base.attention_factor, with.attention_factor);
  Override(base.pad_back, with.pad_back);
  if (with.rotary_dim.has_value() || with.partial_rotary_factor.has_value()) {
    base.rotary_dim = with.rotary_dim;  // the two exclude each other
    base.partial_rotary_factor = with.partial_rotary_factor;
  }
  return base;
}

bool IsPeriods(FrequencyFamily family) {
  return family == FrequencyFamily::kPeriods || family == FrequencyFamily::kPeriodsExclusive;
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
    if (!user_.inv_freq.empty()) return Unbuilt("inv_freq", "a list of frequencies");
    if (!user_.mrope_section.empty()) return Unbuilt("mrope_section", "an M-RoPE section list");
    if (!user_.axis_of_pair.empty()) return Unbuilt("axis_of_pair", "an axis per pair");
    if (user_.precision == Precision::kParity) return Unbuilt("precision", "PARITY");
    if (user_.order == TrigOrder::kCosOnly) return Unbuilt("order", "COS_ONLY");
    if (user_.family == FrequencyFamily::kExplicit || user_.family == FrequencyFamily::kLinear) {
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
    merged_ = Merge(preset->spec, user_);
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
    const bool encoding = out_.kind == SpecKind::kEncoding;
    const bool paired = out_.family != FrequencyFamily::kPerElement;
    const bool periods = IsPeriods(out_.family);
    const struct {
      std::string_view name;
      bool set;
      bool used;
    } fields[] = {
        {"dim", user_.dim.has_value(), encoding},
        {"rope_theta", user_.rope_theta.has_value(), !periods},
        {"downscale_freq_shift", user_.downscale_freq_shift.has_value(), paired && !periods},
        {"min_period", user_.min_period.has_value(), periods},
        {"max_period", user_.max_period.has_value(), periods},
        {"order", user_.order.has_value(), encoding && paired},
        {"arrangement", user_.arrangement.has_value(), encoding && paired},
        {"grouping", user_.grouping.has_value(), encoding},
        {"pad_back", user_.pad_back.has_value(), encoding && !periods},
        {"head_dim", user_.head_dim.has_value(), !encoding},
        {"rotary_dim", user_.rotary_dim.has_value(), !encoding},
        {"rotary_begin", user_.rotary_begin.has_value(), !encoding},
        {"partial_rotary_factor", user_.partial_rotary_factor.has_value(), !encoding},
        {"pairing", user_.pairing.has_value(), !encoding},
        {"pairing_out", user_.pairing_out.has_value(), !encoding},
        {"axis_rule", user_.axis_rule.has_value(), !encoding},
        {"attention_factor", user_.attention_factor.has_value(), !encoding},
    };
    for (const auto& field : fields) {
      if (!field.set || field.used) continue;
      return Invalid(field.name, "has no meaning for ", Name(out_.kind), " specs of family ",
                     Name(out_.family), ", must not be set");
    }
    return absl::OkStatus();
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
    if (IsPeriods(out_.family)) {
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
    if (IsPeriods(out_.family) && out_.axes != 1) {
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
    if (IsPeriods(out_.family)) return Invalid("dim", out_.dim, " is odd, must be even");
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

  const Spec& user_;
  std::string_view path_;
  Spec merged_;
  ResolvedSpec out_;
};

// 128-bit FNV-1a over tagged little-endian values.
class Hasher {
 public:
  void Byte(uint8_t byte) {
    constexpr unsigned __int128 kPrime = (static_cast<unsigned __int128>(1) << 88) + 0x13B;
    hash_ = (hash_ ^ byte) * kPrime;
  }
  void Word(uint64_t word) {
    for (int shift = 0; shift < 64; shift += 8) Byte(static_cast<uint8_t>(word >> shift));
  }
  // Values at their default leave no trace, so a field that is added later changes no older hash.
  void Field(uint8_t tag, int64_t value, int64_t default_value) {
    if (value == default_value) return;
    Byte(tag);
    Word(static_cast<uint64_t>(value));
  }
  void Field(uint8_t tag, double value, double default_value) {
    Field(tag, std::bit_cast<int64_t>(value), std::bit_cast<int64_t>(default_value));
  }
  std::string Hex() const {
    constexpr char kDigits[] = "0123456789abcdef";
    std::string hex;
    for (int shift = 124; shift >= 0; shift -= 4)
      hex += kDigits[static_cast<int>(hash_ >> shift) & 15];
    return hex;
  }

 private:
  unsigned __int128 hash_ =
      (static_cast<unsigned __int128>(0x6c62272e07bb0142) << 64) | 0x62b821756295c58d;
};

}  // namespace

absl::StatusOr<ResolvedSpec> ResolveSpec(const Spec& spec, std::string_view path) {
  return Resolver(spec, path).Run();
}

Spec ToSpec(const ResolvedSpec& resolved) {
  Spec spec;
  spec.kind = resolved.kind;
  spec.axes = resolved.axes;
  spec.axes_dim = resolved.axes_dim;
  spec.family = resolved.family;
  spec.position_scale = resolved.position_scale;
  spec.precision = Precision::kExact;
  const bool paired = resolved.family != FrequencyFamily::kPerElement;
  if (IsPeriods(resolved.family)) {
    spec.min_period = resolved.min_period;
    spec.max_period = resolved.max_period;
  } else {
    spec.rope_theta = resolved.rope_theta;
    if (paired) spec.downscale_freq_shift = resolved.downscale_freq_shift;
  }
  if (resolved.kind == SpecKind::kEncoding) {
    spec.dim = resolved.dim;
    spec.grouping = resolved.grouping;
    if (paired) spec.order = resolved.order;
    if (paired) spec.arrangement = resolved.arrangement;
    if (!IsPeriods(resolved.family)) spec.pad_back = resolved.pad_back;
  } else {
    spec.head_dim = resolved.head_dim;
    spec.rotary_dim = resolved.rotary_dim;
    spec.rotary_begin = resolved.rotary_begin;
    spec.pairing = resolved.pairing;
    spec.pairing_out = resolved.pairing_out;
    spec.axis_rule = resolved.axes == 1 ? AxisRule::kSingle : AxisRule::kAxial;
    spec.attention_factor = resolved.attention_factor;
  }
  return spec;
}

std::string Fingerprint(const ResolvedSpec& spec) {
  const ResolvedSpec defaults;
  const auto number = [](auto e) { return static_cast<int64_t>(e); };
  Hasher hasher;
  hasher.Field(0, int64_t{kNumericsVersion}, 0);
  hasher.Field(1, number(spec.kind), number(defaults.kind));
  hasher.Field(2, spec.dim, defaults.dim);
  hasher.Field(3, int64_t{spec.axes}, 0);
  for (const int64_t width : spec.axes_dim) hasher.Field(4, width, 0);
  hasher.Field(5, number(spec.family), number(defaults.family));
  hasher.Field(6, spec.rope_theta, defaults.rope_theta);
  hasher.Field(7, spec.downscale_freq_shift, defaults.downscale_freq_shift);
  hasher.Field(8, spec.min_period, defaults.min_period);
  hasher.Field(9, spec.max_period, defaults.max_period);
  hasher.Field(10, spec.position_scale, defaults.position_scale);
  hasher.Field(11, number(spec.order), number(defaults.order));
  hasher.Field(12, number(spec.arrangement), number(defaults.arrangement));
  hasher.Field(13, number(spec.grouping), number(defaults.grouping));
  hasher.Field(14, spec.pad_back, defaults.pad_back);
  hasher.Field(15, spec.head_dim, defaults.head_dim);
  hasher.Field(16, spec.rotary_dim, defaults.rotary_dim);
  hasher.Field(17, spec.rotary_begin, defaults.rotary_begin);
  hasher.Field(18, number(spec.pairing), number(defaults.pairing));
  hasher.Field(19, number(spec.pairing_out), number(defaults.pairing_out));
  hasher.Field(20, spec.attention_factor, defaults.attention_factor);
  return hasher.Hex();
}

}  // namespace phasor
