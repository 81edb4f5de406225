// SPDX-License-Identifier: Apache-2.0
// What to compute. `Spec` is what a user writes: a base (preset, config, named encoder) and fields
// that override it. `ResolvedSpec` is the canonical value with every field filled in: it keys the
// plan cache and is what the fingerprint hashes. Names are the field's own;
// proto/phasor/v1/spec.proto documents unit, range and default of each.
#ifndef PHASOR_KERNELS_SPEC_H_
#define PHASOR_KERNELS_SPEC_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"

namespace phasor {

enum class SpecKind : uint8_t { kEncoding, kRotary };
enum class FrequencyFamily : uint8_t {
  kGeometric,         // rope_theta^(-j / (n - downscale_freq_shift))
  kPerElement,        // element i of d: rope_theta^(-2i/d), sine for even i, cosine for odd i
  kPeriods,           // period min * (max/min)^(j / (n-1)); n = 1: min
  kPeriodsExclusive,  // the same with exponent j / n
  kExplicit,
  kLinear,
};
enum class TrigOrder : uint8_t { kSinCos, kCosSin, kCosOnly };
enum class Arrangement : uint8_t { kInterleaved, kConcatenated };
enum class AxisGrouping : uint8_t { kAxisMajor, kComponentMajor, kSum };
enum class AxisRule : uint8_t { kSingle, kAxial, kMropeChunked, kMropeInterleaved, kList };
enum class Pairing : uint8_t { kHalfSplit, kInterleaved };
enum class Precision : uint8_t { kExact, kParity };

// Scalings for longer contexts. The field names and defaults are spec.proto's.
struct LinearScaling {
  double factor = 0;
  friend bool operator==(const LinearScaling&, const LinearScaling&) = default;
};
struct NtkScaling {
  double factor = 0;
  bool dynamic = false;
  int64_t original_max_position_embeddings = 0;
  friend bool operator==(const NtkScaling&, const NtkScaling&) = default;
};
struct YarnScaling {
  double factor = 0;
  int64_t original_max_position_embeddings = 0;
  std::optional<double> beta_fast, beta_slow;
  std::optional<bool> truncate;
  std::optional<double> attention_factor, mscale, mscale_all_dim;
  friend bool operator==(const YarnScaling&, const YarnScaling&) = default;
};
struct Llama3Scaling {
  double factor = 0, low_freq_factor = 0, high_freq_factor = 0;
  int64_t original_max_position_embeddings = 0;
  friend bool operator==(const Llama3Scaling&, const Llama3Scaling&) = default;
};
struct LongRopeScaling {
  std::vector<double> short_factor, long_factor;
  int64_t original_max_position_embeddings = 0;
  std::optional<double> factor, attention_factor;
  friend bool operator==(const LongRopeScaling&, const LongRopeScaling&) = default;
};
using RopeScaling = std::variant<std::monostate, LinearScaling, NtkScaling, YarnScaling,
                                 Llama3Scaling, LongRopeScaling>;

// What a user writes. At most one of preset, config_json, encoder is not empty. The initializers
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
  std::optional<int64_t> pad_back = {};

  friend bool operator==(const Spec&, const Spec&) = default;
};

// Every field filled in and checked. Fields that the kind does not use have fixed values, so equal
// meaning is equal value.
struct ResolvedSpec {
  SpecKind kind = SpecKind::kEncoding;
  int64_t dim = 0;  // encoding: row width including padding
  int axes = 1;
  std::vector<int64_t> axes_dim;  // width of each axis' block, [axes]; SUM: each dim - pad_back
  FrequencyFamily family = FrequencyFamily::kGeometric;
  double rope_theta = 10000.0;
  double downscale_freq_shift = 0.0;
  double min_period = 0.0;
  double max_period = 0.0;
  double position_scale = 1.0;
  TrigOrder order = TrigOrder::kSinCos;
  Arrangement arrangement = Arrangement::kInterleaved;
  AxisGrouping grouping = AxisGrouping::kAxisMajor;
  int64_t pad_back = 0;  // 1 exactly when dim is odd
  int64_t head_dim = 0;  // rotary
  int64_t rotary_dim = 0;
  int64_t rotary_begin = 0;
  Pairing pairing = Pairing::kHalfSplit;
  Pairing pairing_out = Pairing::kHalfSplit;
  double attention_factor = 1.0;

  friend bool operator==(const ResolvedSpec&, const ResolvedSpec&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const ResolvedSpec& s) {
    return H::combine(std::move(h), s.kind, s.dim, s.axes, s.axes_dim, s.family, s.rope_theta,
                      s.downscale_freq_shift, s.min_period, s.max_period, s.position_scale, s.order,
                      s.arrangement, s.grouping, s.pad_back, s.head_dim, s.rotary_dim,
                      s.rotary_begin, s.pairing, s.pairing_out, s.attention_factor);
  }
};

// Limits that ResolveSpec enforces.
inline constexpr int64_t kMaxWidth = 65536;  // dim and head_dim
inline constexpr int kMaxAxes = 4;

// Fills in base and defaults and checks every field. `path` prefixes error messages ("item.spec").
// INVALID_ARGUMENT: a field out of range, missing, or contradicting another.
// NOT_FOUND: unknown preset or encoder. UNIMPLEMENTED: a convention that is not built yet.
absl::StatusOr<ResolvedSpec> ResolveSpec(const Spec& spec, std::string_view path = "spec");

// The spec that resolves to `resolved`: every field that its kind and family use, no base.
Spec ToSpec(const ResolvedSpec& resolved);

// 128-bit hash of the canonical value and the numerics version, 32 hexadecimal digits. Stable
// across machines and releases of equal numerics_version.
std::string Fingerprint(const ResolvedSpec& spec);

// Version of the bits that every backend returns. docs/numerics.md says when it changes.
inline constexpr uint32_t kNumericsVersion = 1;

}  // namespace phasor

#endif  // PHASOR_KERNELS_SPEC_H_
