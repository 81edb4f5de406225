// SPDX-License-Identifier: Apache-2.0
#include "client/cli/spec_flags.h"

#include <cstdint>
#include <optional>

#include "kernels/spec_names.h"

namespace phasor::cli {
namespace {

using Json = nlohmann::ordered_json;

template <typename E>
void AddEnum(CLI::App& app, const std::string& flag, std::optional<E>& field, std::vector<E> values,
             const std::string& help) {
  AddEnumFlag<E>(
      app, flag, std::move(values), +[](E value) { return Name(value); },
      [&field](E value) { field = value; }, help)
      ->group("Spec");
}

// Writes the fields of a spec that are set.
class Writer {
 public:
  template <typename T>
  void Put(const char* name, const std::optional<T>& value) {
    if (!value.has_value()) return;
    if constexpr (std::is_enum_v<T>) {
      json_[name] = Name(*value);
    } else {
      json_[name] = *value;
    }
  }
  template <typename T>
  void Put(const char* name, const T& list) {
    if (!list.empty()) json_[name] = list;
  }
  Json Take() { return std::move(json_); }

 private:
  Json json_ = Json::object();
};

}  // namespace

void AddSpecFlags(CLI::App& app, Spec& spec) {
  auto add = [&app](const std::string& flag, auto& field, const std::string& help) {
    return app.add_option(flag, field, help)->group("Spec");
  };
  add("--preset", spec.preset, "Name of a preset, see `phasor presets`; the flags override it");
  AddEnum(app, "--kind", spec.kind, {SpecKind::kEncoding, SpecKind::kRotary},
          "Rows of an embedding, or a rotation");
  add("--dim", spec.dim, "Width of an encoding row, in [1, 65536]");
  add("--axes", spec.axes, "Position axes, in [1, 4]");
  add("--axes-dim", spec.axes_dim, "Width of each axis' block, comma separated")->delimiter(',');
  AddEnum(
      app, "--family", spec.family,
      {FrequencyFamily::kGeometric, FrequencyFamily::kPerElement, FrequencyFamily::kPeriods,
       FrequencyFamily::kPeriodsExclusive, FrequencyFamily::kExplicit, FrequencyFamily::kLinear},
      "How frequencies are made");
  add("--rope-theta", spec.rope_theta, "Base of the geometric ladder, above 0");
  add("--downscale-freq-shift", spec.downscale_freq_shift, "Subtracted from the denominator");
  add("--min-period", spec.min_period, "Smallest period, above 0");
  add("--max-period", spec.max_period, "Largest period, above 0");
  add("--inv-freq", spec.inv_freq, "Explicit frequencies in radians, comma separated")
      ->delimiter(',');
  add("--position-scale", spec.position_scale, "Positions are multiplied by this");
  AddEnum(app, "--order", spec.order, {TrigOrder::kSinCos, TrigOrder::kCosSin, TrigOrder::kCosOnly},
          "Sine or cosine first");
  AddEnum(app, "--arrangement", spec.arrangement,
          {Arrangement::kInterleaved, Arrangement::kConcatenated}, "How components lie in a row");
  AddEnum(app, "--grouping", spec.grouping,
          {AxisGrouping::kAxisMajor, AxisGrouping::kComponentMajor, AxisGrouping::kSum},
          "How axes share a row");
  add("--pad-back", spec.pad_back, "Zeros appended to each row, 0 or 1");
  add("--head-dim", spec.head_dim, "Width of one head, in [2, 65536]");
  add("--rotary-dim", spec.rotary_dim, "Lanes that rotate, even");
  add("--rotary-begin", spec.rotary_begin, "First lane that rotates");
  add("--partial-rotary-factor", spec.partial_rotary_factor, "Share of lanes that rotate, (0, 1]");
  AddEnum(app, "--pairing", spec.pairing, {Pairing::kHalfSplit, Pairing::kInterleaved},
          "Which lanes form a pair in the input");
  AddEnum(app, "--pairing-out", spec.pairing_out, {Pairing::kHalfSplit, Pairing::kInterleaved},
          "And in the output; as the input when not set");
  add("--attention-factor", spec.attention_factor, "Multiplies sine and cosine");
}

Json ToJson(const Spec& spec) {
  Writer writer;
  writer.Put("preset", spec.preset);
  writer.Put("kind", spec.kind);
  writer.Put("dim", spec.dim);
  writer.Put("axes", spec.axes);
  writer.Put("axes_dim", spec.axes_dim);
  writer.Put("family", spec.family);
  writer.Put("rope_theta", spec.rope_theta);
  writer.Put("downscale_freq_shift", spec.downscale_freq_shift);
  writer.Put("min_period", spec.min_period);
  writer.Put("max_period", spec.max_period);
  writer.Put("inv_freq", spec.inv_freq);
  writer.Put("position_scale", spec.position_scale);
  writer.Put("order", spec.order);
  writer.Put("arrangement", spec.arrangement);
  writer.Put("grouping", spec.grouping);
  writer.Put("pad_back", spec.pad_back);
  writer.Put("head_dim", spec.head_dim);
  writer.Put("rotary_dim", spec.rotary_dim);
  writer.Put("rotary_begin", spec.rotary_begin);
  writer.Put("partial_rotary_factor", spec.partial_rotary_factor);
  writer.Put("pairing", spec.pairing);
  writer.Put("pairing_out", spec.pairing_out);
  writer.Put("axis_rule", spec.axis_rule);
  writer.Put("attention_factor", spec.attention_factor);
  writer.Put("precision", spec.precision);
  return writer.Take();
}

}  // namespace phasor::cli
