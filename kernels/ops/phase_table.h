// SPDX-License-Identifier: Apache-2.0
// A plan's frequencies, ordered for SIMD code.
// Threads: a plain value, immutable once made; share it freely.
#ifndef PHASOR_KERNELS_OPS_PHASE_TABLE_H_
#define PHASOR_KERNELS_OPS_PHASE_TABLE_H_

#include <cstdint>
#include <vector>

namespace phasor {

// A maximal run of table entries of one layer whose phases use the same axis.
struct AxisRun {
  int axis = 0;
  int64_t begin = 0;  // entry
  int64_t count = 0;
  int64_t layer = 0;
};

// Entries of even pairs, then entries of odd pairs. Each half is padded with zeros to `half`
// entries, a multiple of 16, so that full vectors can be loaded. Pair j is entry
// (j % 2) * half + j / 2. The phase of an entry is the sum of its phases in all layers, plus its
// offset. There is one layer, with two exceptions that have one layer per axis: every axis turns
// every pair, or the axis changes so often that runs would be short.
struct PhaseTable {
  int64_t half = 0;
  int64_t layers = 1;
  std::vector<uint64_t> fraction;  // [layers, 2 * half]
  std::vector<uint64_t> whole;     // [layers, 2 * half], two's complement
  std::vector<uint64_t> offset;    // [2 * half], added to the phase; empty: zeros
  bool has_whole = false;          // some `whole` is not zero
  std::vector<AxisRun> runs;       // layer after layer; those of one layer cover [0, 2 * half)

  int64_t entries() const { return 2 * half; }
  int64_t Entry(int64_t pair) const { return (pair % 2) * half + pair / 2; }
};

}  // namespace phasor

#endif  // PHASOR_KERNELS_OPS_PHASE_TABLE_H_
