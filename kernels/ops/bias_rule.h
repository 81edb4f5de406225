// SPDX-License-Identifier: Apache-2.0
// The rule that gives an attention bias from the positions of query and key, checked and compiled.
// docs/tables-and-biases.md explains the families.
#ifndef PHASOR_KERNELS_OPS_BIAS_RULE_H_
#define PHASOR_KERNELS_OPS_BIAS_RULE_H_

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "kernels/math/log_buckets.h"

namespace phasor {

enum class BiasFamily : uint8_t {
  kT5,        // table over logarithmic buckets of key - query
  kClipped,   // table over key - query, clipped
  kSwin,      // table over the two-dimensional offset within a window
  kAlibi,     // -slope * |query - key|
  kDeberta,   // logarithmic buckets of query - key; outputs the buckets themselves
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

// A checked and compiled rule. Threads: a plain value. Owns its numbers.
struct BiasRule {
  BiasFamily family = BiasFamily::kAlibi;
  int axes = 1;  // of query and key positions
  // The table's rows, for table families. kDeberta: 0, because its buckets are signed and
  // unbounded.
  int64_t table_rows = 0;
  LogBuckets buckets;                      // kT5, kDeberta
  int64_t direction_rows = 0;              // kT5: table rows for keys that are not after the query
  bool bidirectional = false;              // kT5
  int64_t clip = 0;                        // kClipped
  std::array<int64_t, 2> window = {0, 0};  // kSwin: height, width
  std::vector<double> slopes;              // kAlibi, kAlibiKey: one per head

  bool has_slopes() const { return !slopes.empty(); }
};

}  // namespace phasor

#endif  // PHASOR_KERNELS_OPS_BIAS_RULE_H_
