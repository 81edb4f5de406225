// SPDX-License-Identifier: Apache-2.0
// Scalar pieces shared by the reference ops: phases of a pair, elements of any compute dtype.
#ifndef PHASOR_KERNELS_REFERENCE_SCALAR_H_
#define PHASOR_KERNELS_REFERENCE_SCALAR_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/convert.h"
#include "kernels/dtype.h"
#include "kernels/phase.h"
#include "kernels/plan.h"
#include "kernels/sincos.h"

namespace phasor::reference {

// Phase of pair j for a token at p[axes].
inline uint64_t PairPhase(const PhaseTable& table, int64_t j, const Position* p) {
  const int64_t e = table.Entry(j);
  uint64_t phase = table.offset.empty() ? 0 : table.offset[e];
  for (const AxisRun& run : table.runs) {
    if (e < run.begin || e >= run.begin + run.count) continue;
    const int64_t i = run.layer * table.entries() + e;
    phase += PhaseOf(p[run.axis], {static_cast<int64_t>(table.whole[i]), table.fraction[i]});
  }
  return phase;
}

// log2 of the xPos amplitude of pair j for a token at p[axes], times 2^64.
inline Exponent PairExponent(const Xpos* xpos, int64_t j, const Position* p) {
  if (xpos == nullptr) return 0;
  return XposExponent(p[0], xpos->center, xpos->rate[j], xpos->inverse);
}

// Element access by storage type; Math is the type that arithmetic is done in.
struct F64 {
  using Math = double;
  static constexpr int64_t kBytes = 8;
  static double Load(const std::byte* p) {
    double v;
    std::memcpy(&v, p, sizeof v);
    return v;
  }
  static void Store(double v, std::byte* p) { std::memcpy(p, &v, sizeof v); }
  static SinCos<double> Trig(uint64_t phase) { return SinCos64(phase); }
};
struct F32 {
  using Math = float;
  static constexpr int64_t kBytes = 4;
  static float Load(const std::byte* p) {
    float v;
    std::memcpy(&v, p, sizeof v);
    return v;
  }
  static void Store(float v, std::byte* p) { std::memcpy(p, &v, sizeof v); }
  static SinCos<float> Trig(uint64_t phase) { return SinCos32(phase); }
};
struct F16 {
  using Math = float;
  static constexpr int64_t kBytes = 2;
  static float Load(const std::byte* p) {
    uint16_t bits;
    std::memcpy(&bits, p, sizeof bits);
    return FloatFromFloat16(bits);
  }
  static void Store(float v, std::byte* p) {
    const uint16_t bits = Float16FromFloat(v);
    std::memcpy(p, &bits, sizeof bits);
  }
  static SinCos<float> Trig(uint64_t phase) { return SinCos32(phase); }
};
struct BF16 {
  using Math = float;
  static constexpr int64_t kBytes = 2;
  static float Load(const std::byte* p) {
    uint16_t bits;
    std::memcpy(&bits, p, sizeof bits);
    return FloatFromBFloat16(bits);
  }
  static void Store(float v, std::byte* p) {
    const uint16_t bits = BFloat16FromFloat(v);
    std::memcpy(p, &bits, sizeof bits);
  }
  static SinCos<float> Trig(uint64_t phase) { return SinCos32(phase); }
};

// Sine and cosine times A.
template <typename Element>
SinCos<typename Element::Math> ScaledTrig(uint64_t phase, double amplitude) {
  using T = typename Element::Math;
  SinCos<T> v = Element::Trig(phase);
  const T a = static_cast<T>(amplitude);
  if (a != T{1}) v = {a * v.sin, a * v.cos};
  return v;
}

// Calls f(Element{}) for a compute dtype.
template <typename F>
void VisitElement(Dtype dtype, F&& f) {
  switch (dtype) {
    case Dtype::kFloat64:
      return f(F64{});
    case Dtype::kFloat32:
      return f(F32{});
    case Dtype::kFloat16:
      return f(F16{});
    case Dtype::kBFloat16:
      return f(BF16{});
    case Dtype::kFloat8E4M3:
    case Dtype::kFloat8E5M2:
    case Dtype::kInt32:
    case Dtype::kInt64:
      return;  // not compute dtypes; requests with them do not reach a backend
  }
}

}  // namespace phasor::reference

#endif  // PHASOR_KERNELS_REFERENCE_SCALAR_H_
