// SPDX-License-Identifier: Apache-2.0
// Moves stored keys of any code and layout on a GPU: decodes, rotates and encodes them in memory
// that the threads of a block share. Contracts: kernels/ops/key_rows.h and kernels/ops/rotary.h.
//
// A block owns whole heads, and its threads work in steps with a barrier after each:
//
//   angles    sines and cosines of the block's tokens, once for all heads and layers, and where the
//             heads are
//   load      the bytes of the heads, as they are stored, side by side in shared memory
//   decode    runs of lanes to f32 in shared memory
//   rotate    four pairs at a time
//   largest   if rows have scales, or blocks of Q8_0: the largest magnitude of each run,
//   scale     and the new scales
//   encode    runs of lanes to bytes in shared memory
//   store     the bytes to where they belong
//
// and, with a Hadamard transform, steps of butterflies before and after `rotate`. Bytes are loaded
// and stored in the widest words that addresses and distances allow, whatever the code. A head is
// read before a byte of it is written, so it may be moved in place from one pairing to the other.
// Threads: blocks of one launch write different bytes.
#ifndef PHASOR_KERNELS_CUDA_MOVE_KEYS_H_
#define PHASOR_KERNELS_CUDA_MOVE_KEYS_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/base/host_device.h"
#include "kernels/cuda/aligned.h"
#include "kernels/cuda/keys.h"
#include "kernels/math/key_blocks.h"
#include "kernels/math/quotient.h"
#include "kernels/ops/key_codes.h"

namespace phasor::cuda {

// The most lanes, bytes and angles of a block.
inline constexpr int kKeyLanes = 2048;
inline constexpr int kKeyBytes = 8192;
inline constexpr int kKeyAngles = 1024;
// The widest window of a head: half the angles, so that a block can have angles of two tokens.
inline constexpr int kMostKeyLanes = 1024;

// The lanes that a thread decodes or encodes at once: a whole block of the codes that need all of
// it, else 8.
constexpr int RunLanes(KeyCode code) { return code > KeyCode::kQ8_0 ? 32 : 8; }

// Moves the window of heads (kernels/ops/key_form.h). Lanes are those of the window.
struct MoveKeysItem : TurnedKeysItem {
  bool scaled = false;  // rows have scales
  int32_t rotary_begin = 0;
  SmallDivisor lanes;
  SmallDivisor runs;        // of RunLanes; the last one may be of fewer
  SmallDivisor quads;       // of pairs; the last one may be of fewer
  SmallDivisor head_words;  // of the window
  int64_t first_word = 0;
  int32_t row_bytes = 0;  // from one head to the next in shared memory: whole runs
  int32_t hadamard_bits = 0;
  float hadamard_factor = 1;
};

// Where the f32 lanes of a block are. Pairs are held as HALF_SPLIT, so that a rotation from one
// pairing to the other stays in its place. Lanes are skewed, so that threads that work on
// neighbouring runs use different banks.
struct KeyPlaces {
  int32_t unit_lanes, rotary_begin, pairs;
  bool split;
  bool whole_runs;  // a run of lanes is also one of places, or one of first and one of second lanes
  bool whole_quads;

  PHASOR_HD int32_t At(int32_t unit, int32_t i) const {
    const int32_t in = i - rotary_begin;
    if (!split && in >= 0 && in < 2 * pairs) i = rotary_begin + (in >> 1) + (in & 1) * pairs;
    const int32_t place = unit * unit_lanes + i;
    return place + (place >> 5);
  }

  // Calls work(k, place) for lanes [i, i + kRun), a run.
  template <int kRun, typename Work>
  PHASOR_HD void ForRun(int32_t unit, int32_t i, const Work& work) const {
    if (whole_runs) {
      const int32_t even = At(unit, i), odd = At(unit, i + 1), step = odd - even == 1 ? 2 : 1;
      PHASOR_UNROLL
      for (int k = 0; k < kRun; ++k) work(k, (k % 2 == 0 ? even : odd) + k / 2 * step);
    } else {
      PHASOR_UNROLL
      for (int k = 0; k < kRun; ++k) work(k, At(unit, i + k));
    }
  }

  // Calls work(j, place, place) for the lanes of pairs j of [4 * quad, 4 * quad + 4).
  template <typename Work>
  PHASOR_HD void ForQuad(int32_t unit, int32_t quad, const Work& work) const {
    const int32_t begin = rotary_begin + 4 * quad;
    if (whole_quads) {
      const int32_t first = At(unit, begin), second = At(unit, begin + pairs);
      PHASOR_UNROLL
      for (int k = 0; k < 4; ++k) work(4 * quad + k, first + k, second + k);
    } else {
      for (int k = 0; k < 4 && 4 * quad + k < pairs; ++k) {
        work(4 * quad + k, At(unit, begin + k), At(unit, begin + pairs + k));
      }
    }
  }
};

template <KeyCode kCode>
struct MoveKeysBody {
  using Item = MoveKeysItem;
  using Element = KeyElement<kCode>;
  static constexpr bool kOften = false;  // see launch.cu
  static constexpr bool kQ8 = kCode == KeyCode::kQ8_0;
  static constexpr bool kBlocks = IsBlockCode(kCode);
  static constexpr int kUnitBytes = static_cast<int>(UnitBytes(kCode));
  static constexpr int kRun = RunLanes(kCode);
  static constexpr int kRunBytes = kQ8 ? kRun : kBlocks ? kUnitBytes : kRun * kUnitBytes;
  static constexpr float kLimit = LargestCode(kCode);

  // What the threads of a block share.
  struct Shared {
    alignas(32) std::byte bytes[kKeyBytes];
    float lanes[kKeyLanes + kKeyLanes / 32];
    float sin[kKeyAngles];
    float cos[kKeyAngles];
    const std::byte* x[kThreads];  // the row of each unit
    std::byte* y[kThreads];
    float largest[kThreads];  // of each run
    float scale[kThreads];    // of each unit; of Q8_0 1 / d of each block
  };

  // The steps of a block. Step 0 reads nothing that an earlier kernel writes.
  static PHASOR_HD int StepsOf(const Item& item) { return StepsToEncode(item) + 1; }

  static PHASOR_HD void Run(const Item& item, const std::byte* arena, int64_t block, int thread,
                            int step, Shared& shared) {
    const Block at{item, arena, UnitsOf(item.grid, block), thread};
    if (step < StepsToEncode(item)) return Encoded<true>(at, step, 0, item.lanes.value, shared);
    Store(at, shared);
  }

 protected:
  struct Block {
    const Item& item;
    const std::byte* arena;
    BlockUnits units;
    int thread;
  };

  static PHASOR_HD bool HasScales(const Item& item) { return kQ8 || item.scaled; }

  static PHASOR_HD int StepsToEncode(const Item& item) {
    return 5 + 2 * item.hadamard_bits + (HasScales(item) ? 2 : 0);
  }

  // The steps up to the encoded bytes, of which lanes [begin, end) are new. `kScales`: new scales
  // of rows go to where they belong.
  template <bool kScales>
  static PHASOR_HD void Encoded(const Block& at, int step, int32_t begin, int32_t end,
                                Shared& shared) {
    const Item& item = at.item;
    if (step == 0) {
      FindUnits(at, shared);
      return Angles(at, shared);
    }
    if (step == 1) return Load<true>(at, shared);
    if (step == 2) return Decode(at, item.split_in, shared, shared.lanes);
    step -= 3;
    if (step < item.hadamard_bits) return Butterflies(at, step, item.split_in, shared.lanes);
    step -= item.hadamard_bits;
    if (step == 0) return Rotate(at, shared);
    --step;
    if (step < item.hadamard_bits) return Butterflies(at, step, item.split_out, shared.lanes);
    step -= item.hadamard_bits;
    if (HasScales(item)) {
      if (step == 0) return FindLargest(at, shared);
      if (step == 1) return NewScales<kScales>(at, begin, end, shared);
    }
    Encode(at, begin, end, shared);
  }

  // Calls work(unit, i) for i in [0, each.value) of every unit of the block.
  template <typename Work>
  static PHASOR_HD void ForEach(const Block& at, SmallDivisor each, const Work& work) {
    const int32_t count = at.units.count * each.value;
    PHASOR_ROLLED
    for (int32_t i = at.thread; i < count; i += kThreads) {
      const int32_t unit = Quotient(i, each);
      work(unit, i - unit * each.value);
    }
  }

  static PHASOR_HD KeyUnit Find(const Block& at, int32_t unit) {
    const UnitAt found = UnitOf(at.item.grid, at.units, unit);
    return KeyUnitOf(at.item, at.arena, found.row, found.unit);
  }

  static PHASOR_HD KeyPlaces PlacesOf(const Item& item, bool split) {
    const int32_t begin = item.rotary_begin, pairs = item.pairs.value;
    const bool whole_runs = split || (begin % kRun == 0 && pairs % (kRun / 2) == 0);
    const bool whole_quads = begin % 4 == 0 && pairs % 4 == 0;
    return {item.runs.value * kRun, begin, pairs, split, whole_runs, whole_quads};
  }

  // Where a run is in a row. Codes of Q8_0 follow the d of their block.
  static PHASOR_HD int32_t ByteOf(int32_t run) {
    return kQ8 ? (run >> 2) * kUnitBytes + 2 + (run & 3) * kRunBytes : run * kRunBytes;
  }

  static PHASOR_HD void FindUnits(const Block& at, Shared& shared) {
    PHASOR_ROLLED
    for (int32_t unit = at.thread; unit < at.units.count; unit += kThreads) {
      const KeyUnit key = Find(at, unit);
      shared.x[unit] = key.plane.x + key.x;
      shared.y[unit] = key.plane.y + key.y;
    }
  }

  static PHASOR_HD void Angles(const Block& at, Shared& shared) {
    const Item& item = at.item;
    const int32_t rows = Quotient(at.units.first + at.units.count - 1, item.grid.units) + 1;
    const int32_t count = (item.own_angles ? at.units.count : rows) * item.pairs.value;
    PHASOR_ROLLED
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

  // Calls work(Words{}, unit, in the row, in shared.bytes) for every word of the block's rows.
  template <typename Work>
  static PHASOR_HD void ForWords(const Block& at, KeyWords words, const Work& work) {
    const int32_t row_bytes = at.item.row_bytes;
    const int64_t first = at.item.first_word;
    VisitWidth(at.item.width, [&](auto word) {
      ForEach(at, at.item.head_words, [&](int32_t unit, int32_t i) {
        constexpr int kWidth = sizeof word;
        work(word, unit, words.At(first + i), unit * row_bytes + i * kWidth);
      });
    });
  }

  // Loads rows of x, or of y.
  template <bool kFrom>
  static PHASOR_HD void Load(const Block& at, Shared& shared) {
    const Item& item = at.item;
    const KeySide& side = kFrom ? item.from : item.to;
    ForWords(at, side.words, [&](auto word, int32_t unit, int64_t from, int32_t to) {
      word = LoadWords<sizeof word>((kFrom ? shared.x[unit] : shared.y[unit]) + from);
      StoreAligned(word, shared.bytes + to);
    });
    if (!item.scaled) return;
    PHASOR_ROLLED
    for (int32_t unit = at.thread; unit < at.units.count; unit += kThreads) {
      const KeyUnit key = Find(at, unit);
      const std::byte* const plane = kFrom ? key.plane.x : key.plane.y;
      shared.scale[unit] = scalar::F32::Load(plane + side.scales.In(at.arena)[key.row] +
                                             key.head * side.scale_head_bytes);
    }
  }

  static PHASOR_HD void Store(const Block& at, const Shared& shared) {
    ForWords(at, at.item.to.words, [&](auto word, int32_t unit, int64_t to, int32_t from) {
      word = LoadAligned<decltype(word)>(shared.bytes + from);
      StoreWords(word, shared.y[unit] + to);
    });
  }

  static PHASOR_HD void Decode(const Block& at, bool split, const Shared& shared, float* lanes) {
    const KeyPlaces places = PlacesOf(at.item, split);
    const int32_t row_bytes = at.item.row_bytes;
    const bool scaled = at.item.scaled;
    ForEach(at, at.item.runs, [&](int32_t unit, int32_t run) {
      const std::byte* const row = shared.bytes + unit * row_bytes;
      const std::byte* const stored = row + ByteOf(run);
      float x[kRun];
      if constexpr (kQ8) {
        const float d = WidenFloat16(LoadAligned<uint16_t>(row + (run >> 2) * kUnitBytes));
        PHASOR_UNROLL
        for (int k = 0; k < kRun; ++k) {
          x[k] = WidenInt8(LoadAligned<uint16_t>(stored + k / 2 * 2), k % 2) * d;
        }
      } else if constexpr (kBlocks) {
        DecodeKeyBlock(kCode, stored, x);
      } else {
        const auto words = LoadAligned<Words<kRunBytes>>(stored);
        PHASOR_UNROLL
        for (int k = 0; k < kRun; ++k) {
          if constexpr (std::is_void_v<Element>) {
            x[k] = WidenInt8(words.word[k / 4], k % 4);
          } else {
            x[k] = LaneOf<Element>(words, k);
          }
          if (scaled) x[k] *= shared.scale[unit];
        }
      }
      places.ForRun<kRun>(unit, run * kRun, [&](int k, int32_t place) { lanes[place] = x[k]; });
    });
  }

  // The butterflies of one distance; with the last ones the factor.
  static PHASOR_HD void Butterflies(const Block& at, int32_t bit, bool split, float* lanes) {
    const Item& item = at.item;
    const KeyPlaces places = PlacesOf(item, split);
    const float factor = bit == item.hadamard_bits - 1 ? item.hadamard_factor : 1.0f;
    ForEach(at, item.lanes, [&](int32_t unit, int32_t i) {
      const int32_t distance = int32_t{1} << bit;
      if ((i & distance) != 0) return;
      float& first = lanes[places.At(unit, i)];
      float& second = lanes[places.At(unit, i + distance)];
      const float a = first, b = second;
      first = (a + b) * factor;
      second = (a - b) * factor;
    });
  }

  static PHASOR_HD void Rotate(const Block& at, Shared& shared) {
    const KeyPlaces places = PlacesOf(at.item, true);
    const bool own_angles = at.item.own_angles;
    const SmallDivisor row_units = at.item.grid.units;
    const BlockUnits units = at.units;
    ForEach(at, at.item.quads, [&](int32_t unit, int32_t quad) {
      const int32_t angles =
          (own_angles ? unit : Quotient(units.first + unit, row_units)) * places.pairs;
      places.ForQuad(unit, quad, [&](int32_t j, int32_t first, int32_t second) {
        const float sin = shared.sin[angles + j], cos = shared.cos[angles + j];
        const float x1 = shared.lanes[first], x2 = shared.lanes[second];
        shared.lanes[first] = std::fma(-x2, sin, x1 * cos);
        shared.lanes[second] = std::fma(x2, cos, x1 * sin);
      });
    });
  }

  static PHASOR_HD void FindLargest(const Block& at, Shared& shared) {
    const KeyPlaces places = PlacesOf(at.item, at.item.split_out);
    const int32_t lanes = at.item.lanes.value, runs = at.item.runs.value;
    ForEach(at, at.item.runs, [&](int32_t unit, int32_t run) {
      float largest = 0;  // no NaN is larger
      places.ForRun<kRun>(unit, run * kRun, [&](int k, int32_t place) {
        if (kQ8 || run * kRun + k < lanes) {
          largest = std::fmax(largest, std::fabs(shared.lanes[place]));
        }
      });
      shared.largest[unit * runs + run] = largest;
    });
  }

  // The scales of rows, or of blocks.
  template <bool kStores>
  static PHASOR_HD void NewScales(const Block& at, int32_t begin, int32_t end, Shared& shared) {
    const Item& item = at.item;
    const int32_t parts = kQ8 ? 4 : item.runs.value;
    const int32_t count = at.units.count * item.runs.value / parts;
    PHASOR_ROLLED
    for (int32_t i = at.thread; i < count; i += kThreads) {
      float largest = 0;
      PHASOR_ROLLED
      for (int32_t part = 0; part < parts; ++part) {
        const float x = shared.largest[i * parts + part];
        if (x > largest) largest = x;
      }
      if constexpr (kQ8) {
        const float d = QuotientOf(largest, kLimit);
        const int32_t unit = Quotient(i * parts, item.runs);
        const int32_t block = i - unit * item.runs.value / parts;
        shared.scale[i] = key_blocks::InverseOf(d);
        if (block * 32 < begin || block * 32 >= end) continue;
        key_blocks::StoreFloat16(d, shared.bytes + unit * item.row_bytes + block * kUnitBytes);
      } else {
        shared.scale[i] = RowScaleOf(largest, kLimit);
        if (!kStores) continue;
        const KeyUnit key = Find(at, i);
        scalar::F32::Store(shared.scale[i], key.plane.y + item.to.scales.In(at.arena)[key.row] +
                                                key.head * item.to.scale_head_bytes);
      }
    }
  }

  static PHASOR_HD void Encode(const Block& at, int32_t begin, int32_t end, Shared& shared) {
    const KeyPlaces places = PlacesOf(at.item, at.item.split_out);
    const int32_t row_bytes = at.item.row_bytes, runs = at.item.runs.value;
    const bool scaled = at.item.scaled;
    ForEach(at, at.item.runs, [&](int32_t unit, int32_t run) {
      const int32_t i = run * kRun;
      if (i + kRun <= begin || i >= end) return;
      std::byte* const stored = shared.bytes + unit * row_bytes + ByteOf(run);
      float x[kRun];
      places.ForRun<kRun>(unit, i, [&](int k, int32_t place) { x[k] = shared.lanes[place]; });
      if constexpr (kQ8) {
        const float id = shared.scale[(unit * runs + run) >> 2];
        PHASOR_UNROLL
        for (int k = 0; k < kRun; ++k) x[k] *= id;
        StoreInt8Pairs(PackInt8Lanes(x), stored);
      } else if constexpr (kBlocks) {
        EncodeKeyBlock(kCode, x, stored);
      } else {
        Words<kRunBytes> words = {};
        if (scaled) {
          PHASOR_UNROLL
          for (int k = 0; k < kRun; ++k) x[k] = QuotientOf(x[k], shared.scale[unit]);
        }
        if constexpr (std::is_void_v<Element>) {
          words = PackInt8Lanes(x);
        } else {
          words = PackLanes<Element>(x);
        }
        if (begin <= i && i + kRun <= end) return StoreAligned(words, stored);
        std::byte bytes[kRunBytes];
        std::memcpy(bytes, &words, kRunBytes);
        PHASOR_UNROLL
        for (int k = 0; k < kRunBytes; ++k) {
          const int32_t lane = i + k / kUnitBytes;
          if (lane >= begin && lane < end) stored[k] = bytes[k];
        }
      }
    });
  }
};

}  // namespace phasor::cuda

#endif  // PHASOR_KERNELS_CUDA_MOVE_KEYS_H_
