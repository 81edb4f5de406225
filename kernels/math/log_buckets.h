// SPDX-License-Identifier: Apache-2.0
// Buckets that are exact for small distances and logarithmic for large ones (T5, DeBERTa-v2).
//
// Upstream computes them in f32: quotient, natural logarithm, quotient of two logarithms, product,
// each rounded, then truncation (T5) or ceiling (DeBERTa). Where a bucket ends may so depend on a
// rounding, and ours must be the same. Here the f32 steps run once per bucket when the rule is
// made, with a logarithm rounded to nearest, and give integer thresholds; looking a distance up
// then is a search among integers.
#ifndef PHASOR_KERNELS_MATH_LOG_BUCKETS_H_
#define PHASOR_KERNELS_MATH_LOG_BUCKETS_H_

#include <cstdint>
#include <limits>
#include <vector>

namespace phasor {

// Threads: a plain value. Owns its thresholds.
class LogBuckets {
 public:
  LogBuckets() = default;
  // One direction of T5: distance n < buckets / 2 is bucket n, then up to buckets - 1, which begins
  // somewhat before max_distance. buckets >= 2, max_distance > buckets / 2.
  static LogBuckets T5(int64_t buckets, int64_t max_distance);
  // DeBERTa-v2, one direction: distance n <= mid = bucket_size / 2 is bucket n, max_position - 1 is
  // bucket_size - 1, and larger ones go on. bucket_size >= 2, max_position - 1 > mid.
  static LogBuckets Deberta(int64_t bucket_size, int64_t max_position);

  // The bucket of a distance n >= 0.
  int64_t Of(int64_t n) const;

  // What a kernel needs to do the same for distances below limit().
  int64_t exact_end() const { return exact_end_; }        // distances below are their own bucket
  int64_t first_bucket() const { return first_bucket_; }  // bucket of exact_end()
  // [i]: least distance of bucket first_bucket() + i + 1.
  const std::vector<int64_t>& thresholds() const { return thresholds_; }
  // Thresholds say nothing about distances from here on.
  int64_t limit() const {
    return formula_begin_ < 0 ? std::numeric_limits<int64_t>::max() : formula_begin_;
  }

 private:
  int64_t Formula(int64_t n) const;
  void SetThresholds(int64_t first, int64_t last);

  bool deberta_ = false;
  int64_t mid_ = 1;                  // where the logarithm begins
  float log_ratio_ = 1;              // f32 logarithm of the largest distance over mid
  float spread_ = 0;                 // buckets beyond mid
  int64_t top_ = 0;                  // T5: the last bucket
  int64_t exact_end_ = 1;            // distances below are their own bucket
  int64_t first_bucket_ = 0;         // bucket of exact_end_
  int64_t formula_begin_ = -1;       // distances from here on are not in thresholds_
  std::vector<int64_t> thresholds_;  // [i]: least distance of bucket first_bucket_ + i + 1
};

}  // namespace phasor

#endif  // PHASOR_KERNELS_MATH_LOG_BUCKETS_H_
