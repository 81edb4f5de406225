// SPDX-License-Identifier: Apache-2.0
// Walks the pairs and blocks of a plan and describes each pair.
#include "kernels/plan/plan_details.h"

#include <tuple>
#include <utility>

#include "kernels/plan/frequencies.h"
#include "kernels/plan/plan.h"
#include "kernels/spec/ladders.h"

namespace phasor {
namespace {

// The lanes of pair j.
std::pair<int64_t, int64_t> Lanes(const ResolvedSpec& spec, Pairing pairing, int64_t j) {
  const auto lane = [&](int component) {
    return spec.rotary_begin +
           LaneOfPair(pairing, spec.rotary_dim / 2, PairBlocksOf(spec), j, component);
  };
  return {lane(0), lane(1)};
}

// Adds pair `index` of the plan, once per layer.
void Add(const Plan& plan, int64_t index, PairDetail detail, std::vector<PairDetail>& details) {
  const int64_t layers = static_cast<int64_t>(plan.frequency.size()) / plan.pairs;
  for (int64_t layer = 0; layer < layers; ++layer) {
    detail.axis = plan.axis[layer * plan.pairs + index];
    detail.turns = plan.frequency[layer * plan.pairs + index];
    detail.inv_freq = RadiansPerUnit(detail.turns);
    detail.phase_offset = plan.offset[index];
    details.push_back(detail);
  }
}

std::vector<PairDetail> RotaryDetails(const Plan& plan) {
  std::vector<PairDetail> details;
  for (int64_t head = 0; head < plan.heads; ++head) {
    for (int64_t j = 0; j < plan.spec.rotary_dim / 2; ++j) {
      PairDetail detail = {.head = head, .pair = j};
      std::tie(detail.first_lane, detail.second_lane) = Lanes(plan.spec, plan.spec.pairing, j);
      std::tie(detail.first_lane_out, detail.second_lane_out) =
          Lanes(plan.spec, plan.spec.pairing_out, j);
      Add(plan, head * plan.head_pairs() + j, detail, details);
    }
  }
  return details;
}

std::vector<PairDetail> EncodingDetails(const Plan& plan) {
  // Indexed by pair of the plan, because several blocks may share a pair.
  std::vector<PairDetail> columns(plan.pairs);
  std::vector<bool> used(plan.pairs, false);
  for (const EncodeBlock& block : plan.layout.blocks) {
    for (int64_t i = 0; i < block.pairs; ++i) {
      used[block.first_pair + i] = true;
      PairDetail& at = columns[block.first_pair + i];
      if (block.sin_begin >= 0) at.sine_column = block.sin_begin + i * block.stride;
      if (block.cos_begin >= 0) at.cosine_column = block.cos_begin + i * block.stride;
    }
  }
  std::vector<PairDetail> details;
  int64_t next = 0;
  for (int64_t index = 0; index < plan.pairs; ++index) {
    if (!used[index]) continue;  // padding of a block
    columns[index].pair = next++;
    Add(plan, index, columns[index], details);
  }
  return details;
}

}  // namespace

std::vector<PairDetail> DetailsOf(const Plan& plan) {
  return plan.spec.kind == SpecKind::kRotary ? RotaryDetails(plan) : EncodingDetails(plan);
}

}  // namespace phasor
