// SPDX-License-Identifier: Apache-2.0
// Checks that positions are integers, and finds the least and greatest one on an axis.
#include "kernels/tensor/integer_positions.h"

#include <algorithm>
#include <limits>

#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"

namespace phasor {
namespace {

constexpr Interval kNothing = {std::numeric_limits<int64_t>::max(),
                               std::numeric_limits<int64_t>::min()};

void Include(int64_t position, Interval* interval) {
  interval->min = std::min(interval->min, position);
  interval->max = std::max(interval->max, position);
}

absl::Status NotIntegers(std::string_view path, std::string_view what) {
  return InvalidAt(path, what, "; must be integers");
}

absl::Status CheckAxis(const AxisRange& range, std::string_view path) {
  if (std::holds_alternative<IntegerRange>(range)) return absl::OkStatus();
  return NotIntegers(path, "real positions");
}

// Does not overflow: MakePositionSource has checked that the first and last position fit.
Interval OfAxis(const PositionSource::AxisSteps& axis) {
  Interval interval = kNothing;
  Include(axis.start.whole, &interval);
  const auto last = static_cast<__int128>(axis.start.whole) +
                    static_cast<__int128>(axis.step.whole) * (axis.count - 1);
  Include(static_cast<int64_t>(last), &interval);
  return interval;
}

Interval OfRagged(const PositionSource& source) {
  Interval interval = kNothing;
  int64_t begin = 0;
  for (size_t s = 0; s < source.ends.size(); ++s) {
    const int64_t end = source.ends[s];
    if (begin < end) {
      const auto start = static_cast<uint64_t>(source.starts[s]);
      Include(static_cast<int64_t>(start + static_cast<uint64_t>(begin)), &interval);
      Include(static_cast<int64_t>(start + static_cast<uint64_t>(end - 1)), &interval);
    }
    begin = end;
  }
  return interval;
}

Interval OfTensor(const PositionSource& source, int axis) {
  constexpr int64_t kTile = 256;
  PositionRoom<kTile * kMaxAxes> room;
  Position* const positions = room.data();
  Interval interval = kNothing;
  for (int64_t first = 0; first < source.count(); first += kTile) {
    const int64_t count = std::min(kTile, source.count() - first);
    ReadPositions(source, first, count, positions);
    for (int64_t i = 0; i < count; ++i) Include(positions[i * source.axes + axis].whole, &interval);
  }
  return interval;
}

}  // namespace

absl::Status CheckIntegerPositions(const Positions& positions, std::string_view path) {
  if (const auto* range = std::get_if<AxisRange>(&positions)) {
    return CheckAxis(*range, StrCat(path, ".range"));
  }
  if (const auto* grid = std::get_if<PositionGrid>(&positions)) {
    for (size_t i = 0; i < grid->axes.size(); ++i) {
      PHASOR_RETURN_IF_ERROR(CheckAxis(grid->axes[i], StrCat(path, ".grid.axes[", i, "]")));
    }
  }
  if (const auto* tensor = std::get_if<PositionTensor>(&positions)) {
    const Dtype dtype = tensor->dtype;
    if (dtype != Dtype::kInt32 && dtype != Dtype::kInt64) {
      return NotIntegers(StrCat(path, ".tensor.dtype"), Name(dtype));
    }
  }
  return absl::OkStatus();
}

Interval IntervalOf(const PositionSource& source, int axis) {
  switch (source.kind) {
    case PositionSource::Kind::kGrid:
      return OfAxis(source.grid[axis]);
    case PositionSource::Kind::kRagged:
      return OfRagged(source);
    case PositionSource::Kind::kTensor:
      return OfTensor(source, axis);
  }
  return kNothing;
}

}  // namespace phasor
