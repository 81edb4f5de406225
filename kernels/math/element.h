// SPDX-License-Identifier: Apache-2.0
// Reads, writes and takes the sine and cosine for one element of each compute dtype. Every backend
// that computes element by element uses this. Threads: pure functions.
#ifndef PHASOR_KERNELS_MATH_ELEMENT_H_
#define PHASOR_KERNELS_MATH_ELEMENT_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/base/dtype.h"
#include "kernels/base/host_device.h"
#include "kernels/math/convert.h"
#include "kernels/math/sincos.h"

namespace phasor::scalar {

// One struct per dtype. Math is the type of its arithmetic.
struct F64 {
  using Math = double;
  static constexpr int64_t kBytes = 8;
  static PHASOR_HD double Load(const std::byte* p) {
    double v;
    std::memcpy(&v, p, sizeof v);
    return v;
  }
  static PHASOR_HD void Store(double v, std::byte* p) { std::memcpy(p, &v, sizeof v); }
  static PHASOR_HD SinCos<double> Trig(uint64_t phase) { return SinCos64(phase); }
};
struct F32 {
  using Math = float;
  static constexpr int64_t kBytes = 4;
  static PHASOR_HD float Load(const std::byte* p) {
    float v;
    std::memcpy(&v, p, sizeof v);
    return v;
  }
  static PHASOR_HD void Store(float v, std::byte* p) { std::memcpy(p, &v, sizeof v); }
  static PHASOR_HD SinCos<float> Trig(uint64_t phase) { return SinCos32(phase); }
};
struct F16 {
  using Math = float;
  static constexpr int64_t kBytes = 2;
  static PHASOR_HD float Load(const std::byte* p) {
    uint16_t bits;
    std::memcpy(&bits, p, sizeof bits);
    return FloatFromFloat16(bits);
  }
  static PHASOR_HD void Store(float v, std::byte* p) {
    const uint16_t bits = Float16FromFloat(v);
    std::memcpy(p, &bits, sizeof bits);
  }
  static PHASOR_HD SinCos<float> Trig(uint64_t phase) { return SinCos32(phase); }
};
struct BF16 {
  using Math = float;
  static constexpr int64_t kBytes = 2;
  static PHASOR_HD float Load(const std::byte* p) {
    uint16_t bits;
    std::memcpy(&bits, p, sizeof bits);
    return FloatFromBFloat16(bits);
  }
  static PHASOR_HD void Store(float v, std::byte* p) {
    const uint16_t bits = BFloat16FromFloat(v);
    std::memcpy(p, &bits, sizeof bits);
  }
  static PHASOR_HD SinCos<float> Trig(uint64_t phase) { return SinCos32(phase); }
};

// A result rounded to an 8-bit float. No arithmetic is done in 8 bits.
PHASOR_HD std::byte ScaledFloat8(float value, float inv_scale, Float8 type) {
  return static_cast<std::byte>(Float8FromFloat(value * inv_scale, type));
}

// Sine and cosine times the amplitude A.
template <typename Element>
PHASOR_HD SinCos<typename Element::Math> ScaledTrig(uint64_t phase, double amplitude) {
  using T = typename Element::Math;
  SinCos<T> v = Element::Trig(phase);
  const T a = static_cast<T>(amplitude);
  if (a != T{1}) v = {a * v.sin, a * v.cos};
  return v;
}

// Calls f(Element{}) with the struct of a compute dtype.
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
      return;  // not compute dtypes; no request with them reaches a backend
  }
}

}  // namespace phasor::scalar

#endif  // PHASOR_KERNELS_MATH_ELEMENT_H_
