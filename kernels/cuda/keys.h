// SPDX-License-Identifier: Apache-2.0
// Stored keys on a GPU: CopyKeysBody copies bytes of rows, and SlotPositionsBody notes where tokens
// are. rotate_keys.h and move_keys.h rotate keys, and compare_keys.h compares them.
//
// A row is a token, and its units are the heads of all layers (planes) of an item, so one launch
// does all layers that share a spec. Threads: blocks of one launch write different bytes.
#ifndef PHASOR_KERNELS_CUDA_KEYS_H_
#define PHASOR_KERNELS_CUDA_KEYS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/base/host_device.h"
#include "kernels/cuda/divisor.h"
#include "kernels/cuda/grid.h"
#include "kernels/cuda/in_arena.h"
#include "kernels/cuda/lanes.h"
#include "kernels/cuda/turns.h"
#include "kernels/math/element.h"
#include "kernels/ops/key_form.h"

namespace phasor::cuda {

// Where a layer's first row is read and written, on the device.
struct KeyPlane {
  const std::byte* x = nullptr;
  std::byte* y = nullptr;
  int64_t result = 0;  // CompareKeysItem: bytes from a token's results to those of head 0
};

// Words of a row, from its first lane on: word i is at i / group * group_bytes + i % group * step.
struct KeyWords {
  SmallDivisor group;       // words of a group of lanes; value 0: the row is one group
  int64_t group_bytes = 0;  // from one group to the next
  int64_t step = 0;         // from one word to the next

  PHASOR_HD int64_t At(int64_t i) const {
    if (group.value == 0) return i * step;
    const int32_t g = Quotient(static_cast<int32_t>(i), group);
    return g * group_bytes + (i - int64_t{g} * group.value) * step;
  }
};

// Where the rows of an item are. Rows of all its planes are equally far apart.
struct KeySide {
  InArena<int64_t> rows;    // [tokens]: bytes from a plane to head 0 of a token
  InArena<int64_t> scales;  // [tokens]: the same to its scale
  int64_t head_bytes = 0;
  int64_t scale_head_bytes = 0;
  KeyWords words;
};

// The head of a plane that a unit is, and its row's places.
struct KeyUnit {
  int64_t row;  // the token
  int32_t head;
  int64_t x, y;  // bytes from the plane to the head
  KeyPlane plane;
};

// What all items of rows have.
struct KeyItem {
  ItemGrid grid;
  InArena<KeyPlane> planes;
  SmallDivisor heads;  // of a plane
  KeySide from, to;
  int32_t width = 1;  // bytes of a word: 1, 2, 4, 8 or 16
};

PHASOR_HD KeyUnit KeyUnitOf(const KeyItem& item, const std::byte* arena, int64_t row,
                            int32_t plane_head) {
  const int32_t plane = Quotient(plane_head, item.heads);
  const int32_t head = plane_head - plane * item.heads.value;
  return {row, head, item.from.rows.In(arena)[row] + head * item.from.head_bytes,
          item.to.rows.In(arena)[row] + head * item.to.head_bytes, item.planes.In(arena)[plane]};
}

// Calls f(Words<width>{}).
template <typename F>
PHASOR_HD void VisitWidth(int32_t width, const F& f) {
  if (width == 16) return f(Words<16>{});
  if (width == 8) return f(Words<8>{});
  if (width == 4) return f(Words<4>{});
  if (width == 2) return f(Words<2>{});
  f(Words<1>{});
}

// Copies words of heads: two runs of them, which may begin before the first lane.
struct CopyKeysItem : KeyItem {
  SmallDivisor head_words;  // of both runs
  int32_t first_words = 0;  // of the first run
  int64_t first = 0;        // the word at which each begins
  int64_t second = 0;
};

struct CopyKeysBody {
  using Item = CopyKeysItem;
  static constexpr bool kOften = false;  // see launch.cu

  static PHASOR_HD void Run(const Item& item, const std::byte* arena, int64_t block, int thread) {
    ForEachUnit(item.grid, block, thread, [&](int64_t row, int32_t unit) {
      const int32_t plane_head = Quotient(unit, item.head_words);
      const int32_t i = unit - plane_head * item.head_words.value;
      const KeyUnit at = KeyUnitOf(item, arena, row, plane_head);
      const int64_t word =
          i < item.first_words ? item.first + i : item.second + (i - item.first_words);
      const std::byte* const x = at.plane.x + at.x + item.from.words.At(word);
      std::byte* const y = at.plane.y + at.y + item.to.words.At(word);
      AssumeGlobal(x);
      AssumeGlobal(y);
      VisitWidth(item.width,
                 [&]<int kWidth>(Words<kWidth>) { StoreWords(LoadWords<kWidth>(x), y); });
    });
  }
};

// Writes the positions of slots. Launched after the kernels above, so that who reads a position
// finds the keys of all layers there.
struct SlotPositionsItem {
  ItemGrid grid;
  InArena<int64_t> slots;       // [tokens]
  InArena<uint32_t> positions;  // [tokens]
  std::byte* first = nullptr;   // the position of slot 0, least significant byte first
};

struct SlotPositionsBody {
  using Item = SlotPositionsItem;
  static constexpr bool kOften = false;  // see launch.cu

  static PHASOR_HD void Run(const Item& item, const std::byte* arena, int64_t block, int thread) {
    ForEachUnit(item.grid, block, thread, [&](int64_t row, int32_t) {
      const uint32_t position = item.positions.In(arena)[row];
      std::byte* const out = item.first + item.slots.In(arena)[row] * 4;
      AssumeGlobal(out);
      for (int i = 0; i < 4; ++i) out[i] = static_cast<std::byte>(position >> (8 * i));
    });
  }
};

// The positions of tokens: whole numbers.
struct KeyPositions {
  InArena<int64_t> values;  // [tokens, axes]
  int32_t axes = 1;
};

PHASOR_HD Position PositionOf(const KeyPositions& p, const std::byte* arena, int64_t row,
                              int axis) {
  return {p.values.In(arena)[row * p.axes + axis], 0};
}

// The element of a code that is a float, else void.
template <KeyCode kCode>
auto KeyElementOf() {
  if constexpr (kCode == KeyCode::kFloat32) return scalar::F32{};
  if constexpr (kCode == KeyCode::kFloat16) return scalar::F16{};
  if constexpr (kCode == KeyCode::kBFloat16) return scalar::BF16{};
  if constexpr (kCode == KeyCode::kFloat8E4M3) return Float8Element<Float8::kE4M3>{};
  if constexpr (kCode == KeyCode::kFloat8E5M2) return Float8Element<Float8::kE5M2>{};
}
template <KeyCode kCode>
using KeyElement = decltype(KeyElementOf<kCode>());

// How the heads of an item turn.
struct TurnedKeysItem : KeyItem {
  KeyPositions positions, from_positions;
  ItemTurns turns, from_turns;
  bool delta = true;
  bool inverse = false;
  double amplitude = 1;
  bool split_in = true;  // HALF_SPLIT, else INTERLEAVED
  bool split_out = true;
  bool own_angles = false;  // each head of a block has angles of its own, else each token
  SmallDivisor pairs;       // > 0
  int64_t head_pairs = 0;   // frequencies from one head to the next; 0: heads share them
};

}  // namespace phasor::cuda

#endif  // PHASOR_KERNELS_CUDA_KEYS_H_
