// SPDX-License-Identifier: Apache-2.0
// Caches of one prompt at two offsets, for tests of check-cache: random keys, rotated by libm in
// double precision.
#ifndef PHASOR_TESTS_SUPPORT_ROTATED_CACHES_H_
#define PHASOR_TESTS_SUPPORT_ROTATED_CACHES_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "client/cli/cache/check.h"
#include "client/cli/npy.h"
#include "tests/support/key_cache.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tensors.h"

namespace phasor::testing {

inline constexpr int64_t kCacheTokens = 12, kCacheHeads = 2, kCacheDim = 32, kCacheDistance = 1000;

// Writes float32 [tokens, heads, head_dim], half-split pairs of all lanes. `seed` chooses the
// prompt.
inline void WriteCache(const std::string& path, uint32_t seed, double base, int64_t offset) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  std::vector<float> lanes;
  for (int64_t t = 0; t < kCacheTokens; ++t) {
    for (int64_t h = 0; h < kCacheHeads; ++h) {
      std::vector<double> key(kCacheDim);
      for (double& lane : key) lane = normal(random);
      TurnKey(base, static_cast<double>(offset + t), 0, kCacheDim / 2, /*half_split=*/true, &key);
      lanes.insert(lanes.end(), key.begin(), key.end());
    }
  }
  ASSERT_TRUE(cli::WriteNpy(path, View(lanes, {kCacheTokens, kCacheHeads, kCacheDim})).ok());
}

inline Spec CacheSpec(double base) {
  return {.preset = "rope-half-split", .rope_theta = base, .head_dim = kCacheDim};
}

// A layer at positions 0 and kCacheDistance, stored by an engine with `base`, said to have `spec`.
inline cli::LayerCase RotatedLayer(const TempDir& dir, int64_t layer, double base,
                                   const Spec& spec) {
  cli::LayerCase out{.layer = layer};
  const auto resolved = ResolveSpec(spec);
  EXPECT_TRUE(resolved.ok()) << resolved.status();
  out.spec = ToSpec(*resolved);
  for (const bool moved : {false, true}) {
    const std::string path = dir.path() + (moved ? "/b." : "/a.") + std::to_string(layer) + ".npy";
    WriteCache(path, static_cast<uint32_t>(layer), base, moved ? kCacheDistance : 0);
    const auto dump =
        cli::OpenDump({.common = {.file = path, .layout = {.name = "nhd", .page_size = 0}}},
                      {.head_dim = [](int64_t) { return kCacheDim; }});
    EXPECT_TRUE(dump.ok()) << dump.status();
    (moved ? out.to : out.from) = dump->layers.front();
  }
  const auto tokens = cli::PairTokens(out.from, out.to, {.from = 0, .to = kCacheDistance});
  EXPECT_TRUE(tokens.ok()) << tokens.status();
  out.tokens = std::make_shared<const cli::TokenPairs>(*tokens);
  out.tolerance = cli::GateTolerance(KeyCode::kFloat32, *out.tokens);
  return out;
}

}  // namespace phasor::testing

#endif  // PHASOR_TESTS_SUPPORT_ROTATED_CACHES_H_
