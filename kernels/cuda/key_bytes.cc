// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/key_bytes.h"

#include <algorithm>
#include <bit>

namespace phasor::cuda {

int64_t WidthOf(uint64_t bits) {
  return int64_t{1} << std::countr_zero(bits | uint64_t{kWidestWord});
}

uint64_t BitsOf(const void* p) { return reinterpret_cast<uintptr_t>(p); }

bool IsStrided(const KeyForm& form) { return form.lane_bytes != UnitBytes(form.code); }
bool HasGroups(const KeyForm& form) { return form.group_lanes < form.head_dim; }

uint64_t RowBits(const KeyForm& form) {
  return static_cast<uint64_t>((form.pages > 1 ? form.page_bytes : 0) |
                               (form.page_size > 1 ? form.slot_bytes : 0) |
                               (form.heads > 1 ? form.head_bytes : 0));
}

uint64_t LaneBits(const KeyForm& form) {
  if (form.dense()) return 0;
  const int64_t unit = UnitBytes(form.code);
  const int64_t lanes = IsStrided(form) ? unit | form.lane_bytes : form.group_lanes * unit;
  return static_cast<uint64_t>(lanes | (HasGroups(form) ? form.group_bytes : 0));
}

KeyWords WordsOf(const KeyForm& form, int64_t width) {
  KeyWords words;
  words.group.value = 0;
  words.step = width;
  if (form.dense()) return words;
  const int64_t unit = UnitBytes(form.code);
  if (!IsStrided(form)) {
    words.group = MakeSmallDivisor(static_cast<int32_t>(form.group_lanes * unit / width));
    words.group_bytes = form.group_bytes;
  } else if (width < unit) {
    words.group = MakeSmallDivisor(static_cast<int32_t>(unit / width));
    words.group_bytes = form.lane_bytes;
  } else {
    if (HasGroups(form)) words.group = MakeSmallDivisor(static_cast<int32_t>(form.group_lanes));
    words.group_bytes = form.group_bytes;
    words.step = form.lane_bytes;
  }
  return words;
}

ByteRange BytesOfLanes(const KeyForm& form, KeyWindow lanes) {
  const int64_t unit = phasor::UnitLanes(form.code), bytes = UnitBytes(form.code);
  return {lanes.begin / unit * bytes, lanes.end / unit * bytes};
}

ByteRange WholeRow(const KeyForm& from, const KeyForm& to) {
  if (!from.dense() || !to.dense()) return {0, from.head_dim * UnitBytes(from.code)};
  return {-std::min(from.bytes_before, to.bytes_before), std::min(from.bytes_from, to.bytes_from)};
}

}  // namespace phasor::cuda
