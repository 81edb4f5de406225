// SPDX-License-Identifier: Apache-2.0
// Attention biases as a user writes them (BiasSpec), and their compilation into a checked BiasRule.
// docs/tables-and-biases.md explains the families.
#ifndef PHASOR_KERNELS_PLAN_BIAS_RULE_H_
#define PHASOR_KERNELS_PLAN_BIAS_RULE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/ops/bias_rule.h"

namespace phasor {

// What a user writes: a preset, a family, or a preset with fields that override it.
struct BiasSpec {
  std::string preset = {};
  std::optional<BiasFamily> family = {};
  std::optional<int64_t> num_buckets = {};
  std::optional<int64_t> max_distance = {};
  std::optional<bool> bidirectional = {};
  std::vector<int64_t> window = {};

  friend bool operator==(const BiasSpec&, const BiasSpec&) = default;
};

// A named bias spec.
struct BiasPreset {
  std::string name;
  std::string summary;
  std::string source;
  BiasSpec spec;
};
absl::Span<const BiasPreset> BiasPresets();

// A rule together with its spec: every field that its family uses, without a preset.
struct CompiledBias : BiasRule {
  BiasSpec spec;
};

inline constexpr int64_t kMaxBiasHeads = 65536;

// Compiles a rule for `heads` heads, 1 <= heads <= kMaxBiasHeads. INVALID_ARGUMENT: a field is out
// of range, missing, or belongs to another family. NOT_FOUND: unknown preset.
absl::StatusOr<CompiledBias> CompileBias(const BiasSpec& spec, int64_t heads,
                                         std::string_view path);

// ALiBi's slopes. With n the largest power of two that is at most `heads`: 2^(-8 (h + 1) / n) for
// the first n heads, then every other slope of 2n heads. Integer arithmetic, rounded once to a
// double that is off by at most 0.6 units in its last place.
std::vector<double> AlibiSlopes(int64_t heads);

}  // namespace phasor

#endif  // PHASOR_KERNELS_PLAN_BIAS_RULE_H_
