// SPDX-License-Identifier: Apache-2.0
// Golden values of attention biases. tests/conformance/bias.py made them with the upstream
// packages.
#ifndef PHASOR_TESTS_SUPPORT_BIAS_GOLDEN_H_
#define PHASOR_TESTS_SUPPORT_BIAS_GOLDEN_H_

#include <algorithm>
#include <cstdint>
#include <vector>

namespace phasor::testing {

// From this distance on, this bucket, until the next run.
struct BucketRun {
  int64_t distance;
  int64_t bucket;
};
struct T5Golden {
  bool bidirectional;
  int64_t buckets, max_distance;
  int64_t count;  // of distances
  std::vector<BucketRun> runs;
};
struct DebertaGolden {
  int64_t buckets, max_distance;
  int64_t count;
  std::vector<BucketRun> runs;
};
struct SlopeGolden {
  int64_t heads;
  std::vector<float> bloom, mpt;
};
struct SwinGolden {
  int64_t height, width;
  std::vector<int64_t> index;  // [height * width, height * width]
};

#include "tests/conformance/golden/bias.inc"

// The distances of the golden values, as the script makes them.
inline std::vector<int64_t> GoldenDistances(int64_t limit) {
  std::vector<int64_t> ahead;
  for (int64_t n = 0; n < 2 * limit + 10; ++n) ahead.push_back(n);
  const int64_t near = static_cast<int64_t>(ahead.size());
  for (int e = 10; e <= 30; ++e) {
    for (const int64_t n : {(int64_t{1} << e) - 1, int64_t{1} << e, (int64_t{1} << e) + 1}) {
      if (n >= near) ahead.push_back(n);
    }
  }
  std::vector<int64_t> all;
  for (size_t i = ahead.size(); i-- > 1;) all.push_back(-ahead[i]);
  all.insert(all.end(), ahead.begin(), ahead.end());
  return all;
}

inline int64_t GoldenBucket(const std::vector<BucketRun>& runs, int64_t distance) {
  const auto after =
      std::upper_bound(runs.begin(), runs.end(), distance,
                       [](int64_t d, const BucketRun& run) { return d < run.distance; });
  return std::prev(after)->bucket;
}

}  // namespace phasor::testing

#endif  // PHASOR_TESTS_SUPPORT_BIAS_GOLDEN_H_
