// SPDX-License-Identifier: Apache-2.0
// What to compute. `Spec` is what a user writes: a base (preset, config.json or named encoder) and
// the fields that override it. `ResolvedSpec` is the canonical value with every field filled in; it
// is the key of the plan cache and the input of the fingerprint. proto/phasor/v1/spec.proto
// documents unit, range and default of every field under the same name.
#ifndef PHASOR_KERNELS_SPEC_SPEC_H_
#define PHASOR_KERNELS_SPEC_SPEC_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/math/phase.h"
#include "kernels/ops/pairing.h"

namespace phasor {

enum class SpecKind : uint8_t { kEncoding, kRotary };
enum class FrequencyFamily : uint8_t {
  kGeometric,         // rope_theta^(-j / (n - downscale_freq_shift))
  kPerElement,        // element i of d: rope_theta^(-2i/d), sine for even i, cosine for odd i
  kPeriods,           // period min * (max/min)^(j / (n-1)); n = 1: min
  kPeriodsExclusive,  // the same with the exponent j / n
  kExplicit,          // inv_freq
  kLinear,            // equally spaced from min_freq to max_freq inclusive
  kLogRange,          // min_freq * (max_freq/min_freq)^(j / (n - downscale_freq_shift))
};
enum class FrequencyUnit : uint8_t { kRadians, kTurns };
enum class TrigOrder : uint8_t { kSinCos, kCosSin, kCosOnly };
enum class Arrangement : uint8_t { kInterleaved, kConcatenated };
enum class AxisGrouping : uint8_t { kAxisMajor, kComponentMajor, kSum };
enum class AxisRule : uint8_t {
  kSingle,
  kAxial,
  kMropeChunked,
  kMropeInterleaved,
  kList,
  kMropeAlternating,
  kFrequencyMajor,
  kDense,
};
enum class OddDim : uint8_t { kPad, kSplit };
enum class Precision : uint8_t { kExact, kParity };

// The arithmetic of an upstream implementation, stage by stage (docs/numerics.md).
enum class ParityFrequency : uint8_t {
  kFloat32Pow,      // 1 / theta^(j / den), every step rounded to f32 (transformers)
  kFloat32Exp,      // exp(-log(theta) * j / den) in f32 (diffusers' timesteps)
  kFloat32ExpStep,  // exp(j * -(log(theta) / den)) in f32 (DDPM, tensor2tensor)
  kFloat64,         // as kFloat32Pow, in f64
  kGgml,            // angles by repeated products in f32
};
enum class ParityType : uint8_t { kFloat64, kFloat32, kFloat16, kBFloat16, kModel };
// The stages of an upstream's arithmetic. nullopt: not given, or the spec does not use the stage.
struct ParityArithmetic {
  std::optional<ParityFrequency> frequency = {};
  std::optional<ParityType> frequency_storage = {}, position = {}, angle = {}, table = {},
                            math = {};
  friend bool operator==(const ParityArithmetic&, const ParityArithmetic&) = default;
};

// Scaling rules for longer contexts. spec.proto says which fields are required and which have
// defaults. A resolved rule has every field that it uses set.
struct LinearScaling {
  std::optional<double> factor = {};
  friend bool operator==(const LinearScaling&, const LinearScaling&) = default;
};
struct NtkScaling {
  std::optional<double> factor = {};
  std::optional<bool> dynamic = {};
  std::optional<int64_t> original_max_position_embeddings = {};
  friend bool operator==(const NtkScaling&, const NtkScaling&) = default;
};
struct MixedNtkScaling {
  std::optional<double> factor = {};
  std::optional<double> b = {};
  friend bool operator==(const MixedNtkScaling&, const MixedNtkScaling&) = default;
};
struct YarnScaling {
  std::optional<double> factor = {};
  std::optional<int64_t> original_max_position_embeddings = {};
  std::optional<double> beta_fast = {}, beta_slow = {};
  std::optional<bool> truncate = {};
  std::optional<double> attention_factor = {}, mscale = {}, mscale_all_dim = {};
  std::optional<double> extrapolation_factor = {}, attn_factor = {};
  std::optional<bool> log_interpolation = {};
  std::optional<double> mscale_coefficient = {};
  friend bool operator==(const YarnScaling&, const YarnScaling&) = default;
};
struct Llama3Scaling {
  std::optional<double> factor = {}, low_freq_factor = {}, high_freq_factor = {};
  std::optional<int64_t> original_max_position_embeddings = {};
  friend bool operator==(const Llama3Scaling&, const Llama3Scaling&) = default;
};
struct LongRopeScaling {
  std::vector<double> short_factor = {}, long_factor = {};
  std::optional<int64_t> original_max_position_embeddings = {};
  std::optional<double> factor = {}, attention_factor = {}, short_mscale = {}, long_mscale = {};
  friend bool operator==(const LongRopeScaling&, const LongRopeScaling&) = default;
};
using RopeScaling = std::variant<std::monostate, LinearScaling, NtkScaling, MixedNtkScaling,
                                 YarnScaling, Llama3Scaling, LongRopeScaling>;

// xPos: an amplitude per pair that grows or decays with the position.
struct XposScaling {
  std::optional<double> scale_base = {};
  std::optional<double> center = {};
  std::optional<bool> inverse = {};
  friend bool operator==(const XposScaling&, const XposScaling&) = default;
};

// Whether a field of a spec is set.
template <typename T>
bool IsSet(const std::optional<T>& field) {
  return field.has_value();
}
template <typename T>
bool IsSet(const std::vector<T>& field) {
  return !field.empty();
}
inline bool IsSet(const RopeScaling& field) {
  return !std::holds_alternative<std::monostate>(field);
}

// What a user writes. At most one of preset, config_json and encoder is not empty. The initializers
// let {.preset = "...", .dim = 128} compile without -Wmissing-field-initializers.
struct Spec {
  std::string preset = {};
  std::string config_json = {};
  std::string encoder = {};
  std::optional<SpecKind> kind = {};
  std::optional<int64_t> dim = {};
  std::optional<int> axes = {};
  std::vector<int64_t> axes_dim = {};
  std::optional<FrequencyFamily> family = {};
  std::optional<double> rope_theta = {};
  std::optional<double> downscale_freq_shift = {};
  std::optional<double> min_period = {};
  std::optional<double> max_period = {};
  std::vector<double> inv_freq = {};
  std::optional<double> position_scale = {};
  std::optional<TrigOrder> order = {};
  std::optional<Arrangement> arrangement = {};
  std::optional<AxisGrouping> grouping = {};
  std::optional<int64_t> head_dim = {};
  std::optional<int64_t> rotary_dim = {};
  std::optional<int64_t> rotary_begin = {};
  std::optional<double> partial_rotary_factor = {};
  std::optional<Pairing> pairing = {};
  std::optional<Pairing> pairing_out = {};
  std::optional<AxisRule> axis_rule = {};
  std::vector<int64_t> mrope_section = {};
  std::vector<int> axis_of_pair = {};
  std::optional<double> attention_factor = {};
  RopeScaling rope_scaling = {};
  std::optional<Precision> precision = {};
  std::optional<ParityArithmetic> parity = {};
  std::optional<int64_t> pad_back = {};
  std::optional<FrequencyUnit> frequency_unit = {};
  std::vector<double> phase = {};
  std::optional<double> min_freq = {};
  std::optional<double> max_freq = {};
  std::optional<int64_t> live_pairs = {};
  std::vector<double> axes_theta = {};
  std::vector<double> axes_position_scale = {};
  std::optional<int> frequency_heads = {};
  std::optional<int64_t> sequence_length = {};
  std::optional<double> cos_bias = {};
  std::optional<int64_t> pad_front = {};
  std::optional<OddDim> odd_dim = {};
  std::optional<XposScaling> xpos = {};
  std::optional<std::string> layer_type = {};
  std::optional<std::string> sub_config = {};

  friend bool operator==(const Spec&, const Spec&) = default;
};

// The canonical spec: every field filled in and checked. Fields that its kind does not use have
// fixed values, so specs with equal meaning are equal.
struct ResolvedSpec {
  SpecKind kind = SpecKind::kEncoding;
  int64_t dim = 0;  // encoding: row width including padding
  int axes = 1;
  AxisRule axis_rule = AxisRule::kSingle;
  // Width of each axis' block, [axes], for SINGLE and AXIAL. With grouping SUM each is the whole
  // content.
  std::vector<int64_t> axes_dim;
  std::vector<int64_t> mrope_section;
  std::vector<int> axis_of_pair;
  FrequencyFamily family = FrequencyFamily::kGeometric;
  double rope_theta = 10000.0;
  std::vector<double> axes_theta;  // empty: rope_theta for all
  double downscale_freq_shift = 0.0;
  double min_period = 0.0;
  double max_period = 0.0;
  double min_freq = 0.0;
  double max_freq = 0.0;
  std::vector<double> inv_freq;
  FrequencyUnit frequency_unit = FrequencyUnit::kRadians;
  std::vector<double> phase;          // empty: zeros
  std::optional<int64_t> live_pairs;  // not set: all
  double position_scale = 1.0;
  std::vector<double> axes_position_scale;  // empty: ones
  int frequency_heads = 1;
  TrigOrder order = TrigOrder::kSinCos;
  Arrangement arrangement = Arrangement::kInterleaved;
  AxisGrouping grouping = AxisGrouping::kAxisMajor;
  OddDim odd_dim = OddDim::kPad;  // SPLIT only where the content has an odd width
  int64_t pad_front = 0;
  int64_t pad_back = 0;
  double cos_bias = 0.0;
  int64_t head_dim = 0;  // rotary
  int64_t rotary_dim = 0;
  int64_t rotary_begin = 0;
  Pairing pairing = Pairing::kHalfSplit;
  Pairing pairing_out = Pairing::kHalfSplit;
  double attention_factor = 1.0;  // without the factor of rope_scaling
  RopeScaling rope_scaling;
  std::optional<int64_t> sequence_length;  // as rope_scaling reads it
  std::optional<XposScaling> xpos;
  Precision precision = Precision::kExact;
  std::optional<ParityArithmetic> parity;  // set exactly for PARITY, with every stage that is used

  uint64_t Hash() const;
  friend bool operator==(const ResolvedSpec&, const ResolvedSpec&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const ResolvedSpec& s) {
    return H::combine(std::move(h), s.Hash());
  }
};

// Limits that ResolveSpec checks.
inline constexpr int64_t kMaxWidth = 65536;  // dim and head_dim

// Returns `base` with every field replaced that `with` sets, the base (preset, ...) included.
Spec MergeSpec(Spec base, const Spec& with);

// Applies the base and the defaults and checks every field. `path` begins each message
// ("item.spec"). INVALID_ARGUMENT: a field is out of range, missing, or contradicts another.
// NOT_FOUND: unknown preset or encoder. UNIMPLEMENTED: a convention that is not built yet; use
// another value.
absl::StatusOr<ResolvedSpec> ResolveSpec(const Spec& spec, std::string_view path = "spec");

// A spec that resolves to `resolved`: every field that its kind and family use, without a base.
Spec ToSpec(const ResolvedSpec& resolved);

// 128-bit hash of the canonical value and the numerics version, as 32 hexadecimal digits. Equal
// across machines and across releases with the same numerics_version.
std::string Fingerprint(const ResolvedSpec& spec);

// The same of a model: a hash of the fingerprints of its layers in order; "" for a layer that does
// not rotate.
std::string FingerprintOfLayers(absl::Span<const std::string> layers);

// The version of the bits that every backend returns. docs/numerics.md says when it changes.
inline constexpr uint32_t kNumericsVersion = 1;

}  // namespace phasor

#endif  // PHASOR_KERNELS_SPEC_SPEC_H_
