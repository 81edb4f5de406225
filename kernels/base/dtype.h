// SPDX-License-Identifier: Apache-2.0
// The element types of tensors, with their sizes and names. Plain values; depends on nothing else.
#ifndef PHASOR_KERNELS_BASE_DTYPE_H_
#define PHASOR_KERNELS_BASE_DTYPE_H_

#include <cstdint>
#include <string_view>

namespace phasor {

enum class Dtype : uint8_t {
  kFloat64,
  kFloat32,
  kFloat16,
  kBFloat16,
  kFloat8E4M3,
  kFloat8E5M2,
  kInt32,
  kInt64,
};

constexpr int64_t SizeOf(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat64:
    case Dtype::kInt64:
      return 8;
    case Dtype::kFloat32:
    case Dtype::kInt32:
      return 4;
    case Dtype::kFloat16:
    case Dtype::kBFloat16:
      return 2;
    case Dtype::kFloat8E4M3:
    case Dtype::kFloat8E5M2:
      return 1;
  }
  return 0;
}

constexpr std::string_view Name(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat64:
      return "FLOAT64";
    case Dtype::kFloat32:
      return "FLOAT32";
    case Dtype::kFloat16:
      return "FLOAT16";
    case Dtype::kBFloat16:
      return "BFLOAT16";
    case Dtype::kFloat8E4M3:
      return "FLOAT8_E4M3";
    case Dtype::kFloat8E5M2:
      return "FLOAT8_E5M2";
    case Dtype::kInt32:
      return "INT32";
    case Dtype::kInt64:
      return "INT64";
  }
  return "?";
}

// The types that Encode and ApplyRoPE compute in: FLOAT64, FLOAT32, FLOAT16, BFLOAT16.
constexpr bool IsComputeDtype(Dtype dtype) { return dtype <= Dtype::kBFloat16; }

// The 8-bit type that a result is rounded to; kNone when it is not rounded to 8 bits.
enum class Float8 : uint8_t { kNone, kE4M3, kE5M2 };

constexpr Float8 Float8Of(Dtype dtype) {
  if (dtype == Dtype::kFloat8E4M3) return Float8::kE4M3;
  return dtype == Dtype::kFloat8E5M2 ? Float8::kE5M2 : Float8::kNone;
}

}  // namespace phasor

#endif  // PHASOR_KERNELS_BASE_DTYPE_H_
