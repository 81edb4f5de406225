// SPDX-License-Identifier: Apache-2.0
// How an attention bias depends on where query and key stand: what a user writes (BiasSpec) and its
// compiled, checked form (BiasRule). docs/tables-and-biases.md explains the families.
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

struct BiasPreset {
  std::string name;
  std::string summary;
  std::string source;
  BiasSpec spec;
};
absl::Span<const BiasPreset> BiasPresets();

// A rule and what it was compiled from: every field that its family uses, no preset.
struct CompiledBias : BiasRule {
  BiasSpec spec;
};

inline constexpr int64_t kMaxBiasHeads = 65536;

// INVALID_ARGUMENT: a field out of range, missing, or of another family. NOT_FOUND: no such preset.
// 1 <= heads <= kMaxBiasHeads.
absl::StatusOr<CompiledBias> CompileBias(const BiasSpec& spec, int64_t heads,
                                         std::string_view path);

// Slopes of ALiBi: 2^(-8 (h + 1) / n) for the n heads up to the largest power of two in `heads`,
// and for the rest every other slope of 2n heads. Integer arithmetic, rounded once to a double that
// is off by at most 0.6 units in its last place.
std::vector<double> AlibiSlopes(int64_t heads);

}  // namespace phasor

#endif  // PHASOR_KERNELS_PLAN_BIAS_RULE_H_
