// SPDX-License-Identifier: Apache-2.0
// Reads and writes one lane, or one block of 32 lanes, of stored keys (kernels/ops/key_rows.h says
// what codes mean). The definition, for the host and for a GPU. Threads: pure functions.
#ifndef PHASOR_KERNELS_OPS_KEY_CODES_H_
#define PHASOR_KERNELS_OPS_KEY_CODES_H_

#include <cstddef>
#include <cstdint>

#include "kernels/base/host_device.h"
#include "kernels/math/convert.h"
#include "kernels/math/element.h"
#include "kernels/math/key_blocks.h"
#include "kernels/math/quotient.h"
#include "kernels/ops/key_form.h"
#include "kernels/ops/key_rows.h"

namespace phasor {

PHASOR_HD Float8 Float8OfCode(KeyCode code) {
  return code == KeyCode::kFloat8E5M2 ? Float8::kE5M2 : Float8::kE4M3;
}

// `code` is no block code.
PHASOR_HD float DecodeLane(KeyCode code, const std::byte* p) {
  switch (code) {
    case KeyCode::kFloat32:
      return scalar::F32::Load(p);
    case KeyCode::kFloat16:
      return scalar::F16::Load(p);
    case KeyCode::kBFloat16:
      return scalar::BF16::Load(p);
    case KeyCode::kInt8:
      return static_cast<float>(static_cast<int8_t>(*p));
    default:
      return FloatFromFloat8(static_cast<uint8_t>(*p), Float8OfCode(code));
  }
}

PHASOR_HD void EncodeLane(KeyCode code, float value, std::byte* p) {
  switch (code) {
    case KeyCode::kFloat32:
      return scalar::F32::Store(value, p);
    case KeyCode::kFloat16:
      return scalar::F16::Store(value, p);
    case KeyCode::kBFloat16:
      return scalar::BF16::Store(value, p);
    case KeyCode::kInt8:
      *p = static_cast<std::byte>(key_blocks::Int8Of(value));
      return;
    default:
      *p = static_cast<std::byte>(Float8FromFloat(value, Float8OfCode(code)));
      return;
  }
}

// `code` is a block code.
PHASOR_HD void DecodeKeyBlock(KeyCode code, const std::byte* block, float* x) {
  switch (code) {
    case KeyCode::kQ8_0:
      return key_blocks::DecodeQ8_0(block, x);
    case KeyCode::kQ4_0:
      return key_blocks::DecodeCentred<4>(block, x);
    case KeyCode::kQ5_0:
      return key_blocks::DecodeCentred<5>(block, x);
    case KeyCode::kQ4_1:
      return key_blocks::DecodeOffset<4>(block, x);
    default:
      return key_blocks::DecodeOffset<5>(block, x);
  }
}

PHASOR_HD void EncodeKeyBlock(KeyCode code, const float* x, std::byte* block) {
  switch (code) {
    case KeyCode::kQ8_0:
      return key_blocks::EncodeQ8_0(x, block);
    case KeyCode::kQ4_0:
      return key_blocks::EncodeCentred<4>(x, block);
    case KeyCode::kQ5_0:
      return key_blocks::EncodeCentred<5>(x, block);
    case KeyCode::kQ4_1:
      return key_blocks::EncodeOffset<4>(x, block);
    default:
      return key_blocks::EncodeOffset<5>(x, block);
  }
}

// The scale of a row whose largest magnitude is `largest`. `limit`: LargestCode of the code.
PHASOR_HD float RowScaleOf(float largest, float limit) {
  const float scale = QuotientOf(largest, limit);
  return scale > kLeastRowScale ? scale : kLeastRowScale;
}

}  // namespace phasor

#endif  // PHASOR_KERNELS_OPS_KEY_CODES_H_
