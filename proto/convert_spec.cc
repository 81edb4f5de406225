// SPDX-License-Identifier: Apache-2.0
// See convert_spec.h.
#include "proto/convert_spec.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/frequencies.h"
#include "kernels/status_macros.h"
#include "proto/enums.h"

namespace phasor {
namespace {

// Sets `*out` to the enumerator of `wire`, or to nothing when it is unspecified.
template <typename E, typename W>
absl::Status ReadEnum(W wire, const std::string& path, const char* field, std::optional<E>* out) {
  if (static_cast<int>(wire) == 0) return absl::OkStatus();
  PHASOR_ASSIGN_OR_RETURN(*out, OptionalEnumFromWire<E>(wire, absl::StrCat(path, ".", field)));
  return absl::OkStatus();
}

YarnScaling FromWire(const v1::YarnScaling& wire) {
  YarnScaling yarn;
  yarn.factor = wire.factor();
  yarn.original_max_position_embeddings = wire.original_max_position_embeddings();
  if (wire.has_beta_fast()) yarn.beta_fast = wire.beta_fast();
  if (wire.has_beta_slow()) yarn.beta_slow = wire.beta_slow();
  if (wire.has_truncate()) yarn.truncate = wire.truncate();
  if (wire.has_attention_factor()) yarn.attention_factor = wire.attention_factor();
  if (wire.has_mscale()) yarn.mscale = wire.mscale();
  if (wire.has_mscale_all_dim()) yarn.mscale_all_dim = wire.mscale_all_dim();
  return yarn;
}

LongRopeScaling FromWire(const v1::LongRopeScaling& wire) {
  LongRopeScaling longrope;
  longrope.short_factor.assign(wire.short_factor().begin(), wire.short_factor().end());
  longrope.long_factor.assign(wire.long_factor().begin(), wire.long_factor().end());
  longrope.original_max_position_embeddings = wire.original_max_position_embeddings();
  if (wire.has_factor()) longrope.factor = wire.factor();
  if (wire.has_attention_factor()) longrope.attention_factor = wire.attention_factor();
  return longrope;
}

RopeScaling FromWire(const v1::RopeScaling& wire) {
  switch (wire.rule_case()) {
    case v1::RopeScaling::kLinear:
      return LinearScaling{wire.linear().factor()};
    case v1::RopeScaling::kNtk:
      return NtkScaling{wire.ntk().factor(), wire.ntk().dynamic(),
                        wire.ntk().original_max_position_embeddings()};
    case v1::RopeScaling::kYarn:
      return FromWire(wire.yarn());
    case v1::RopeScaling::kLlama3:
      return Llama3Scaling{wire.llama3().factor(), wire.llama3().low_freq_factor(),
                           wire.llama3().high_freq_factor(),
                           wire.llama3().original_max_position_embeddings()};
    case v1::RopeScaling::kLongrope:
      return FromWire(wire.longrope());
    case v1::RopeScaling::RULE_NOT_SET:
      break;
  }
  return std::monostate();
}

struct RopeScalingWriter {
  v1::Spec* spec;

  void operator()(std::monostate) const {}
  void operator()(const LinearScaling& linear) const {
    spec->mutable_rope_scaling()->mutable_linear()->set_factor(linear.factor);
  }
  void operator()(const NtkScaling& ntk) const {
    v1::NtkScaling* wire = spec->mutable_rope_scaling()->mutable_ntk();
    wire->set_factor(ntk.factor);
    wire->set_dynamic(ntk.dynamic);
    wire->set_original_max_position_embeddings(ntk.original_max_position_embeddings);
  }
  void operator()(const YarnScaling& yarn) const {
    v1::YarnScaling* wire = spec->mutable_rope_scaling()->mutable_yarn();
    wire->set_factor(yarn.factor);
    wire->set_original_max_position_embeddings(yarn.original_max_position_embeddings);
    if (yarn.beta_fast) wire->set_beta_fast(*yarn.beta_fast);
    if (yarn.beta_slow) wire->set_beta_slow(*yarn.beta_slow);
    if (yarn.truncate) wire->set_truncate(*yarn.truncate);
    if (yarn.attention_factor) wire->set_attention_factor(*yarn.attention_factor);
    if (yarn.mscale) wire->set_mscale(*yarn.mscale);
    if (yarn.mscale_all_dim) wire->set_mscale_all_dim(*yarn.mscale_all_dim);
  }
  void operator()(const Llama3Scaling& llama3) const {
    v1::Llama3Scaling* wire = spec->mutable_rope_scaling()->mutable_llama3();
    wire->set_factor(llama3.factor);
    wire->set_low_freq_factor(llama3.low_freq_factor);
    wire->set_high_freq_factor(llama3.high_freq_factor);
    wire->set_original_max_position_embeddings(llama3.original_max_position_embeddings);
  }
  void operator()(const LongRopeScaling& longrope) const {
    v1::LongRopeScaling* wire = spec->mutable_rope_scaling()->mutable_longrope();
    wire->mutable_short_factor()->Add(longrope.short_factor.begin(), longrope.short_factor.end());
    wire->mutable_long_factor()->Add(longrope.long_factor.begin(), longrope.long_factor.end());
    wire->set_original_max_position_embeddings(longrope.original_max_position_embeddings);
    if (longrope.factor) wire->set_factor(*longrope.factor);
    if (longrope.attention_factor) wire->set_attention_factor(*longrope.attention_factor);
  }
};

absl::Status ReadEnums(const v1::Spec& wire, const std::string& path, Spec* spec) {
  PHASOR_RETURN_IF_ERROR(ReadEnum(wire.kind(), path, "kind", &spec->kind));
  PHASOR_RETURN_IF_ERROR(ReadEnum(wire.family(), path, "family", &spec->family));
  PHASOR_RETURN_IF_ERROR(ReadEnum(wire.order(), path, "order", &spec->order));
  PHASOR_RETURN_IF_ERROR(ReadEnum(wire.arrangement(), path, "arrangement", &spec->arrangement));
  PHASOR_RETURN_IF_ERROR(ReadEnum(wire.grouping(), path, "grouping", &spec->grouping));
  PHASOR_RETURN_IF_ERROR(ReadEnum(wire.pairing(), path, "pairing", &spec->pairing));
  PHASOR_RETURN_IF_ERROR(ReadEnum(wire.pairing_out(), path, "pairing_out", &spec->pairing_out));
  PHASOR_RETURN_IF_ERROR(ReadEnum(wire.axis_rule(), path, "axis_rule", &spec->axis_rule));
  return ReadEnum(wire.precision(), path, "precision", &spec->precision);
}

void ReadNumbers(const v1::Spec& wire, Spec* spec) {
  if (wire.has_dim()) spec->dim = wire.dim();
  if (wire.has_axes()) spec->axes = wire.axes();
  spec->axes_dim.assign(wire.axes_dim().begin(), wire.axes_dim().end());
  if (wire.has_rope_theta()) spec->rope_theta = wire.rope_theta();
  if (wire.has_downscale_freq_shift()) spec->downscale_freq_shift = wire.downscale_freq_shift();
  if (wire.has_min_period()) spec->min_period = wire.min_period();
  if (wire.has_max_period()) spec->max_period = wire.max_period();
  spec->inv_freq.assign(wire.inv_freq().begin(), wire.inv_freq().end());
  if (wire.has_position_scale()) spec->position_scale = wire.position_scale();
  if (wire.has_head_dim()) spec->head_dim = wire.head_dim();
  if (wire.has_rotary_dim()) spec->rotary_dim = wire.rotary_dim();
  if (wire.has_rotary_begin()) spec->rotary_begin = wire.rotary_begin();
  if (wire.has_partial_rotary_factor()) {
    spec->partial_rotary_factor = wire.partial_rotary_factor();
  }
  spec->mrope_section.assign(wire.mrope_section().begin(), wire.mrope_section().end());
  spec->axis_of_pair.assign(wire.axis_of_pair().begin(), wire.axis_of_pair().end());
  if (wire.has_attention_factor()) spec->attention_factor = wire.attention_factor();
  if (wire.has_pad_back()) spec->pad_back = wire.pad_back();
}

void WriteEnums(const Spec& spec, v1::Spec* wire) {
  if (spec.kind) wire->set_kind(ToWire(*spec.kind));
  if (spec.family) wire->set_family(ToWire(*spec.family));
  if (spec.order) wire->set_order(ToWire(*spec.order));
  if (spec.arrangement) wire->set_arrangement(ToWire(*spec.arrangement));
  if (spec.grouping) wire->set_grouping(ToWire(*spec.grouping));
  if (spec.pairing) wire->set_pairing(ToWire(*spec.pairing));
  if (spec.pairing_out) wire->set_pairing_out(ToWire(*spec.pairing_out));
  if (spec.axis_rule) wire->set_axis_rule(ToWire(*spec.axis_rule));
  if (spec.precision) wire->set_precision(ToWire(*spec.precision));
}

void WriteNumbers(const Spec& spec, v1::Spec* wire) {
  if (spec.dim) wire->set_dim(*spec.dim);
  if (spec.axes) wire->set_axes(*spec.axes);
  wire->mutable_axes_dim()->Add(spec.axes_dim.begin(), spec.axes_dim.end());
  if (spec.rope_theta) wire->set_rope_theta(*spec.rope_theta);
  if (spec.downscale_freq_shift) wire->set_downscale_freq_shift(*spec.downscale_freq_shift);
  if (spec.min_period) wire->set_min_period(*spec.min_period);
  if (spec.max_period) wire->set_max_period(*spec.max_period);
  wire->mutable_inv_freq()->Add(spec.inv_freq.begin(), spec.inv_freq.end());
  if (spec.position_scale) wire->set_position_scale(*spec.position_scale);
  if (spec.head_dim) wire->set_head_dim(*spec.head_dim);
  if (spec.rotary_dim) wire->set_rotary_dim(*spec.rotary_dim);
  if (spec.rotary_begin) wire->set_rotary_begin(*spec.rotary_begin);
  if (spec.partial_rotary_factor) wire->set_partial_rotary_factor(*spec.partial_rotary_factor);
  wire->mutable_mrope_section()->Add(spec.mrope_section.begin(), spec.mrope_section.end());
  wire->mutable_axis_of_pair()->Add(spec.axis_of_pair.begin(), spec.axis_of_pair.end());
  if (spec.attention_factor) wire->set_attention_factor(*spec.attention_factor);
  if (spec.pad_back) wire->set_pad_back(*spec.pad_back);
}

void AddPair(const Plan& plan, int64_t pair, v1::ResolveSpecResponse* response) {
  v1::ResolvedPair* wire = response->add_pairs();
  const Frequency frequency = plan.frequency[pair];
  wire->set_axis(plan.axis[pair]);
  wire->set_turns_whole(frequency.whole);
  wire->set_turns_fraction(frequency.fraction);
  wire->set_inv_freq(RadiansPerUnit(frequency));
  if (!plan.offset.empty()) wire->set_phase_offset(plan.offset[pair]);
}

}  // namespace

absl::StatusOr<Spec> SpecFromWire(const v1::Spec& wire, const std::string& path) {
  Spec spec;
  spec.preset = wire.preset();
  spec.config_json = wire.config_json();
  spec.encoder = wire.encoder();
  PHASOR_RETURN_IF_ERROR(ReadEnums(wire, path, &spec));
  ReadNumbers(wire, &spec);
  spec.rope_scaling = FromWire(wire.rope_scaling());
  return spec;
}

v1::Spec ToWire(const Spec& spec) {
  v1::Spec wire;
  if (!spec.preset.empty()) wire.set_preset(spec.preset);
  if (!spec.config_json.empty()) wire.set_config_json(spec.config_json);
  if (!spec.encoder.empty()) wire.set_encoder(spec.encoder);
  WriteEnums(spec, &wire);
  WriteNumbers(spec, &wire);
  std::visit(RopeScalingWriter{&wire}, spec.rope_scaling);
  return wire;
}

v1::RunInfo MakeRunInfo(const Plan& plan, const std::string& backend) {
  v1::RunInfo info;
  info.set_spec_fingerprint(plan.fingerprint);
  info.set_numerics_version(kNumericsVersion);
  info.set_backend(backend);
  return info;
}

v1::ResolveSpecResponse MakeResolveSpecResponse(const Plan& plan, const std::string& backend) {
  v1::ResolveSpecResponse response;
  *response.mutable_spec() = ToWire(ToSpec(plan.spec));
  response.set_attention_factor(plan.spec.attention_factor);
  *response.mutable_info() = MakeRunInfo(plan, backend);
  if (plan.spec.kind == SpecKind::kRotary) {
    response.set_width(plan.spec.head_dim);
    for (int64_t pair = 0; pair < plan.spec.rotary_dim / 2; ++pair) AddPair(plan, pair, &response);
    return response;
  }
  response.set_width(plan.spec.dim);
  for (const EncodeBlock& block : plan.layout.blocks) {
    for (int64_t j = 0; j < block.pairs; ++j) AddPair(plan, block.first_pair + j, &response);
  }
  return response;
}

}  // namespace phasor
