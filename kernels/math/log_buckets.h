// SPDX-License-Identifier: Apache-2.0
// Buckets that are exact for small distances and logarithmic for large ones (T5, DeBERTa-v2).
//
// Upstream computes buckets in f32: a quotient, a natural logarithm, a quotient of two logarithms
// and a product, each rounded, then truncation (T5) or ceiling (DeBERTa). The end of a bucket can
// depend on one rounding, and ours must be the same. So the f32 steps run when the rule is made,
// with a logarithm rounded to nearest, and give one integer threshold per bucket. Looking up a
// distance is then a search among integers.
#ifndef PHASOR_KERNELS_MATH_LOG_BUCKETS_H_
#define PHASOR_KERNELS_MATH_LOG_BUCKETS_H_

#include <cstdint>
#include <limits>
#include <vector>

namespace phasor {

// Maps a distance to its bucket. Threads: a plain value. Owns its thresholds.
class LogBuckets {
 public:
  LogBuckets() = default;
  // One direction of T5. Distances n < buckets / 2 are bucket n; the last bucket is buckets - 1 and
  // begins somewhat before max_distance. Needs buckets >= 2 and max_distance > buckets / 2.
  static LogBuckets T5(int64_t buckets, int64_t max_distance);
  // One direction of DeBERTa-v2. Distances n <= mid = bucket_size / 2 are bucket n;
  // max_position - 1 is bucket_size - 1; buckets of larger distances go on from there. Needs
  // bucket_size >= 2 and max_position - 1 > mid.
  static LogBuckets Deberta(int64_t bucket_size, int64_t max_position);

  // The bucket of a distance n >= 0.
  int64_t Of(int64_t n) const;

  // What a kernel needs to find the same bucket for distances below limit().
  int64_t exact_end() const { return exact_end_; }        // smaller distances are their own bucket
  int64_t first_bucket() const { return first_bucket_; }  // bucket of exact_end()
  // [i] is the least distance of bucket first_bucket() + i + 1.
  const std::vector<int64_t>& thresholds() const { return thresholds_; }
  // The thresholds cover distances below this one.
  int64_t limit() const {
    return formula_begin_ < 0 ? std::numeric_limits<int64_t>::max() : formula_begin_;
  }

 private:
  int64_t Formula(int64_t n) const;
  void SetThresholds(int64_t first, int64_t last);

  bool deberta_ = false;
  int64_t mid_ = 1;             // where the logarithm begins
  float log_ratio_ = 1;         // f32 logarithm of the largest distance over mid
  float spread_ = 0;            // buckets beyond mid
  int64_t top_ = 0;             // T5: the last bucket
  int64_t exact_end_ = 1;       // smaller distances are their own bucket
  int64_t first_bucket_ = 0;    // bucket of exact_end_
  int64_t formula_begin_ = -1;  // distances from here on use Formula(), not thresholds_; -1: none
  std::vector<int64_t> thresholds_;  // [i]: least distance of bucket first_bucket_ + i + 1
};

}  // namespace phasor

#endif  // PHASOR_KERNELS_MATH_LOG_BUCKETS_H_
