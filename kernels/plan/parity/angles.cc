// SPDX-License-Identifier: Apache-2.0
// Computes angles as a product of rounded numbers or by ggml's recurrence, then sines and cosines.
#include "kernels/plan/parity/angles.h"

#include <algorithm>
#include <cmath>

#include "kernels/plan/parity/radians.h"
#include "kernels/plan/parity/rounding.h"
#include "kernels/spec/spec.h"

namespace phasor::parity {
namespace {

// The nearest number of `type`. 16-bit types are rounded to f32 first, as upstream casts tensors.
double RoundPosition(Dtype type, Position p) {
  using Int128 = __int128;
  const Int128 value = static_cast<Int128>(
      (static_cast<unsigned __int128>(static_cast<uint64_t>(p.whole)) << 64) | p.fraction);
  if (type == Dtype::kFloat64) return std::ldexp(static_cast<double>(value), -64);
  return Round(type, std::ldexp(static_cast<float>(value), -64));
}

// ggml_rope_cache_init and rope_yarn, in f32 throughout.
void GgmlAngles(const ParityTables& tables, absl::Span<const uint8_t> axis, const double* x,
                absl::Span<double> angles) {
  const auto rn = [](double v) { return Round(Dtype::kFloat32, v); };
  double theta[kMaxAxes];
  for (size_t j = 0; j < angles.size(); ++j) {
    const GgmlPair& pair = tables.ggml[j];
    if (pair.restart) std::copy(x, x + kMaxAxes, theta);
    const double plain = rn(theta[axis[j]] / pair.factor);
    const double scaled = rn(tables.ggml_scale * plain);
    angles[j] =
        !tables.ggml_mixes ? scaled : rn(rn(scaled * rn(1 - pair.mix)) + rn(plain * pair.mix));
    for (double& t : theta) t = rn(t * pair.step);
  }
}

}  // namespace

void TokenAngles(const ParityTables& tables, absl::Span<const uint8_t> axis, const Position* p,
                 absl::Span<double> angles) {
  double x[kMaxAxes] = {};
  const auto rn = [&](double v) { return Round(tables.angle, v); };
  const size_t pairs = angles.size();
  const size_t axes = 1 + *std::max_element(axis.begin(), axis.end());
  for (size_t a = 0; a < axes; ++a) x[a] = RoundPosition(tables.position, p[a]);
  if (!tables.ggml.empty()) return GgmlAngles(tables, axis, x, angles);
  for (size_t i = 0; i < tables.frequency.size(); ++i) {
    double angle = rn(rn(x[axis[i]]) * tables.frequency[i]);
    if (!tables.scale.empty()) angle = rn(angle * tables.scale[i]);
    double& sum = angles[i % pairs];
    sum = i < pairs ? angle : rn(sum + angle);
  }
  if (tables.phase.empty()) return;
  for (size_t j = 0; j < pairs; ++j) angles[j] = rn(angles[j] + tables.phase[j]);
}

void TokenSinCos(const ParityTables& tables, absl::Span<const double> angles, double amplitude,
                 SinCos<double>* sin_cos) {
  const auto rn = [&](double v) { return Round(tables.angle, v); };
  for (size_t j = 0; j < angles.size(); ++j) {
    SinCos<double> v = SinCosOfRadians(angles[j]);
    v = {rn(v.sin), rn(v.cos)};
    if (amplitude != 1) v = {rn(v.sin * amplitude), rn(v.cos * amplitude)};
    if (tables.cos_bias != 0) v.cos = rn(v.cos + tables.cos_bias);
    if (!tables.cosine.empty() && tables.cosine[j] != 0) v.sin = v.cos;
    sin_cos[j] = v;
  }
}

}  // namespace phasor::parity
