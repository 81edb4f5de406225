// SPDX-License-Identifier: Apache-2.0
// Counts the frequencies that a spec needs and says which formulas give them. Pure functions.
#ifndef PHASOR_KERNELS_SPEC_LADDERS_H_
#define PHASOR_KERNELS_SPEC_LADDERS_H_

#include <cstdint>
#include <vector>

#include "kernels/ops/pairing.h"
#include "kernels/spec/spec.h"

namespace phasor {

// Consecutive terms of the formula of a frequency family.
struct Ladder {
  int axis = 0;       // gives the base and the position factor
  int64_t terms = 0;  // j = 0 .. terms - 1
  double n = 0;       // number of pairs in the formula: half the width, so it may not be whole
  friend bool operator==(const Ladder&, const Ladder&) = default;
};

// The ladders of a spec whose kind, widths and axes are resolved: one per block of axes_dim, one
// per axis (FREQUENCY_MAJOR, DENSE), or one that all axes share.
std::vector<Ladder> LaddersOf(const ResolvedSpec& spec);

// The terms of the ladders in the order of the spec's frequencies: one ladder after another, or one
// term of each in turn.
template <typename T>
std::vector<T> JoinLadders(const ResolvedSpec& spec, const std::vector<std::vector<T>>& ladders) {
  std::vector<T> joined;
  if (spec.axis_rule != AxisRule::kFrequencyMajor) {
    for (const auto& ladder : ladders) joined.insert(joined.end(), ladder.begin(), ladder.end());
    return joined;
  }
  for (size_t j = 0; j < ladders[0].size(); ++j) {
    for (const auto& ladder : ladders) joined.push_back(ladder[j]);
  }
  return joined;
}

// The pairs of an encoding row or of a head; the elements of a PER_ELEMENT or COS_ONLY row.
int64_t PairsOf(const ResolvedSpec& spec);

// The axis of every frequency as [layers, heads * pairs of a head]. DENSE has one layer per axis,
// other rules have one layer.
std::vector<uint8_t> AxesOf(const ResolvedSpec& spec);

// The columns between the padding of a row, or the lanes that rotate.
int64_t ContentWidth(const ResolvedSpec& spec);

// Whether each axis has its own block of the row, rather than all axes sharing one.
bool HasBlocks(const ResolvedSpec& spec);

// The pairs of each axis' block of a ROTARY spec; zeros if axes have no blocks.
PairBlocks PairBlocksOf(const ResolvedSpec& spec);

}  // namespace phasor

#endif  // PHASOR_KERNELS_SPEC_LADDERS_H_
