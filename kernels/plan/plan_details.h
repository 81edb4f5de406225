// SPDX-License-Identifier: Apache-2.0
// Lists every number of a plan for people: the frequency and axis of each pair, and where its sine
// and cosine go. Threads: pure functions.
#ifndef PHASOR_KERNELS_PLAN_PLAN_DETAILS_H_
#define PHASOR_KERNELS_PLAN_PLAN_DETAILS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/math/phase.h"

namespace phasor {

struct Plan;

// One pair on one axis.
struct PairDetail {
  int64_t head = 0;  // index among the heads with their own frequencies
  int64_t pair = 0;  // index in the head or row; DENSE lists it once per axis
  int axis = 0;
  Frequency turns;            // per unit position, exactly as used
  double inv_freq = 0;        // radians per unit position, nearest double
  uint64_t phase_offset = 0;  // fraction of a turn times 2^64
  // Encodings: the columns of the pair's sine and cosine; nullopt: not stored.
  std::optional<int64_t> sine_column = {}, cosine_column = {};
  // Rotary: the lanes of the pair in the input and in the output.
  std::optional<int64_t> first_lane = {}, second_lane = {};
  std::optional<int64_t> first_lane_out = {}, second_lane_out = {};

  friend bool operator==(const PairDetail&, const PairDetail&) = default;
};

// Sorted by head, pair and axis.
std::vector<PairDetail> DetailsOf(const Plan& plan);

}  // namespace phasor

#endif  // PHASOR_KERNELS_PLAN_PLAN_DETAILS_H_
