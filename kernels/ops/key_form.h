// SPDX-License-Identifier: Apache-2.0
// How a cache stores keys: the code of a row, and where rows lie.
// Threads: plain values.
#ifndef PHASOR_KERNELS_OPS_KEY_FORM_H_
#define PHASOR_KERNELS_OPS_KEY_FORM_H_

#include <cstdint>
#include <string_view>

namespace phasor {

// How the lanes of a row are stored. kInt8 has one scale per row. The Q codes are those of ggml:
// blocks of 32 lanes, each with a scale of its own (kernels/math/key_blocks.h).
enum class KeyCode : uint8_t {
  kFloat32,
  kFloat16,
  kBFloat16,
  kFloat8E4M3,
  kFloat8E5M2,
  kInt8,
  kQ8_0,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
};

inline constexpr KeyCode kKeyCodes[] = {
    KeyCode::kFloat32,    KeyCode::kFloat16, KeyCode::kBFloat16, KeyCode::kFloat8E4M3,
    KeyCode::kFloat8E5M2, KeyCode::kInt8,    KeyCode::kQ8_0,     KeyCode::kQ4_0,
    KeyCode::kQ4_1,       KeyCode::kQ5_0,    KeyCode::kQ5_1};

constexpr std::string_view Name(KeyCode code) {
  switch (code) {
    case KeyCode::kFloat32:
      return "FLOAT32";
    case KeyCode::kFloat16:
      return "FLOAT16";
    case KeyCode::kBFloat16:
      return "BFLOAT16";
    case KeyCode::kFloat8E4M3:
      return "FLOAT8_E4M3";
    case KeyCode::kFloat8E5M2:
      return "FLOAT8_E5M2";
    case KeyCode::kInt8:
      return "INT8";
    case KeyCode::kQ8_0:
      return "Q8_0";
    case KeyCode::kQ4_0:
      return "Q4_0";
    case KeyCode::kQ4_1:
      return "Q4_1";
    case KeyCode::kQ5_0:
      return "Q5_0";
    case KeyCode::kQ5_1:
      return "Q5_1";
  }
  return "?";
}

constexpr bool IsBlockCode(KeyCode code) { return code >= KeyCode::kQ8_0; }

// Lanes that are stored together: 32 of a block code, otherwise 1.
constexpr int64_t UnitLanes(KeyCode code) { return IsBlockCode(code) ? 32 : 1; }

// Bytes of such a unit.
constexpr int64_t UnitBytes(KeyCode code) {
  switch (code) {
    case KeyCode::kFloat32:
      return 4;
    case KeyCode::kFloat16:
    case KeyCode::kBFloat16:
      return 2;
    case KeyCode::kFloat8E4M3:
    case KeyCode::kFloat8E5M2:
    case KeyCode::kInt8:
      return 1;
    case KeyCode::kQ8_0:
      return 34;
    case KeyCode::kQ4_0:
      return 18;
    case KeyCode::kQ4_1:
      return 20;
    case KeyCode::kQ5_0:
      return 22;
    case KeyCode::kQ5_1:
      return 24;
  }
  return 0;
}

// Where the scales of rows lie: an f32 each, at these distances.
struct KeyScales {
  int64_t offset = 0;  // from the first row of page 0 to its scale
  int64_t page_bytes = 0;
  int64_t slot_bytes = 0;
  int64_t head_bytes = 0;
  friend bool operator==(const KeyScales&, const KeyScales&) = default;
};

// The keys of one layer: pages of slots, a row of every head in every slot. All distances are in
// bytes and not negative.
struct KeyForm {
  KeyCode code = KeyCode::kBFloat16;
  int64_t pages = 0;
  int64_t page_size = 0;  // slots of a page
  int64_t heads = 0;
  int64_t head_dim = 0;
  int64_t page_bytes = 0;  // from one page, slot or head to the next
  int64_t slot_bytes = 0;
  int64_t head_bytes = 0;
  // Lane i is at i / group_lanes * group_bytes + i % group_lanes * lane_bytes. Dense: one group.
  int64_t group_lanes = 0;
  int64_t lane_bytes = 0;
  int64_t group_bytes = 0;
  // What a copy takes along beside the lanes: bytes before the first lane, and from it to the end
  // of the row. Only of dense rows.
  int64_t bytes_before = 0;
  int64_t bytes_from = 0;
  // Whether every row has its own scale, which a move replaces. FLOAT8 and INT8 only.
  bool scaled_rows = false;
  KeyScales scales;
  // FLOAT8 with one scale for all: value = code * scale. A rotation does not need it.
  float scale = 1;
  // > 0: lanes are stored times a Walsh-Hadamard matrix of this many lanes, over its square root.
  int64_t hadamard = 0;

  bool dense() const { return group_lanes >= head_dim && lane_bytes == UnitBytes(code); }
  int64_t slots() const { return pages * page_size; }
  int64_t RowOf(int64_t slot) const {
    return slot / page_size * page_bytes + slot % page_size * slot_bytes;
  }
  int64_t ScaleOf(int64_t slot, int64_t head) const {
    return scales.offset + slot / page_size * scales.page_bytes +
           slot % page_size * scales.slot_bytes + head * scales.head_bytes;
  }
  // Bytes of the lanes of a dense row.
  int64_t lanes_bytes() const { return head_dim / UnitLanes(code) * UnitBytes(code); }
  friend bool operator==(const KeyForm&, const KeyForm&) = default;
};

// Lanes of a row that a move reads and writes again; others keep their bytes.
struct KeyWindow {
  int64_t begin = 0;
  int64_t end = 0;
};

// The window for a rotation of lanes [begin, end): whole blocks and Hadamard blocks, or the whole
// row if its scale is replaced.
inline KeyWindow WindowOf(const KeyForm& form, int64_t begin, int64_t end) {
  if (form.scaled_rows) return {0, form.head_dim};
  int64_t unit = UnitLanes(form.code);
  if (form.hadamard > unit) unit = form.hadamard;
  return {begin / unit * unit, (end + unit - 1) / unit * unit};
}

}  // namespace phasor

#endif  // PHASOR_KERNELS_OPS_KEY_FORM_H_
