// SPDX-License-Identifier: Apache-2.0
// The presets of attention biases, the checks of each family's fields, and ALiBi's slopes.
#include "kernels/plan/bias_rule.h"

#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_join.h"
#include "kernels/base/invalid.h"
#include "kernels/base/nearest_name.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"

namespace phasor {
namespace {

using Uint128 = unsigned __int128;

// Thresholds are computed while a request is checked, so their number is limited.
constexpr int64_t kMaxBuckets = 1024;
constexpr int64_t kMaxDistance = int64_t{1} << 30;
constexpr int64_t kMaxWindow = 16384;

template <typename T>
void Override(const std::optional<T>& from, std::optional<T>* to) {
  if (from.has_value()) *to = from;
}

// Returns `spec` merged over its preset.
absl::StatusOr<BiasSpec> WithPreset(const BiasSpec& spec, std::string_view path) {
  if (spec.preset.empty()) return spec;
  std::vector<std::string> names;
  for (const BiasPreset& preset : BiasPresets()) {
    if (preset.name != spec.preset) {
      names.push_back(preset.name);
      continue;
    }
    BiasSpec merged = preset.spec;
    Override(spec.family, &merged.family);
    Override(spec.num_buckets, &merged.num_buckets);
    Override(spec.max_distance, &merged.max_distance);
    Override(spec.bidirectional, &merged.bidirectional);
    if (!spec.window.empty()) merged.window = spec.window;
    return merged;
  }
  return absl::NotFoundError(StrCat(path, ".preset: '", Shown(spec.preset), "' is not known",
                                    DidYouMean(spec.preset, names), " must be one of ",
                                    absl::StrJoin(names, ", ")));
}

absl::StatusOr<int64_t> Required(const std::optional<int64_t>& value, int64_t min, int64_t max,
                                 std::string_view path) {
  if (!value.has_value()) {
    return Invalid(path, ": not set; must be in [", min, ", ", max, "]");
  }
  if (*value >= min && *value <= max) return *value;
  return Invalid(path, ": ", *value, "; must be in [", min, ", ", max, "]");
}

// Refuses fields of other families: they would have no effect, which the user did not intend.
absl::Status CheckUnused(const BiasSpec& spec, BiasFamily family, std::string_view path) {
  const bool logarithmic = family == BiasFamily::kT5 || family == BiasFamily::kDeberta;
  const auto unused = [&](bool set, bool used, std::string_view field, std::string_view families) {
    if (!set || used) return absl::OkStatus();
    return Invalid(path, ".", field, ": set for ", Name(family), "; must be only for ", families);
  };
  PHASOR_RETURN_IF_ERROR(
      unused(spec.num_buckets.has_value(), logarithmic, "num_buckets", "T5 and DEBERTA"));
  PHASOR_RETURN_IF_ERROR(unused(spec.max_distance.has_value(),
                                logarithmic || family == BiasFamily::kClipped, "max_distance",
                                "T5, CLIPPED and DEBERTA"));
  PHASOR_RETURN_IF_ERROR(
      unused(spec.bidirectional.has_value(), family == BiasFamily::kT5, "bidirectional", "T5"));
  return unused(!spec.window.empty(), family == BiasFamily::kSwin, "window", "SWIN");
}

absl::Status CompileT5(std::string_view path, CompiledBias* rule) {
  BiasSpec& spec = rule->spec;
  if (!spec.bidirectional.has_value()) {
    return Invalid(path, ".bidirectional: not set; must be true (encoder) or false (decoder)");
  }
  rule->bidirectional = *spec.bidirectional;
  const int64_t directions = rule->bidirectional ? 2 : 1;
  const std::string buckets_path = StrCat(path, ".num_buckets");
  PHASOR_ASSIGN_OR_RETURN(const int64_t buckets,
                          Required(spec.num_buckets, 2 * directions, kMaxBuckets, buckets_path));
  if (buckets % directions != 0) {
    return Invalid(buckets_path, ": ", buckets, " is odd; must be even when bidirectional");
  }
  rule->table_rows = buckets;
  rule->direction_rows = buckets / directions;
  PHASOR_ASSIGN_OR_RETURN(const int64_t distance,
                          Required(spec.max_distance, rule->direction_rows / 2 + 1, kMaxDistance,
                                   StrCat(path, ".max_distance")));
  rule->buckets = LogBuckets::T5(rule->direction_rows, distance);
  return absl::OkStatus();
}

absl::Status CompileDeberta(std::string_view path, CompiledBias* rule) {
  PHASOR_ASSIGN_OR_RETURN(const int64_t buckets, Required(rule->spec.num_buckets, 2, kMaxBuckets,
                                                          StrCat(path, ".num_buckets")));
  PHASOR_ASSIGN_OR_RETURN(const int64_t distance,
                          Required(rule->spec.max_distance, buckets / 2 + 2, kMaxDistance,
                                   StrCat(path, ".max_distance")));
  rule->buckets = LogBuckets::Deberta(buckets, distance);
  return absl::OkStatus();
}

absl::Status CompileClipped(std::string_view path, CompiledBias* rule) {
  PHASOR_ASSIGN_OR_RETURN(rule->clip, Required(rule->spec.max_distance, 1, kMaxDistance - 1,
                                               StrCat(path, ".max_distance")));
  rule->table_rows = 2 * rule->clip + 1;
  return absl::OkStatus();
}

absl::Status CompileSwin(std::string_view path, CompiledBias* rule) {
  const std::vector<int64_t>& window = rule->spec.window;
  if (window.size() != 2) {
    return Invalid(path, ".window: ", window.size(), " extents; must be [height, width]");
  }
  for (size_t i = 0; i < 2; ++i) {
    if (window[i] >= 1 && window[i] <= kMaxWindow) continue;
    return Invalid(path, ".window[", i, "]: ", window[i], "; must be in [1, ", kMaxWindow, "]");
  }
  rule->axes = 2;
  rule->window = {window[0], window[1]};
  rule->table_rows = (2 * window[0] - 1) * (2 * window[1] - 1);
  return absl::OkStatus();
}

absl::Status CompileFamily(int64_t heads, std::string_view path, CompiledBias* rule) {
  switch (rule->family) {
    case BiasFamily::kT5:
      return CompileT5(path, rule);
    case BiasFamily::kClipped:
      return CompileClipped(path, rule);
    case BiasFamily::kSwin:
      return CompileSwin(path, rule);
    case BiasFamily::kDeberta:
      return CompileDeberta(path, rule);
    case BiasFamily::kAlibi:
    case BiasFamily::kAlibiKey:
      rule->slopes = AlibiSlopes(heads);
      return absl::OkStatus();
  }
  return absl::OkStatus();
}

uint64_t IntegerSqrt(Uint128 x) {
  uint64_t root = 0;
  for (uint64_t bit = uint64_t{1} << 63; bit != 0; bit >>= 1) {
    const Uint128 candidate = root | bit;
    if (candidate * candidate <= x) root |= bit;
  }
  return root;
}

// 2^(-numerator / 2^log2_denominator) for numerator > 0 and log2_denominator <= 17.
double NegativePowerOfTwo(int64_t numerator, int log2_denominator) {
  uint64_t product = 0;  // in units of 2^-64; 0 means 1
  uint64_t root = 0;
  for (int bit = 1; bit <= log2_denominator; ++bit) {
    // 2^(-1/2), 2^(-1/4), ...: each is the square root of the one before.
    root = bit == 1 ? IntegerSqrt(Uint128{1} << 127) : IntegerSqrt(Uint128{root} << 64);
    if ((numerator >> (log2_denominator - bit) & 1) == 0) continue;
    product = product == 0 ? root : static_cast<uint64_t>((Uint128{product} * root) >> 64);
  }
  const int whole = static_cast<int>(numerator >> log2_denominator);
  return product == 0 ? std::ldexp(1.0, -whole)
                      : std::ldexp(static_cast<double>(product), -64 - whole);
}

}  // namespace

absl::Span<const BiasPreset> BiasPresets() {
  static const auto* const presets = new std::vector<BiasPreset>{
      {"alibi",
       "penalty in proportion to the distance",
       "arXiv:2108.12409; x-transformers",
       {.family = BiasFamily::kAlibi}},
      {"bloom",
       "the same, from the key's position alone",
       "transformers build_alibi_tensor (Bloom)",
       {.family = BiasFamily::kAlibiKey}},
      {"deberta-v2",
       "bucket map of the encoder, 256 buckets to 512",
       "transformers build_relative_position (DeBERTa-v2, v3)",
       {.family = BiasFamily::kDeberta, .num_buckets = 256, .max_distance = 512}},
      {"mpt",
       "as bloom, the last key at position 0",
       "transformers build_mpt_alibi_tensor",
       {.family = BiasFamily::kAlibiKey}},
      {"swin",
       "relative positions in a window of 7 by 7",
       "timm WindowAttention (Swin v1)",
       {.family = BiasFamily::kSwin, .window = {7, 7}}},
      {"t5",
       "buckets of the encoder, 32 to distance 128",
       "transformers T5Attention",
       {.family = BiasFamily::kT5, .num_buckets = 32, .max_distance = 128, .bidirectional = true}},
      {"t5-decoder",
       "buckets of the decoder, 32 to distance 128",
       "transformers T5Attention",
       {.family = BiasFamily::kT5, .num_buckets = 32, .max_distance = 128, .bidirectional = false}},
  };
  return *presets;
}

absl::StatusOr<CompiledBias> CompileBias(const BiasSpec& spec, int64_t heads,
                                         std::string_view path) {
  CompiledBias rule;
  PHASOR_ASSIGN_OR_RETURN(rule.spec, WithPreset(spec, path));
  if (!rule.spec.family.has_value()) {
    return Invalid(path, ".family: not set; must be given when preset is not");
  }
  rule.family = *rule.spec.family;
  PHASOR_RETURN_IF_ERROR(CheckUnused(rule.spec, rule.family, path));
  PHASOR_RETURN_IF_ERROR(CompileFamily(heads, path, &rule));
  return rule;
}

std::vector<double> AlibiSlopes(int64_t heads) {
  int log2_n = 0;
  while (int64_t{2} << log2_n <= heads) ++log2_n;
  const int64_t n = int64_t{1} << log2_n;
  std::vector<double> slopes;
  for (int64_t h = 0; h < n; ++h) slopes.push_back(NegativePowerOfTwo(8 * (h + 1), log2_n));
  for (int64_t i = 0; n + i < heads; ++i) {
    slopes.push_back(NegativePowerOfTwo(4 * (2 * i + 1), log2_n));
  }
  return slopes;
}

}  // namespace phasor
