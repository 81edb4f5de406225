// SPDX-License-Identifier: Apache-2.0
// How an attention bias depends on where query and key stand: what a user writes (BiasSpec) and its
// compiled, checked form (BiasRule). docs/tables-and-biases.md explains the families.
#ifndef PHASOR_KERNELS_BIAS_RULE_H_
#define PHASOR_KERNELS_BIAS_RULE_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/log_buckets.h"

namespace phasor {

enum class BiasFamily : uint8_t {
  kT5,        // table over logarithmic buckets of key - query
  kClipped,   // table over key - query, clipped
  kSwin,      // table over the two-dimensional offset within a window
  kAlibi,     // -slope * |query - key|
  kDeberta,   // logarithmic buckets of query - key; the buckets themselves are the output
  kAlibiKey,  // slope * key
};

constexpr std::string_view Name(BiasFamily family) {
  switch (family) {
    case BiasFamily::kT5:
      return "T5";
    case BiasFamily::kClipped:
      return "CLIPPED";
    case BiasFamily::kSwin:
      return "SWIN";
    case BiasFamily::kAlibi:
      return "ALIBI";
    case BiasFamily::kDeberta:
      return "DEBERTA";
    case BiasFamily::kAlibiKey:
      return "ALIBI_KEY";
  }
  return "?";
}

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

// Checked and compiled. Threads: a plain value. Owns its numbers.
struct BiasRule {
  BiasFamily family = BiasFamily::kAlibi;
  BiasSpec spec;  // every field that the family uses, no preset
  int axes = 1;   // of query and key positions
  // Table families: rows of the table; kDeberta: 0, its buckets are signed and open-ended.
  int64_t table_rows = 0;
  LogBuckets buckets;                      // kT5, kDeberta
  int64_t direction_rows = 0;              // kT5: rows of keys that are not after the query
  bool bidirectional = false;              // kT5
  int64_t clip = 0;                        // kClipped
  std::array<int64_t, 2> window = {0, 0};  // kSwin: height, width
  std::vector<double> slopes;              // kAlibi, kAlibiKey: one per head

  bool has_slopes() const { return !slopes.empty(); }
};

inline constexpr int64_t kMaxBiasHeads = 65536;

// INVALID_ARGUMENT: a field out of range, missing, or of another family. NOT_FOUND: no such preset.
// 1 <= heads <= kMaxBiasHeads.
absl::StatusOr<BiasRule> CompileBias(const BiasSpec& spec, int64_t heads, std::string_view path);

// Slopes of ALiBi: 2^(-8 (h + 1) / n) for the n heads up to the largest power of two in `heads`,
// and for the rest every other slope of 2n heads. Integer arithmetic, rounded once to a double that
// is off by at most 0.6 units in its last place.
std::vector<double> AlibiSlopes(int64_t heads);

}  // namespace phasor

#endif  // PHASOR_KERNELS_BIAS_RULE_H_
