// SPDX-License-Identifier: Apache-2.0
// A plan: the tables that a spec stands for. Pure values: no device memory, no lazy state.
// Threads: immutable once made; share freely.
#ifndef PHASOR_KERNELS_PLAN_H_
#define PHASOR_KERNELS_PLAN_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/phase.h"
#include "kernels/spec.h"

namespace phasor {

// Where a run of pairs goes in an encoding row. COS_SIN order, and PER_ELEMENT encodings (a sine
// per element, those of odd elements a quarter turn ahead), are expressed by the fields below.
struct EncodeBlock {
  int64_t first_pair = 0;  // even
  int64_t pairs = 0;
  int64_t sin_begin = 0;    // column of the first sine
  int64_t cos_begin = 0;    // column of the first cosine; -1: cosines are not stored
  int64_t stride = 1;       // columns between neighbours of one component: 1 or 2
  bool accumulate = false;  // add to the columns instead of setting them (AxisGrouping::kSum)
};

// A maximal run of table entries that turn with the same axis.
struct AxisRun {
  int axis = 0;
  int64_t begin = 0;  // index into PhaseTable arrays
  int64_t count = 0;
};

// Frequencies in the order SIMD code wants: entries of even pairs, then entries of odd pairs, each
// half padded with zeros to `half` entries (a multiple of 16, so that full vectors can be loaded).
// Pair j is entry (j % 2) * half + j / 2.
struct PhaseTable {
  int64_t half = 0;
  std::vector<uint64_t> fraction;  // [2 * half]
  std::vector<uint64_t> whole;     // [2 * half], two's complement
  std::vector<uint64_t> offset;    // [2 * half] phase added to a position's; empty: zeros
  bool has_whole = false;          // some `whole` is not zero
  std::vector<AxisRun> runs;       // cover [0, 2 * half)

  int64_t Entry(int64_t pair) const { return (pair % 2) * half + pair / 2; }
};

struct Plan {
  uint64_t id = 0;  // unique in the process
  ResolvedSpec spec;
  std::string fingerprint;
  int64_t pairs = 0;                 // including pairs that only pad a block to an even count
  std::vector<Frequency> frequency;  // [pairs]
  std::vector<uint8_t> axis;         // [pairs]
  std::vector<uint64_t> offset;      // [pairs] phase added, once, to the phase of the position
  PhaseTable table;                  // the three above, rearranged
  std::vector<EncodeBlock> blocks;   // encoding only
  int64_t zero_begin = 0;            // encoding only: columns [zero_begin, dim) are zero
};

// Compiles a resolved spec; `spec` must come from ResolveSpec. INVALID_ARGUMENT when a frequency is
// 2^63 turns or more per position.
absl::StatusOr<std::shared_ptr<const Plan>> CompilePlan(const ResolvedSpec& spec);

}  // namespace phasor

#endif  // PHASOR_KERNELS_PLAN_H_
