// SPDX-License-Identifier: Apache-2.0
// Allocates the memory of results, and widens 8-bit and 16-bit floats to float32.
#include "client/tensor.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "absl/status/status.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"
#include "kernels/math/convert.h"

namespace phasor {
namespace {

constexpr int64_t kAlignment = 64;

}  // namespace

float ToFloat(Float16 x) {
  const uint32_t sign = static_cast<uint32_t>(x.bits & 0x8000u) << 16;
  const uint32_t exponent = (x.bits >> 10) & 0x1Fu;
  const uint32_t fraction = x.bits & 0x3FFu;
  if (exponent == 0) {  // zero or subnormal: fraction * 2^-24
    const float magnitude = std::ldexp(static_cast<float>(fraction), -24);
    return sign != 0 ? -magnitude : magnitude;
  }
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000u | (fraction << 13));
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
}

float ToFloat(BFloat16 x) { return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16); }
float ToFloat(Float8E4M3 x) { return FloatFromFloat8(x.bits, Float8::kE4M3); }
float ToFloat(Float8E5M2 x) { return FloatFromFloat8(x.bits, Float8::kE5M2); }

absl::StatusOr<Bytes> Bytes::Allocate(int64_t size) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max() - kAlignment;  // can be rounded up
  Bytes bytes;
  if (size <= kMost) {
    const int64_t rounded = std::max(kAlignment, (size + kAlignment - 1) / kAlignment * kAlignment);
    bytes.data_.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, rounded)));
  }
  if (bytes.data_ == nullptr) {
    return absl::ResourceExhaustedError(
        StrCat("output: no memory for ", size, " bytes; split the tokens over several calls"));
  }
  bytes.size_ = size;
  return bytes;
}

namespace client_internal {

absl::StatusOr<Bytes> ZeroBytes(const TensorDesc& desc) {
  PHASOR_ASSIGN_OR_RETURN(const int64_t size, DenseBytes(desc, "shape"));
  PHASOR_ASSIGN_OR_RETURN(Bytes bytes, Bytes::Allocate(size));
  std::memset(bytes.data(), 0, static_cast<size_t>(size));
  return bytes;
}

}  // namespace client_internal
}  // namespace phasor
