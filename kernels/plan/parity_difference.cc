// SPDX-License-Identifier: Apache-2.0
// Chooses the positions to compare, and compares parity tables with exact phases there.
#include "kernels/plan/parity_difference.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/plan/parity/angles.h"
#include "kernels/plan/parity/radians.h"
#include "kernels/plan/parity/rounding.h"

namespace phasor::parity {
namespace {

constexpr int64_t kDense = 4096;
constexpr int64_t kSpread = 1024;
constexpr int64_t kMostAngles = int64_t{1} << 19;
constexpr int64_t kLeastPositions = 16;

// The exact phase of every pair for a token at p.
std::vector<uint64_t> ExactPhases(const Plan& plan, const Position* p) {
  std::vector<uint64_t> phases(plan.offset.begin(), plan.offset.end());
  for (size_t i = 0; i < plan.frequency.size(); ++i) {
    phases[i % phases.size()] += PhaseOf(p[plan.axis[i]], plan.frequency[i]);
  }
  return phases;
}

double RadiansOf(uint64_t phase) {
  return static_cast<double>(static_cast<int64_t>(phase)) * 0x1p-64 * 2 * std::numbers::pi;
}

uint64_t PhaseOfAngle(double radians) {
  return std::abs(radians) < 0x1p-64 ? 0 : PhaseOfRadians(radians);
}

void Take(double found, int64_t position, double& largest, int64_t& where) {
  if (!(found > largest)) return;
  largest = found;
  where = position;
}

std::vector<int64_t> AllPositions(int64_t context_length) {
  std::vector<int64_t> positions;
  for (int64_t p = 0; p < std::min(kDense, context_length); ++p) positions.push_back(p);
  if (context_length <= kDense) return positions;
  const int64_t last = context_length - 1;
  for (int64_t power = kDense; power - 1 <= last; power *= 2) {
    for (const int64_t p : {power - 1, power, power + 1}) positions.push_back(std::min(p, last));
    if (power > last / 2) break;
  }
  const int64_t step = std::max<int64_t>((last - kDense) / kSpread, 1);
  for (int64_t i = 0; i < kSpread; ++i) positions.push_back(std::min(kDense + i * step, last));
  positions.push_back(last);
  std::sort(positions.begin(), positions.end());
  positions.erase(std::unique(positions.begin(), positions.end()), positions.end());
  return positions;
}

}  // namespace

int64_t MostPositions(const Plan& plan) {
  const auto angles = static_cast<int64_t>(plan.frequency.size());
  return std::max(kMostAngles / std::max<int64_t>(angles, 1), kLeastPositions);
}

std::vector<int64_t> SampledPositions(int64_t context_length, int64_t at_most) {
  const std::vector<int64_t> all = AllPositions(context_length);
  const auto size = static_cast<int64_t>(all.size());
  if (size <= at_most) return all;
  std::vector<int64_t> chosen;
  for (int64_t i = 1; i <= at_most; ++i) {
    chosen.push_back(all[static_cast<size_t>(i * size / at_most - 1)]);
  }
  return chosen;
}

Difference LargestDifference(const Plan& plan, absl::Span<const int64_t> positions, Dtype model) {
  const ParityTables& tables = *plan.parity;
  const Dtype table = tables.TableType(model);
  std::vector<double> angles(static_cast<size_t>(plan.pairs));
  std::vector<SinCos<double>> values(angles.size());
  Difference out;
  for (const int64_t position : positions) {
    Position p[kMaxAxes];
    std::fill(p, p + kMaxAxes, Position{position, 0});
    TokenAngles(tables, plan.axis, p, absl::MakeSpan(angles));
    TokenSinCos(tables, angles, tables.amplitude, values.data());
    const std::vector<uint64_t> phases = ExactPhases(plan, p);
    for (size_t j = 0; j < angles.size(); ++j) {
      // Skips cosines of PER_ELEMENT rows: their exact phase has a quarter of a turn more.
      if (!tables.cosine.empty() && tables.cosine[j] != 0) continue;
      const double angle = std::abs(RadiansOf(PhaseOfAngle(angles[j]) - phases[j]));
      Take(angle, position, out.angle, out.angle_position);
      const SinCos<double> exact = SinCos64(phases[j]);
      const double factor = tables.amplitude;
      const double value =
          std::max(std::abs(Round(table, values[j].sin) - factor * exact.sin),
                   std::abs(Round(table, values[j].cos) - factor * exact.cos - tables.cos_bias));
      Take(value, position, out.value, out.value_position);
    }
  }
  return out;
}

}  // namespace phasor::parity
