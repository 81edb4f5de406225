// SPDX-License-Identifier: Apache-2.0
// The one list of a spec's fields. Everything that treats fields alike walks it: merging, refusing
// unused fields, ToSpec, hashing, the wire, JSON and the command line's flags. A new field is one
// member of Spec and ResolvedSpec (spec.h), one field of the message (spec.proto), one line here
// and one in proto/convert_spec.cc, which does not compile without it. Threads: pure values and
// functions.
#ifndef PHASOR_KERNELS_SPEC_FIELDS_H_
#define PHASOR_KERNELS_SPEC_FIELDS_H_

#include "kernels/spec/spec.h"

namespace phasor {

// What is known about a field apart from its types.
struct SpecField {
  const char* name;  // in spec.proto, JSON and messages; the flag of "rope_theta" is --rope-theta
  // Whether specs of that kind and family use the field.
  bool (*used)(const ResolvedSpec&);
  const char* help;  // one line
};

// Stands in for the member of ResolvedSpec when ResolvedSpec has no such field.
struct NotResolved {};

namespace field_use {

inline bool Is(const ResolvedSpec& s, FrequencyFamily family) { return s.family == family; }
inline bool IsEncoding(const ResolvedSpec& s) { return s.kind == SpecKind::kEncoding; }
inline bool IsPaired(const ResolvedSpec& s) { return !Is(s, FrequencyFamily::kPerElement); }
inline bool IsPeriods(const ResolvedSpec& s) {
  return Is(s, FrequencyFamily::kPeriods) || Is(s, FrequencyFamily::kPeriodsExclusive);
}
inline bool IsExplicit(const ResolvedSpec& s) { return Is(s, FrequencyFamily::kExplicit); }
inline bool IsLogRange(const ResolvedSpec& s) { return Is(s, FrequencyFamily::kLogRange); }

inline bool Always(const ResolvedSpec&) { return true; }
inline bool Rotary(const ResolvedSpec& s) { return !IsEncoding(s); }
inline bool PairedEncoding(const ResolvedSpec& s) { return IsEncoding(s) && IsPaired(s); }
inline bool PaddedEncoding(const ResolvedSpec& s) { return IsEncoding(s) && !IsPeriods(s); }
inline bool Theta(const ResolvedSpec& s) {
  return Is(s, FrequencyFamily::kGeometric) || !IsPaired(s);
}
inline bool OneTheta(const ResolvedSpec& s) { return Theta(s) && s.axes_theta.empty(); }
inline bool Shift(const ResolvedSpec& s) {
  return Is(s, FrequencyFamily::kGeometric) || IsLogRange(s);
}
inline bool Range(const ResolvedSpec& s) {
  return Is(s, FrequencyFamily::kLinear) || IsLogRange(s);
}
inline bool Live(const ResolvedSpec& s) { return IsPaired(s) && !IsExplicit(s); }
inline bool Heads(const ResolvedSpec& s) { return !IsEncoding(s) && IsExplicit(s); }

}  // namespace field_use

// Calls visit(SpecField, member of Spec, member of ResolvedSpec or NotResolved) for every field
// except the base, in the order in which people read them. Fingerprints depend on this order.
template <typename Visit>
constexpr void VisitSpecFields(Visit&& visit) {
  namespace use = field_use;
  using S = Spec;
  using R = ResolvedSpec;
  const auto field = [&visit](const char* name, bool (*used)(const ResolvedSpec&), auto member,
                              auto resolved, const char* help) {
    visit(SpecField{name, used, help}, member, resolved);
  };
  field("sub_config", use::Always, &S::sub_config, NotResolved(),
        "Part of the config.json, e.g. vision_config");
  field("layer_type", use::Always, &S::layer_type, NotResolved(),
        "Kind of layers in the config.json, e.g. full_attention");
  field("kind", use::Always, &S::kind, &R::kind, "Rows of an embedding, or a rotation");
  field("dim", use::IsEncoding, &S::dim, &R::dim, "Width of an encoding row, in [1, 65536]");
  field("axes", use::Always, &S::axes, &R::axes, "Position axes, in [1, 4]");
  field("axis_rule", use::Always, &S::axis_rule, &R::axis_rule, "How pairs belong to axes");
  field("axes_dim", use::Always, &S::axes_dim, &R::axes_dim, "Width of each axis' block");
  field("mrope_section", use::Always, &S::mrope_section, &R::mrope_section,
        "Pairs of each axis for the MROPE rules");
  field("axis_of_pair", use::Always, &S::axis_of_pair, &R::axis_of_pair,
        "Axis of each pair for LIST");
  field("family", use::Always, &S::family, &R::family, "How frequencies are made");
  field("rope_theta", use::OneTheta, &S::rope_theta, &R::rope_theta,
        "Base of the geometric ladder, above 0");
  field("axes_theta", use::Theta, &S::axes_theta, &R::axes_theta,
        "Base of each axis, instead of rope_theta");
  field("downscale_freq_shift", use::Shift, &S::downscale_freq_shift, &R::downscale_freq_shift,
        "Subtracted from the denominator");
  field("min_period", use::IsPeriods, &S::min_period, &R::min_period, "Smallest period, above 0");
  field("max_period", use::IsPeriods, &S::max_period, &R::max_period, "Largest period, above 0");
  field("min_freq", use::Range, &S::min_freq, &R::min_freq,
        "First frequency of LINEAR and LOG_RANGE");
  field("max_freq", use::Range, &S::max_freq, &R::max_freq,
        "Last frequency of LINEAR and LOG_RANGE");
  field("inv_freq", use::IsExplicit, &S::inv_freq, &R::inv_freq,
        "Explicit frequencies, one per pair");
  field("frequency_unit", use::Always, &S::frequency_unit, &R::frequency_unit,
        "Unit of frequencies and phases");
  field("phase", use::IsPaired, &S::phase, &R::phase,
        "Added to the phase of every position, one per pair");
  field("live_pairs", use::Live, &S::live_pairs, &R::live_pairs,
        "Pairs from this one on do not turn");
  field("position_scale", use::Always, &S::position_scale, &R::position_scale,
        "Positions are multiplied by this");
  field("axes_position_scale", use::Always, &S::axes_position_scale, &R::axes_position_scale,
        "Factor of each axis' positions");
  field("frequency_heads", use::Heads, &S::frequency_heads, &R::frequency_heads,
        "Heads with frequencies of their own");
  field("order", use::PairedEncoding, &S::order, &R::order, "Sine or cosine first");
  field("arrangement", use::PairedEncoding, &S::arrangement, &R::arrangement,
        "How components lie in a row");
  field("grouping", use::IsEncoding, &S::grouping, &R::grouping, "How axes share a row");
  field("odd_dim", use::PaddedEncoding, &S::odd_dim, &R::odd_dim,
        "What an odd width does with the odd column");
  field("pad_front", use::PaddedEncoding, &S::pad_front, &R::pad_front,
        "Zeros before the content of each row");
  field("pad_back", use::PaddedEncoding, &S::pad_back, &R::pad_back,
        "Zeros behind the content of each row");
  field("cos_bias", use::PairedEncoding, &S::cos_bias, &R::cos_bias, "Added to cosines");
  field("head_dim", use::Rotary, &S::head_dim, &R::head_dim, "Width of one head, in [2, 65536]");
  field("rotary_dim", use::Rotary, &S::rotary_dim, &R::rotary_dim, "Lanes that rotate, even");
  field("rotary_begin", use::Rotary, &S::rotary_begin, &R::rotary_begin, "First lane that rotates");
  field("partial_rotary_factor", use::Rotary, &S::partial_rotary_factor, NotResolved(),
        "Share of lanes that rotate, (0, 1]");
  field("pairing", use::Rotary, &S::pairing, &R::pairing, "Which lanes form a pair in the input");
  field("pairing_out", use::Rotary, &S::pairing_out, &R::pairing_out,
        "And in the output; as the input when not set");
  field("attention_factor", use::Always, &S::attention_factor, &R::attention_factor,
        "Multiplies sine and cosine");
  field("rope_scaling", use::Rotary, &S::rope_scaling, &R::rope_scaling,
        R"(Rule for longer contexts as JSON, e.g. {"linear": {"factor": 4}})");
  field("sequence_length", use::Rotary, &S::sequence_length, &R::sequence_length,
        "Tokens that the sequence will have, for dynamic NTK and LongRoPE");
  field("xpos", use::Rotary, &S::xpos, &R::xpos, R"(xPos as JSON, e.g. {"center": 1024})");
  field("precision", use::Always, &S::precision, &R::precision, "Arithmetic");
  field("parity", use::Always, &S::parity, &R::parity, "Stages of PARITY arithmetic as JSON");
}

// Calls visit(name, member) for every field of a message inside a spec.
template <typename Visit>
void VisitFields(const LinearScaling*, Visit&& visit) {
  visit("factor", &LinearScaling::factor);
}
template <typename Visit>
void VisitFields(const NtkScaling*, Visit&& visit) {
  visit("factor", &NtkScaling::factor);
  visit("dynamic", &NtkScaling::dynamic);
  visit("original_max_position_embeddings", &NtkScaling::original_max_position_embeddings);
}
template <typename Visit>
void VisitFields(const MixedNtkScaling*, Visit&& visit) {
  visit("factor", &MixedNtkScaling::factor);
  visit("b", &MixedNtkScaling::b);
}
template <typename Visit>
void VisitFields(const YarnScaling*, Visit&& visit) {
  visit("factor", &YarnScaling::factor);
  visit("original_max_position_embeddings", &YarnScaling::original_max_position_embeddings);
  visit("beta_fast", &YarnScaling::beta_fast);
  visit("beta_slow", &YarnScaling::beta_slow);
  visit("truncate", &YarnScaling::truncate);
  visit("attention_factor", &YarnScaling::attention_factor);
  visit("mscale", &YarnScaling::mscale);
  visit("mscale_all_dim", &YarnScaling::mscale_all_dim);
  visit("extrapolation_factor", &YarnScaling::extrapolation_factor);
  visit("attn_factor", &YarnScaling::attn_factor);
  visit("log_interpolation", &YarnScaling::log_interpolation);
  visit("mscale_coefficient", &YarnScaling::mscale_coefficient);
}
template <typename Visit>
void VisitFields(const Llama3Scaling*, Visit&& visit) {
  visit("factor", &Llama3Scaling::factor);
  visit("low_freq_factor", &Llama3Scaling::low_freq_factor);
  visit("high_freq_factor", &Llama3Scaling::high_freq_factor);
  visit("original_max_position_embeddings", &Llama3Scaling::original_max_position_embeddings);
}
template <typename Visit>
void VisitFields(const LongRopeScaling*, Visit&& visit) {
  visit("short_factor", &LongRopeScaling::short_factor);
  visit("long_factor", &LongRopeScaling::long_factor);
  visit("original_max_position_embeddings", &LongRopeScaling::original_max_position_embeddings);
  visit("factor", &LongRopeScaling::factor);
  visit("attention_factor", &LongRopeScaling::attention_factor);
  visit("short_mscale", &LongRopeScaling::short_mscale);
  visit("long_mscale", &LongRopeScaling::long_mscale);
}
template <typename Visit>
void VisitFields(const XposScaling*, Visit&& visit) {
  visit("scale_base", &XposScaling::scale_base);
  visit("center", &XposScaling::center);
  visit("inverse", &XposScaling::inverse);
}

template <typename Visit>
void VisitFields(const ParityArithmetic*, Visit&& visit) {
  visit("frequency", &ParityArithmetic::frequency);
  visit("frequency_storage", &ParityArithmetic::frequency_storage);
  visit("position", &ParityArithmetic::position);
  visit("angle", &ParityArithmetic::angle);
  visit("table", &ParityArithmetic::table);
  visit("math", &ParityArithmetic::math);
}

// Calls visit(name, empty rule) for every rule of RopeScaling.
template <typename Visit>
void VisitScalingRules(Visit&& visit) {
  visit("linear", LinearScaling());
  visit("ntk", NtkScaling());
  visit("mixed_ntk", MixedNtkScaling());
  visit("yarn", YarnScaling());
  visit("llama3", Llama3Scaling());
  visit("longrope", LongRopeScaling());
}

}  // namespace phasor

#endif  // PHASOR_KERNELS_SPEC_FIELDS_H_
