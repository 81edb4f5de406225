// SPDX-License-Identifier: Apache-2.0
// The part of the rotary op's arguments that follows from plans.
#ifndef PHASOR_KERNELS_CPU_ROTARY_ARGS_H_
#define PHASOR_KERNELS_CPU_ROTARY_ARGS_H_

#include "kernels/ops/rotary.h"
#include "kernels/plan/plan.h"
#include "kernels/spec/ladders.h"

namespace phasor::cpu {

inline const Xpos* XposOf(const Plan& plan) {
  return plan.xpos.has_value() ? &*plan.xpos : nullptr;
}

// The arguments of a rotation by `plan`, relative to `from_plan` unless it is nullptr. Amplitude,
// direction, pairings and memory are left to the caller.
inline RotaryArgs RotaryArgsOf(const Plan& plan, const Plan* from_plan) {
  RotaryArgs args;
  args.table = &plan.table;
  args.axes = plan.spec.axes;
  args.xpos = XposOf(plan);
  if (from_plan != nullptr) {
    args.from_table = &from_plan->table;
    args.from_axes = from_plan->spec.axes;
    args.from_xpos = XposOf(*from_plan);
  }
  args.head_dim = plan.spec.head_dim;
  args.rotary_begin = plan.spec.rotary_begin;
  args.pairs = plan.spec.rotary_dim / 2;
  args.frequency_heads = plan.heads;
  args.head_pairs = plan.head_pairs();
  const bool own = from_plan == nullptr || plan.spec.pairing_out == Pairing::kBlockHalfSplit;
  args.blocks = PairBlocksOf(own ? plan.spec : from_plan->spec);
  return args;
}

inline int64_t RotaryScratchBytes(const RotaryArgs& args) {
  return phasor::RotaryScratchBytes(*args.table, args.pairs, args.frequency_heads);
}

}  // namespace phasor::cpu

#endif  // PHASOR_KERNELS_CPU_ROTARY_ARGS_H_
