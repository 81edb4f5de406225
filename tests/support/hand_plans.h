// SPDX-License-Identifier: Apache-2.0
// Hand-made plans with random frequencies: every form of computation that a plan can ask for, also
// those that no spec can express.
#ifndef PHASOR_TESTS_SUPPORT_HAND_PLANS_H_
#define PHASOR_TESTS_SUPPORT_HAND_PLANS_H_

#include <cstdint>
#include <memory>
#include <random>

#include "kernels/plan/frequencies.h"
#include "kernels/plan/plan.h"

namespace phasor::testing {

struct HandPlan {
  int64_t pairs = 8;  // of a head
  int64_t heads = 1;
  int axes = 1;
  bool dense = false;    // every axis turns every pair; else axes take turns
  bool offsets = false;  // a phase per pair
  bool xpos = false;
  bool xpos_inverse = false;
  double amplitude = 1.0;
  int64_t rotary_begin = 0;
  int64_t tail = 0;  // lanes behind the pairs
  Pairing pairing = Pairing::kHalfSplit;
  Pairing pairing_out = Pairing::kHalfSplit;
  std::vector<int64_t> axes_dim;  // of BLOCK_HALF_SPLIT
};

// Frequencies are up to 3 turns, of either sign.
inline std::shared_ptr<Plan> MakeHandPlan(const HandPlan& want, uint64_t seed = 1) {
  std::mt19937_64 random(seed);
  auto plan = std::make_shared<Plan>();
  plan->id = (uint64_t{1} << 62) + seed;
  plan->spec.kind = SpecKind::kRotary;
  plan->spec.axes = want.axes;
  plan->spec.rotary_dim = 2 * want.pairs;
  plan->spec.rotary_begin = want.rotary_begin;
  plan->spec.head_dim = want.rotary_begin + 2 * want.pairs + want.tail;
  plan->spec.pairing = want.pairing;
  plan->spec.pairing_out = want.pairing_out;
  plan->spec.axes_dim = want.axes_dim;
  plan->amplitude = want.amplitude;
  plan->heads = want.heads;
  const int64_t head_pairs = want.heads == 1 ? want.pairs : (want.pairs + 1) / 2 * 2;
  plan->pairs = want.heads * head_pairs;
  for (int layer = 0; layer < (want.dense ? want.axes : 1); ++layer) {
    for (int64_t j = 0; j < plan->pairs; ++j) {
      plan->frequency.push_back({static_cast<int64_t>(random() % 6) - 3, random()});
      plan->axis.push_back(static_cast<uint8_t>(want.dense ? layer : j % want.axes));
    }
  }
  for (int64_t j = 0; j < plan->pairs; ++j) plan->offset.push_back(want.offsets ? random() : 0);
  plan->table = MakePhaseTable(plan->frequency, plan->axis, plan->offset);
  if (want.xpos) {
    plan->xpos.emplace();
    plan->xpos->center = {20, uint64_t{1} << 63};
    plan->xpos->inverse = want.xpos_inverse;
    for (int64_t h = 0; h < want.heads; ++h) {
      auto rates = XposRates(want.pairs, 64.0);
      rates.resize(head_pairs);
      plan->xpos->rate.insert(plan->xpos->rate.end(), rates.begin(), rates.end());
    }
  }
  return plan;
}

inline TablePairs PairsOf(const Plan& plan) {
  return {plan.heads, plan.spec.rotary_dim / 2, plan.head_pairs()};
}

}  // namespace phasor::testing

#endif  // PHASOR_TESTS_SUPPORT_HAND_PLANS_H_
