// SPDX-License-Identifier: Apache-2.0
// Computes the thresholds of logarithmic buckets with upstream's f32 arithmetic, and looks buckets
// up. Sources: transformers, T5Attention._relative_position_bucket and
// deberta_v2.make_log_bucket_position.
#include "kernels/math/log_buckets.h"

#include <algorithm>
#include <cmath>

namespace phasor {
namespace {

// The f32 nearest to ln x. The double logarithm is off by less than 2^-52 of its value.
float NearestLog(float x) { return static_cast<float>(std::log(static_cast<double>(x))); }

}  // namespace

LogBuckets LogBuckets::T5(int64_t buckets, int64_t max_distance) {
  LogBuckets b;
  b.mid_ = b.exact_end_ = buckets / 2;
  b.top_ = buckets - 1;
  // Upstream divides by a Python float, which the f32 division rounds.
  b.log_ratio_ =
      static_cast<float>(std::log(static_cast<double>(max_distance) / static_cast<double>(b.mid_)));
  b.spread_ = static_cast<float>(buckets - b.mid_);
  b.SetThresholds(b.exact_end_, max_distance);
  return b;
}

LogBuckets LogBuckets::Deberta(int64_t bucket_size, int64_t max_position) {
  LogBuckets b;
  b.deberta_ = true;
  b.mid_ = bucket_size / 2;
  b.exact_end_ = b.mid_ + 1;
  // Upstream divides by the f32 logarithm of an f32 quotient.
  b.log_ratio_ = NearestLog(
      static_cast<float>(static_cast<double>(max_position - 1) / static_cast<double>(b.mid_)));
  b.spread_ = static_cast<float>(b.mid_ - 1);
  b.formula_begin_ = max_position;
  b.SetThresholds(b.exact_end_, max_position);
  return b;
}

// Upstream's f32 arithmetic, step by step.
int64_t LogBuckets::Formula(int64_t n) const {
  const float ratio = static_cast<float>(n) / static_cast<float>(mid_);
  const float buckets = NearestLog(ratio) / log_ratio_ * spread_;
  if (deberta_) return static_cast<int64_t>(std::ceil(buckets)) + mid_;
  return std::min(mid_ + static_cast<int64_t>(buckets), top_);
}

// Finds the least distance of each bucket by bisection. Every step of the formula is monotone, so
// each bucket begins at one distance.
void LogBuckets::SetThresholds(int64_t first, int64_t last) {
  first_bucket_ = Formula(first);
  const int64_t last_bucket = Formula(last);
  int64_t low = first;
  for (int64_t bucket = first_bucket_ + 1; bucket <= last_bucket; ++bucket) {
    int64_t high = last;  // belongs to `bucket` or a later one
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      if (Formula(middle) >= bucket) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    thresholds_.push_back(low);
  }
}

int64_t LogBuckets::Of(int64_t n) const {
  if (n < exact_end_) return n;
  if (formula_begin_ >= 0 && n >= formula_begin_) return Formula(n);
  const auto above = std::upper_bound(thresholds_.begin(), thresholds_.end(), n);
  return first_bucket_ + (above - thresholds_.begin());
}

}  // namespace phasor
