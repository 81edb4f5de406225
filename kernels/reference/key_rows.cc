// SPDX-License-Identifier: Apache-2.0
// Reads and writes stored keys, in scalar code. Contract: kernels/ops/key_rows.h.
#include "kernels/ops/key_rows.h"

#include "kernels/math/element.h"
#include "kernels/math/hadamard.h"
#include "kernels/math/key_blocks.h"
#include "kernels/ops/key_codes.h"
#include "kernels/reference/reference.h"

namespace phasor::reference {
namespace {

// Where lane i of a row is.
int64_t LaneAt(const KeyForm& form, int64_t i) {
  return i / form.group_lanes * form.group_bytes + i % form.group_lanes * form.lane_bytes;
}

// Transforms the Hadamard blocks of the window.
void TransformKeyLanes(const KeyForm& form, KeyWindow window, float* lanes) {
  if (form.hadamard == 0) return;
  for (int64_t i = window.begin; i < window.end; i += form.hadamard) {
    Hadamard(form.hadamard, lanes + i);
  }
}

void EncodeScaledRow(const KeyForm& form, const float* lanes, std::byte* row, std::byte* scale) {
  const float s =
      RowScaleOf(key_blocks::LargestMagnitude(lanes, form.head_dim), LargestCode(form.code));
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
