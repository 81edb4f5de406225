// SPDX-License-Identifier: Apache-2.0
// Sorts frequencies into even and odd pairs and cuts them into runs of one axis.
#include "kernels/plan/phase_table.h"

#include <algorithm>

namespace phasor {
namespace {

constexpr int64_t kTableAlignment = 16;

// Adds the runs of one layer. Entries that only pad a half belong to the run before them.
void AddRuns(absl::Span<const uint8_t> axis, int64_t layer, PhaseTable& table) {
  std::vector<int> axis_of(table.entries(), -1);
  for (size_t pair = 0; pair < axis.size(); ++pair) {
    axis_of[table.Entry(static_cast<int64_t>(pair))] = axis[pair];
  }
  for (int64_t entry = 0; entry < table.entries(); ++entry) {
    const bool padding = axis_of[entry] < 0;
    if (entry > 0 && (padding || axis_of[entry] == table.runs.back().axis)) {
      ++table.runs.back().count;
    } else {
      table.runs.push_back({std::max(axis_of[entry], 0), entry, 1, layer});
    }
  }
}

// Splits one layer of pairs into a layer per axis. The frequencies of other axes are zero there.
PhaseTable MakeLayered(absl::Span<const Frequency> frequency, absl::Span<const uint8_t> axis,
                       absl::Span<const uint64_t> offset) {
  const int axes = *std::max_element(axis.begin(), axis.end()) + 1;
  std::vector<Frequency> layered;
  std::vector<uint8_t> layer_axis;
  for (int layer = 0; layer < axes; ++layer) {
    for (size_t pair = 0; pair < axis.size(); ++pair) {
      layered.push_back(axis[pair] == layer ? frequency[pair] : Frequency{});
      layer_axis.push_back(static_cast<uint8_t>(layer));
    }
  }
  return MakePhaseTable(layered, layer_axis, offset);
}

}  // namespace

PhaseTable MakePhaseTable(absl::Span<const Frequency> frequency, absl::Span<const uint8_t> axis,
                          absl::Span<const uint64_t> offset) {
  PhaseTable table;
  const int64_t pairs = static_cast<int64_t>(offset.size());
  if (pairs > 0) table.layers = static_cast<int64_t>(frequency.size()) / pairs;
  table.half = ((pairs + 1) / 2 + kTableAlignment - 1) / kTableAlignment * kTableAlignment;
  table.fraction.assign(table.layers * table.entries(), 0);
  table.whole.assign(table.layers * table.entries(), 0);
  if (std::any_of(offset.begin(), offset.end(), [](uint64_t o) { return o != 0; })) {
    table.offset.assign(table.entries(), 0);
    for (int64_t pair = 0; pair < pairs; ++pair) table.offset[table.Entry(pair)] = offset[pair];
  }
  for (int64_t layer = 0; layer < table.layers; ++layer) {
    for (int64_t pair = 0; pair < pairs; ++pair) {
      const Frequency f = frequency[layer * pairs + pair];
      const int64_t entry = layer * table.entries() + table.Entry(pair);
      table.fraction[entry] = f.fraction;
      table.whole[entry] = static_cast<uint64_t>(f.whole);
      table.has_whole = table.has_whole || f.whole != 0;
    }
    AddRuns(axis.subspan(layer * pairs, pairs), layer, table);
  }
  // Blocks make few runs. If axes alternate, every entry is its own run; then it is faster to add a
  // few layers of full vectors. The phase is the same, because a frequency of zero adds nothing.
  constexpr size_t kMostRuns = 16;
  if (table.layers == 1 && table.runs.size() > kMostRuns) {
    return MakeLayered(frequency, axis, offset);
  }
  return table;
}

}  // namespace phasor
