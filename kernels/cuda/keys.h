// SPDX-License-Identifier: Apache-2.0
// Stored keys on a GPU: CopyKeysBody copies bytes of rows, MoveKeysBody decodes, rotates and
// encodes them, and SlotPositionsBody notes where tokens are. compare_keys.h compares them.
// Contracts: kernels/ops/key_rows.h and kernels/ops/rotary.h.
//
// A row is a token, and its units are the heads of all layers (planes) of an item, so one launch
// does all layers that share a spec. A block of MoveKeysBody owns whole heads, and its threads work
// in steps with a barrier after each:
//
//   angles    sines and cosines of the block's tokens, once for all heads and layers
//   load      the bytes of the heads, as they are stored, side by side in shared memory
//   decode    to f32 lanes in shared memory
//   rotate    each pair by one thread
//   largest   if rows have scales: the largest magnitudes of parts of heads,
//   scale     and the new scales
//   encode    to bytes in shared memory
//   store     the bytes to where they belong
//
// and, with a Hadamard transform, steps of butterflies before and after `rotate`. Bytes are loaded
// and stored in the widest words that addresses and distances allow, whatever the code. A head is
// read before a byte of it is written, so it may be moved in place from one pairing to the other.
// Threads: blocks of one launch write different bytes.
#ifndef PHASOR_KERNELS_CUDA_KEYS_H_
#define PHASOR_KERNELS_CUDA_KEYS_H_

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "kernels/base/host_device.h"
#include "kernels/cuda/aligned.h"
#include "kernels/cuda/divisor.h"
#include "kernels/cuda/grid.h"
#include "kernels/cuda/in_arena.h"
#include "kernels/cuda/lanes.h"
#include "kernels/cuda/turns.h"
#include "kernels/math/element.h"
#include "kernels/ops/key_codes.h"
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

// What the items of both kernels have.
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

// Copies `width` bytes. Both sides are aligned to them.
PHASOR_HD void CopyWord(int32_t width, const std::byte* from, std::byte* to) {
  switch (width) {
    case 16:
      return StoreAligned(LoadAligned<Words<16>>(from), to);
    case 8:
      return StoreAligned(LoadAligned<uint64_t>(from), to);
    case 4:
      return StoreAligned(LoadAligned<uint32_t>(from), to);
    case 2:
      return StoreAligned(LoadAligned<uint16_t>(from), to);
    default:
      *to = *from;
  }
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
      CopyWord(item.width, x, y);
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

// The most lanes, bytes and angles of a block.
inline constexpr int kKeyLanes = 2048;
inline constexpr int kKeyBytes = 8192;
inline constexpr int kKeyAngles = 1024;
// The widest window of a head: half the angles, so that a block can have angles of two tokens.
inline constexpr int kMostKeyLanes = 1024;

// The positions of tokens: whole numbers.
struct KeyPositions {
  InArena<int64_t> values;  // [tokens, axes]
  int32_t axes = 1;
};

PHASOR_HD Position PositionOf(const KeyPositions& p, const std::byte* arena, int64_t row,
                              int axis) {
  return {p.values.In(arena)[row * p.axes + axis], 0};
}

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

// Moves the window of heads (kernels/ops/key_form.h). Lanes are those of the window.
struct MoveKeysItem : TurnedKeysItem {
  bool scaled = false;  // rows have scales
  int32_t rotary_begin = 0;
  SmallDivisor lanes;
  SmallDivisor groups;      // of lanes that are stored together
  SmallDivisor head_words;  // of the window
  int64_t first_word = 0;
  int32_t row_bytes = 0;  // from one head to the next in shared memory; a multiple of 16
  int32_t hadamard_bits = 0;
  float hadamard_factor = 1;
  SmallDivisor parts;  // of a head's lanes, whose largest magnitudes are sought
};

template <KeyCode kCode>
struct MoveKeysBody {
  using Item = MoveKeysItem;
  static constexpr bool kOften = false;  // see launch.cu
  static constexpr bool kBlocks = kCode >= KeyCode::kQ8_0;
  static constexpr int kUnitBytes = static_cast<int>(UnitBytes(kCode));
  static constexpr int kUnitLanes = static_cast<int>(phasor::UnitLanes(kCode));
  static constexpr float kLimit = LargestCode(kCode);

  // What the threads of a block share. Lanes of blocks are skewed, so that threads that work on
  // neighbouring blocks use different banks.
  struct Shared {
    alignas(16) std::byte bytes[kKeyBytes];
    float lanes[kKeyLanes + kKeyLanes / 32];
    float sin[kKeyAngles];
    float cos[kKeyAngles];
    float largest[kThreads];
    float scale[kThreads];  // of each unit
  };

  // The steps of a block. Step 0 reads nothing that an earlier kernel writes.
  static PHASOR_HD int StepsOf(const Item& item) { return StepsToEncode(item) + 1; }

  static PHASOR_HD void Run(const Item& item, const std::byte* arena, int64_t block, int thread,
                            int step, Shared& shared) {
    const Block at{item, arena, UnitsOf(item.grid, block), thread};
    if (step < StepsToEncode(item)) return Encoded<true>(at, step, item.groups, 0, shared);
    Store(at, shared);
  }

 protected:
  struct Block {
    const Item& item;
    const std::byte* arena;
    BlockUnits units;
    int thread;
  };

  static PHASOR_HD int StepsToEncode(const Item& item) {
    return 5 + 2 * item.hadamard_bits + (item.scaled ? 2 : 0);
  }

  // The steps up to the encoded bytes, of which `groups` from `first` on are new. `kScales`: new
  // scales go to where they belong.
  template <bool kScales>
  static PHASOR_HD void Encoded(const Block& at, int step, const SmallDivisor& groups,
                                int32_t first, Shared& shared) {
    const Item& item = at.item;
    if (step == 0) return Angles(at, shared);
    if (step == 1) return Load<true>(at, shared);
    if (step == 2) return Decode(at, item.split_in, shared, shared.lanes);
    step -= 3;
    if (step < item.hadamard_bits) return Butterflies(at, step, item.split_in, shared.lanes);
    step -= item.hadamard_bits;
    if (step == 0) return Rotate(at, shared);
    --step;
    if (step < item.hadamard_bits) return Butterflies(at, step, item.split_out, shared.lanes);
    step -= item.hadamard_bits;
    if (item.scaled) {
      if (step == 0) return FindLargest(at, shared);
      if (step == 1) return NewScales<kScales>(at, shared);
    }
    Encode(at, groups, first, shared);
  }

  // Calls work(unit, i) for i in [0, each.value) of every unit of the block.
  template <typename Work>
  static PHASOR_HD void ForEach(const Block& at, const SmallDivisor& each, const Work& work) {
    for (int32_t i = at.thread; i < at.units.count * each.value; i += kThreads) {
      const int32_t unit = Quotient(i, each);
      work(unit, i - unit * each.value);
    }
  }

  static PHASOR_HD KeyUnit Find(const Block& at, int32_t unit) {
    const UnitAt found = UnitOf(at.item.grid, at.units, unit);
    return KeyUnitOf(at.item, at.arena, found.row, found.unit);
  }

  // Where lane i of a unit is. Pairs are held as HALF_SPLIT, so that a rotation from one pairing to
  // the other stays in its place.
  static PHASOR_HD int32_t PlaceOf(const Item& item, int32_t unit, int32_t i, bool split) {
    const int32_t pairs = item.pairs.value, in = i - item.rotary_begin;
    if (!split && in >= 0 && in < 2 * pairs) i = item.rotary_begin + in / 2 + (in % 2) * pairs;
    const int32_t place = unit * item.lanes.value + i;
    return kBlocks ? place + place / 32 : place;
  }

  static PHASOR_HD void Angles(const Block& at, Shared& shared) {
    const Item& item = at.item;
    const int32_t rows = Quotient(at.units.first + at.units.count - 1, item.grid.units) + 1;
    const int32_t count = (item.own_angles ? at.units.count : rows) * item.pairs.value;
    for (int32_t i = at.thread; i < count; i += kThreads) {
      const int32_t k = Quotient(i, item.pairs);
      int64_t row = at.units.row + k, pair = i - k * item.pairs.value;
      if (item.own_angles) {
        const UnitAt unit = UnitOf(item.grid, at.units, k);
        const int32_t plane = Quotient(unit.unit, item.heads);
        row = unit.row;
        pair += (unit.unit - plane * item.heads.value) * item.head_pairs;
      }
      const SinCos<float> v = TrigOfRow<scalar::F32>(item, at.arena, row, pair);
      shared.sin[i] = v.sin;
      shared.cos[i] = v.cos;
    }
  }

  // Loads rows of x, or of y.
  template <bool kFrom>
  static PHASOR_HD void Load(const Block& at, Shared& shared) {
    const Item& item = at.item;
    const KeySide& side = kFrom ? item.from : item.to;
    ForEach(at, item.head_words, [&](int32_t unit, int32_t i) {
      const KeyUnit key = Find(at, unit);
      const std::byte* const row = kFrom ? key.plane.x + key.x : key.plane.y + key.y;
      const std::byte* const word = row + side.words.At(item.first_word + i);
      AssumeGlobal(word);
      CopyWord(item.width, word, shared.bytes + unit * item.row_bytes + i * item.width);
    });
    if (!item.scaled) return;
    for (int32_t unit = at.thread; unit < at.units.count; unit += kThreads) {
      const KeyUnit key = Find(at, unit);
      const std::byte* const plane = kFrom ? key.plane.x : key.plane.y;
      shared.scale[unit] = scalar::F32::Load(plane + side.scales.In(at.arena)[key.row] +
                                             key.head * side.scale_head_bytes);
    }
  }

  static PHASOR_HD void Store(const Block& at, const Shared& shared) {
    const Item& item = at.item;
    ForEach(at, item.head_words, [&](int32_t unit, int32_t i) {
      const KeyUnit key = Find(at, unit);
      std::byte* const y = key.plane.y + key.y + item.to.words.At(item.first_word + i);
      AssumeGlobal(y);
      CopyWord(item.width, shared.bytes + unit * item.row_bytes + i * item.width, y);
    });
  }

  static PHASOR_HD void Decode(const Block& at, bool split, const Shared& shared, float* lanes) {
    const Item& item = at.item;
    ForEach(at, item.groups, [&](int32_t unit, int32_t i) {
      const std::byte* const stored = shared.bytes + unit * item.row_bytes + i * kUnitBytes;
      float x[kUnitLanes];
      if constexpr (kBlocks) {
        DecodeKeyBlock(kCode, stored, x);
      } else {
        x[0] = DecodeLane(kCode, stored);
        if (item.scaled) x[0] *= shared.scale[unit];
      }
      PHASOR_UNROLL
      for (int k = 0; k < kUnitLanes; ++k) {
        lanes[PlaceOf(item, unit, i * kUnitLanes + k, split)] = x[k];
      }
    });
  }

  // The butterflies of one distance; with the last ones the factor.
  static PHASOR_HD void Butterflies(const Block& at, int32_t bit, bool split, float* lanes) {
    const Item& item = at.item;
    const float factor = bit == item.hadamard_bits - 1 ? item.hadamard_factor : 1.0f;
    ForEach(at, item.lanes, [&](int32_t unit, int32_t i) {
      const int32_t distance = int32_t{1} << bit;
      if ((i & distance) != 0) return;
      float& first = lanes[PlaceOf(item, unit, i, split)];
      float& second = lanes[PlaceOf(item, unit, i + distance, split)];
      const float a = first, b = second;
      first = (a + b) * factor;
      second = (a - b) * factor;
    });
  }

  static PHASOR_HD void Rotate(const Block& at, Shared& shared) {
    const Item& item = at.item;
    ForEach(at, item.pairs, [&](int32_t unit, int32_t j) {
      const int32_t row = Quotient(at.units.first + unit, item.grid.units);
      const int32_t angle = (item.own_angles ? unit : row) * item.pairs.value + j;
      const float sin = shared.sin[angle], cos = shared.cos[angle];
      float& first = shared.lanes[PlaceOf(item, unit, item.rotary_begin + j, true)];
      float& second =
          shared.lanes[PlaceOf(item, unit, item.rotary_begin + item.pairs.value + j, true)];
      const float x1 = first, x2 = second;
      first = std::fma(-x2, sin, x1 * cos);
      second = std::fma(x2, cos, x1 * sin);
    });
  }

  static PHASOR_HD void FindLargest(const Block& at, Shared& shared) {
    const Item& item = at.item;
    ForEach(at, item.parts, [&](int32_t unit, int32_t part) {
      float largest = 0;
      for (int32_t i = part; i < item.lanes.value; i += item.parts.value) {
        const float x = std::fabs(shared.lanes[PlaceOf(item, unit, i, item.split_out)]);
        if (x > largest) largest = x;
      }
      shared.largest[unit * item.parts.value + part] = largest;
    });
  }

  template <bool kStores>
  static PHASOR_HD void NewScales(const Block& at, Shared& shared) {
    const Item& item = at.item;
    for (int32_t unit = at.thread; unit < at.units.count; unit += kThreads) {
      float largest = 0;
      for (int32_t part = 0; part < item.parts.value; ++part) {
        const float x = shared.largest[unit * item.parts.value + part];
        if (x > largest) largest = x;
      }
      shared.scale[unit] = RowScaleOf(largest, kLimit);
      if (!kStores) continue;
      const KeyUnit key = Find(at, unit);
      scalar::F32::Store(shared.scale[unit], key.plane.y + item.to.scales.In(at.arena)[key.row] +
                                                 key.head * item.to.scale_head_bytes);
    }
  }

  static PHASOR_HD void Encode(const Block& at, const SmallDivisor& groups, int32_t first_group,
                               Shared& shared) {
    const Item& item = at.item;
    ForEach(at, groups, [&](int32_t unit, int32_t group) {
      const int32_t i = first_group + group;
      std::byte* const stored = shared.bytes + unit * item.row_bytes + i * kUnitBytes;
      float x[kUnitLanes];
      PHASOR_UNROLL
      for (int k = 0; k < kUnitLanes; ++k) {
        x[k] = shared.lanes[PlaceOf(item, unit, i * kUnitLanes + k, item.split_out)];
      }
      if constexpr (kBlocks) {
        EncodeKeyBlock(kCode, x, stored);
      } else {
        if (item.scaled) x[0] = QuotientOf(x[0], shared.scale[unit]);
        EncodeLane(kCode, x[0], stored);
      }
    });
  }
};

}  // namespace phasor::cuda

#endif  // PHASOR_KERNELS_CUDA_KEYS_H_
