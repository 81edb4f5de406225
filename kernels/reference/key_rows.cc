// SPDX-License-Identifier: Apache-2.0
// Reads and writes stored keys, in scalar code. Contract: kernels/ops/key_rows.h.
#include "kernels/ops/key_rows.h"

#include <cstring>

#include "kernels/math/convert.h"
#include "kernels/math/element.h"
#include "kernels/math/hadamard.h"
#include "kernels/math/key_blocks.h"
#include "kernels/reference/reference.h"

namespace phasor::reference {
namespace {

Float8 Float8OfCode(KeyCode code) {
  return code == KeyCode::kFloat8E5M2 ? Float8::kE5M2 : Float8::kE4M3;
}

// Where lane i of a row is.
int64_t LaneAt(const KeyForm& form, int64_t i) {
  return i / form.group_lanes * form.group_bytes + i % form.group_lanes * form.lane_bytes;
}

float DecodeLane(KeyCode code, const std::byte* p) {
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

void EncodeLane(KeyCode code, float value, std::byte* p) {
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

void DecodeKeyBlock(KeyCode code, const std::byte* block, float* x) {
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

void EncodeKeyBlock(KeyCode code, const float* x, std::byte* block) {
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

// Transforms the Hadamard blocks of the window.
void TransformKeyLanes(const KeyForm& form, KeyWindow window, float* lanes) {
  if (form.hadamard == 0) return;
  for (int64_t i = window.begin; i < window.end; i += form.hadamard) {
    Hadamard(form.hadamard, lanes + i);
  }
}

void EncodeScaledRow(const KeyForm& form, const float* lanes, std::byte* row, std::byte* scale) {
  float s = key_blocks::LargestMagnitude(lanes, form.head_dim) / LargestCode(form.code);
  if (!(s > kLeastRowScale)) s = kLeastRowScale;
  scalar::F32::Store(s, scale);
  for (int64_t i = 0; i < form.head_dim; ++i) {
    EncodeLane(form.code, lanes[i] / s, row + LaneAt(form, i));
  }
}

}  // namespace

void DecodeKeys(const DecodeKeysArgs& args) {
  const KeyForm& form = *args.form;
  const KeyWindow window = args.window;
  for (int64_t h = 0; h < form.heads; ++h) {
    const std::byte* const row = args.row + h * form.head_bytes;
    float* const lanes = args.lanes + h * form.head_dim;
    if (IsBlockCode(form.code)) {
      for (int64_t i = window.begin; i < window.end; i += 32) {
        DecodeKeyBlock(form.code, row + i / 32 * UnitBytes(form.code), lanes + i);
      }
    } else {
      const float scale =
          form.scaled_rows ? scalar::F32::Load(args.scale + h * form.scales.head_bytes) : 1;
      for (int64_t i = window.begin; i < window.end; ++i) {
        const float value = DecodeLane(form.code, row + LaneAt(form, i));
        lanes[i] = form.scaled_rows ? value * scale : value;
      }
    }
    TransformKeyLanes(form, window, lanes);
  }
}

void EncodeKeys(const EncodeKeysArgs& args) {
  const KeyForm& form = *args.form;
  const KeyWindow window = args.window;
  for (int64_t h = 0; h < form.heads; ++h) {
    std::byte* const row = args.row + h * form.head_bytes;
    float* const lanes = args.lanes + h * form.head_dim;
    TransformKeyLanes(form, window, lanes);
    if (IsBlockCode(form.code)) {
      for (int64_t i = window.begin; i < window.end; i += 32) {
        EncodeKeyBlock(form.code, lanes + i, row + i / 32 * UnitBytes(form.code));
      }
    } else if (form.scaled_rows) {
      EncodeScaledRow(form, lanes, row, args.scale + h * form.scales.head_bytes);
    } else {
      for (int64_t i = window.begin; i < window.end; ++i) {
        EncodeLane(form.code, lanes[i], row + LaneAt(form, i));
      }
    }
  }
}

}  // namespace phasor::reference
