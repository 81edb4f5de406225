// SPDX-License-Identifier: Apache-2.0
// Frequencies of a plan in the order SIMD code wants them. Pure values.
// Threads: immutable once made; share freely.
#ifndef PHASOR_KERNELS_OPS_PHASE_TABLE_H_
#define PHASOR_KERNELS_OPS_PHASE_TABLE_H_

#include <cstdint>
#include <vector>

namespace phasor {

// A maximal run of table entries of one layer that turn with the same axis.
struct AxisRun {
  int axis = 0;
  int64_t begin = 0;  // entry
  int64_t count = 0;
  int64_t layer = 0;
};

// Entries of even pairs, then entries of odd pairs, each half padded with zeros to `half` entries
// (a multiple of 16, so that full vectors can be loaded). Pair j is entry (j % 2) * half + j / 2.
// The phase of an entry is the sum over the layers, plus its offset. One layer unless every axis
// turns every pair, or axes change so often that runs would be short; then there is one per axis.
struct PhaseTable {
  int64_t half = 0;
  int64_t layers = 1;
  std::vector<uint64_t> fraction;  // [layers, 2 * half]
  std::vector<uint64_t> whole;     // [layers, 2 * half], two's complement
  std::vector<uint64_t> offset;    // [2 * half] phase added to a position's; empty: zeros
  bool has_whole = false;          // some `whole` is not zero
  std::vector<AxisRun> runs;       // layer after layer, each covering [0, 2 * half)

  int64_t entries() const { return 2 * half; }
  int64_t Entry(int64_t pair) const { return (pair % 2) * half + pair / 2; }
};

}  // namespace phasor

#endif  // PHASOR_KERNELS_OPS_PHASE_TABLE_H_
