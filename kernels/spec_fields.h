// SPDX-License-Identifier: Apache-2.0
// The one list of a spec's fields. Merging, refusing what has no use, the way back from a resolved
// spec, hashing, the wire, JSON and the command line's flags all walk it, so that a field is a
// member of Spec and ResolvedSpec (spec.h), one of the message (spec.proto) and a line here.
// Threads: pure values and functions.
#ifndef PHASOR_KERNELS_SPEC_FIELDS_H_
#define PHASOR_KERNELS_SPEC_FIELDS_H_

#include <string_view>

#include "kernels/spec.h"

namespace phasor {

// What is known of a field beside its types.
struct SpecField {
  const char* name;  // in spec.proto, JSON and messages; "rope_theta" is the flag --rope-theta
  // Whether the field means anything for a spec of that kind and family.
  bool (*used)(const ResolvedSpec&);
  const char* help;  // one line
};

// Stands for the member of ResolvedSpec of a field that others replace there.
struct NotResolved {};

namespace field_use {

inline bool IsEncoding(const ResolvedSpec& s) { return s.kind == SpecKind::kEncoding; }
inline bool IsPaired(const ResolvedSpec& s) { return s.family != FrequencyFamily::kPerElement; }
inline bool IsPeriods(const ResolvedSpec& s) {
  return s.family == FrequencyFamily::kPeriods || s.family == FrequencyFamily::kPeriodsExclusive;
}

inline bool Always(const ResolvedSpec&) { return true; }
inline bool Rotary(const ResolvedSpec& s) { return !IsEncoding(s); }
inline bool PairedEncoding(const ResolvedSpec& s) { return IsEncoding(s) && IsPaired(s); }
inline bool PaddedEncoding(const ResolvedSpec& s) { return IsEncoding(s) && !IsPeriods(s); }
inline bool Theta(const ResolvedSpec& s) { return !IsPeriods(s); }
inline bool Shift(const ResolvedSpec& s) { return IsPaired(s) && !IsPeriods(s); }

}  // namespace field_use

// Calls visit(SpecField, member of Spec, member of ResolvedSpec or NotResolved) for every field but
// the base, in the order in which people read them.
template <typename Visit>
void VisitSpecFields(Visit&& visit) {
  namespace use = field_use;
  using S = Spec;
  using R = ResolvedSpec;
  visit(SpecField{"kind", use::Always, "Rows of an embedding, or a rotation"}, &S::kind, &R::kind);
  visit(SpecField{"dim", use::IsEncoding, "Width of an encoding row, in [1, 65536]"}, &S::dim,
        &R::dim);
  visit(SpecField{"axes", use::Always, "Position axes, in [1, 4]"}, &S::axes, &R::axes);
  visit(SpecField{"axes_dim", use::Always, "Width of each axis' block"}, &S::axes_dim,
        &R::axes_dim);
  visit(SpecField{"family", use::Always, "How frequencies are made"}, &S::family, &R::family);
  visit(SpecField{"rope_theta", use::Theta, "Base of the geometric ladder, above 0"},
        &S::rope_theta, &R::rope_theta);
  visit(SpecField{"axes_theta", use::Theta, "Base of each axis, instead of rope_theta"},
        &S::axes_theta, NotResolved());
  visit(SpecField{"downscale_freq_shift", use::Shift, "Subtracted from the denominator"},
        &S::downscale_freq_shift, &R::downscale_freq_shift);
  visit(SpecField{"min_period", use::IsPeriods, "Smallest period, above 0"}, &S::min_period,
        &R::min_period);
  visit(SpecField{"max_period", use::IsPeriods, "Largest period, above 0"}, &S::max_period,
        &R::max_period);
  visit(SpecField{"min_freq", use::Always, "First frequency of LINEAR and LOG_RANGE"}, &S::min_freq,
        NotResolved());
  visit(SpecField{"max_freq", use::Always, "Last frequency of LINEAR and LOG_RANGE"}, &S::max_freq,
        NotResolved());
  visit(SpecField{"inv_freq", use::Always, "Explicit frequencies, one per pair"}, &S::inv_freq,
        NotResolved());
  visit(SpecField{"frequency_unit", use::Always, "Unit of frequencies and phases"},
        &S::frequency_unit, NotResolved());
  visit(SpecField{"phase", use::Always, "Added to the phase of every position, one per pair"},
        &S::phase, NotResolved());
  visit(SpecField{"live_pairs", use::Always, "Pairs from this one on do not turn"}, &S::live_pairs,
        NotResolved());
  visit(SpecField{"position_scale", use::Always, "Positions are multiplied by this"},
        &S::position_scale, &R::position_scale);
  visit(SpecField{"axes_position_scale", use::Always, "Factor of each axis' positions"},
        &S::axes_position_scale, NotResolved());
  visit(SpecField{"frequency_heads", use::Always, "Heads with frequencies of their own"},
        &S::frequency_heads, NotResolved());
  visit(SpecField{"order", use::PairedEncoding, "Sine or cosine first"}, &S::order, &R::order);
  visit(SpecField{"arrangement", use::PairedEncoding, "How components lie in a row"},
        &S::arrangement, &R::arrangement);
  visit(SpecField{"grouping", use::IsEncoding, "How axes share a row"}, &S::grouping, &R::grouping);
  visit(SpecField{"odd_dim", use::IsEncoding, "What an odd width does with the odd column"},
        &S::odd_dim, NotResolved());
  visit(SpecField{"pad_front", use::IsEncoding, "Zeros before the content of each row"},
        &S::pad_front, NotResolved());
  visit(SpecField{"pad_back", use::PaddedEncoding, "Zeros appended to each row, 0 or 1"},
        &S::pad_back, &R::pad_back);
  visit(SpecField{"cos_bias", use::IsEncoding, "Added to cosines"}, &S::cos_bias, NotResolved());
  visit(SpecField{"head_dim", use::Rotary, "Width of one head, in [2, 65536]"}, &S::head_dim,
        &R::head_dim);
  visit(SpecField{"rotary_dim", use::Rotary, "Lanes that rotate, even"}, &S::rotary_dim,
        &R::rotary_dim);
  visit(SpecField{"rotary_begin", use::Rotary, "First lane that rotates"}, &S::rotary_begin,
        &R::rotary_begin);
  visit(SpecField{"partial_rotary_factor", use::Rotary, "Share of lanes that rotate, (0, 1]"},
        &S::partial_rotary_factor, NotResolved());
  visit(SpecField{"pairing", use::Rotary, "Which lanes form a pair in the input"}, &S::pairing,
        &R::pairing);
  visit(SpecField{"pairing_out", use::Rotary, "And in the output; as the input when not set"},
        &S::pairing_out, &R::pairing_out);
  visit(SpecField{"axis_rule", use::Rotary, "How pairs are assigned to axes"}, &S::axis_rule,
        &R::axis_rule);
  visit(SpecField{"mrope_section", use::Rotary, "Pairs of each axis for the MROPE rules"},
        &S::mrope_section, NotResolved());
  visit(SpecField{"axis_of_pair", use::Rotary, "Axis of each pair for LIST"}, &S::axis_of_pair,
        NotResolved());
  visit(SpecField{"attention_factor", use::Rotary, "Multiplies sine and cosine"},
        &S::attention_factor, &R::attention_factor);
  visit(SpecField{"rope_scaling", use::Rotary,
                  R"(Rule for longer contexts as JSON, e.g. {"linear": {"factor": 4}})"},
        &S::rope_scaling, NotResolved());
  visit(SpecField{"sequence_length", use::Always, "Length that dynamic NTK and LongRoPE look at"},
        &S::sequence_length, NotResolved());
  visit(SpecField{"xpos", use::Rotary, R"(xPos as JSON, e.g. {"center": 1024})"}, &S::xpos,
        NotResolved());
  visit(SpecField{"precision", use::Always, "Arithmetic"}, &S::precision, &R::precision);
  visit(SpecField{"parity", use::Always, "Stages of PARITY arithmetic as JSON"}, &S::parity,
        &R::parity);
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

// Calls visit(name, rule with nothing set) for every rule of RopeScaling.
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
