// SPDX-License-Identifier: Apache-2.0
// A plan: the tables compiled from a spec. Plain values without device memory or lazy state.
// Threads: immutable once made; share freely.
#ifndef PHASOR_KERNELS_PLAN_PLAN_H_
#define PHASOR_KERNELS_PLAN_PLAN_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/math/phase.h"
#include "kernels/math/xpos.h"
#include "kernels/plan/parity/tables.h"
#include "kernels/plan/phase_table.h"
#include "kernels/plan/row_layout.h"
#include "kernels/spec/spec.h"

namespace phasor {

// The phase of pair j is the sum over its layers, plus its offset. There is one layer, or one per
// axis if every axis turns every pair. If heads have their own frequencies, the pairs of head h
// start at h * head_pairs().
struct Plan {
  uint64_t id = 0;  // unique in the process
  ResolvedSpec spec;
  std::string fingerprint;
  int64_t pairs = 0;                   // including pairs that pad a block to an even count
  int64_t heads = 1;                   // heads with their own frequencies; 1: all heads share
  std::vector<Frequency> frequency;    // [layers, pairs]
  std::vector<uint8_t> axis;           // [layers, pairs]
  std::vector<uint64_t> offset;        // [pairs]: added once to the phase of the position
  double amplitude = 1;                // factor of sine and cosine, with that of rope_scaling
  PhaseTable table;                    // frequency, axis and offset, rearranged
  RowLayout layout;                    // encoding only
  std::optional<Xpos> xpos;            // rotary only; one axis
  std::optional<ParityTables> parity;  // set: results come from these tables instead

  int64_t head_pairs() const { return pairs / heads; }
};

// The memory of a plan, that of its spec included.
int64_t BytesOf(const Plan& plan);
// The memory of a spec.
int64_t BytesOf(const ResolvedSpec& spec);

// The factor of sine and cosine. INVALID_ARGUMENT: it is not a finite float32.
absl::StatusOr<double> CheckedAmplitude(const ResolvedSpec& spec);

// Compiles `spec`, which must come from ResolveSpec. INVALID_ARGUMENT: a frequency is 2^63 turns or
// more per position, or the amplitude is not a finite float32.
absl::StatusOr<std::shared_ptr<const Plan>> CompilePlan(const ResolvedSpec& spec);

}  // namespace phasor

#endif  // PHASOR_KERNELS_PLAN_PLAN_H_
