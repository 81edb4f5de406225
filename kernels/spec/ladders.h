// SPDX-License-Identifier: Apache-2.0
// How many frequencies a spec needs and of which ladders they are. Pure functions.
#ifndef PHASOR_KERNELS_SPEC_LADDERS_H_
#define PHASOR_KERNELS_SPEC_LADDERS_H_

#include <cstdint>
#include <vector>

#include "kernels/spec/spec.h"

namespace phasor {

// Consecutive terms of a frequency family's formula.
struct Ladder {
  int axis = 0;       // whose base and position factor it takes
  int64_t terms = 0;  // j = 0 .. terms - 1
  double n = 0;       // the formula's number of pairs: half the width, which may be odd
  friend bool operator==(const Ladder&, const Ladder&) = default;
};

// The ladders of a spec whose kind, widths and axes are resolved: one per block of axes_dim, one
// per axis (FREQUENCY_MAJOR, DENSE), or one that the axes share.
std::vector<Ladder> LaddersOf(const ResolvedSpec& spec);

// Pairs of an encoding row or of a head; elements of a PER_ELEMENT or COS_ONLY row.
int64_t PairsOf(const ResolvedSpec& spec);

// The axis of every frequency, [layers, heads * pairs of a head]: one layer per axis for DENSE, one
// for other rules.
std::vector<uint8_t> AxesOf(const ResolvedSpec& spec);

// Columns between the padding of a row, or lanes that rotate.
int64_t ContentWidth(const ResolvedSpec& spec);

// Whether the axes' blocks are the row's, as opposed to one block that they share.
bool HasBlocks(const ResolvedSpec& spec);

}  // namespace phasor

#endif  // PHASOR_KERNELS_SPEC_LADDERS_H_
