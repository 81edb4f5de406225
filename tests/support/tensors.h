// SPDX-License-Identifier: Apache-2.0
// Tensors for kernel tests: bytes with guard zones, values by dtype, and comparison that ignores
// NaN payloads.
#ifndef PHASOR_TESTS_SUPPORT_TENSORS_H_
#define PHASOR_TESTS_SUPPORT_TENSORS_H_

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/base/dtype.h"
#include "kernels/math/convert.h"

namespace phasor::testing {

inline constexpr Dtype kFloatDtypes[] = {Dtype::kFloat64, Dtype::kFloat32, Dtype::kFloat16,
                                         Dtype::kBFloat16};

inline double GetElement(Dtype dtype, const std::byte* p) {
  uint16_t half = 0;
  float single = 0;
  double value = 0;
  switch (dtype) {
    case Dtype::kFloat64:
      std::memcpy(&value, p, 8);
      return value;
    case Dtype::kFloat32:
      std::memcpy(&single, p, 4);
      return single;
    case Dtype::kFloat16:
      std::memcpy(&half, p, 2);
      return FloatFromFloat16(half);
    case Dtype::kBFloat16:
      std::memcpy(&half, p, 2);
      return FloatFromBFloat16(half);
    case Dtype::kFloat8E4M3:
    case Dtype::kFloat8E5M2:
      return FloatFromFloat8(static_cast<uint8_t>(*p), Float8Of(dtype));
    default:
      ADD_FAILURE() << "not a compute dtype";
      return 0;
  }
}

inline void SetElement(Dtype dtype, double value, std::byte* p) {
  const float single = static_cast<float>(value);
  const uint16_t half =
      dtype == Dtype::kFloat16 ? Float16FromFloat(single) : BFloat16FromFloat(single);
  switch (dtype) {
    case Dtype::kFloat64:
      std::memcpy(p, &value, 8);
      return;
    case Dtype::kFloat32:
      std::memcpy(p, &single, 4);
      return;
    case Dtype::kFloat16:
    case Dtype::kBFloat16:
      std::memcpy(p, &half, 2);
      return;
    case Dtype::kFloat8E4M3:
    case Dtype::kFloat8E5M2:
      *p = static_cast<std::byte>(Float8FromFloat(single, Float8Of(dtype)));
      return;
    default:
      ADD_FAILURE() << "not a compute dtype";
  }
}

// `count` elements at a chosen misalignment between guard bytes that a kernel must not touch.
class Tensor {
 public:
  Tensor(Dtype dtype, int64_t count, int64_t misalign = 0)
      : dtype_(dtype),
        count_(count),
        begin_(64 + misalign),
        bytes_(begin_ + count * SizeOf(dtype) + 64, kGuard) {}

  Dtype dtype() const { return dtype_; }
  int64_t count() const { return count_; }
  int64_t size_bytes() const { return count_ * SizeOf(dtype_); }
  std::byte* data() { return bytes_.data() + begin_; }
  const std::byte* data() const { return bytes_.data() + begin_; }
  double operator[](int64_t i) const { return GetElement(dtype_, data() + i * SizeOf(dtype_)); }
  void Set(int64_t i, double value) { SetElement(dtype_, value, data() + i * SizeOf(dtype_)); }

  // Normal values, plus now and then zeros, subnormals, infinities and NaNs when `special`.
  void Fill(uint64_t seed, bool special = false) {
    std::mt19937_64 random(seed);
    std::normal_distribution<double> normal;
    for (int64_t i = 0; i < count_; ++i) {
      Set(i, normal(random));
      if (!special || random() % 8 != 0) continue;
      constexpr double kSpecial[] = {0.0,      -0.0,      1e-6, 0x1p-140, 0x1p-24,
                                     INFINITY, -INFINITY, NAN,  60000.0};
      Set(i, kSpecial[random() % std::size(kSpecial)]);
    }
  }

  bool GuardsIntact() const {
    for (int64_t i = 0; i < begin_; ++i) {
      if (bytes_[i] != kGuard) return false;
    }
    for (size_t i = begin_ + size_bytes(); i < bytes_.size(); ++i) {
      if (bytes_[i] != kGuard) return false;
    }
    return true;
  }

 private:
  static constexpr std::byte kGuard{0xA5};
  Dtype dtype_;
  int64_t count_;
  int64_t begin_;
  std::vector<std::byte> bytes_;
};

// Equal bytes, any two NaNs counting as equal.
inline ::testing::AssertionResult SameBits(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || a.count() != b.count())
    return ::testing::AssertionFailure() << "shapes differ";
  if (std::memcmp(a.data(), b.data(), a.size_bytes()) == 0) return ::testing::AssertionSuccess();
  const int64_t size = SizeOf(a.dtype());
  for (int64_t i = 0; i < a.count(); ++i) {
    if (std::memcmp(a.data() + i * size, b.data() + i * size, size) == 0) continue;
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    return ::testing::AssertionFailure() << "element " << i << ": " << a[i] << " and " << b[i];
  }
  return ::testing::AssertionSuccess();
}

}  // namespace phasor::testing

#endif  // PHASOR_TESTS_SUPPORT_TENSORS_H_
