// SPDX-License-Identifier: Apache-2.0
// Whether the rows of a move overlap, by interval arithmetic on their distances. Used by
// kernels/request/move_keys.h.
// Threads: pure functions.
#ifndef PHASOR_KERNELS_REQUEST_KEY_OVERLAP_H_
#define PHASOR_KERNELS_REQUEST_KEY_OVERLAP_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "kernels/request/move_keys.h"

namespace phasor {

// Bytes that repeat at fixed distances: [begin, begin + bytes), and again at every sum of multiples
// of the steps.
struct KeyBytes {
  struct Step {
    int64_t distance = 0;
    int64_t count = 1;
    friend bool operator==(const Step&, const Step&) = default;
  };
  int64_t begin = 0;
  int64_t bytes = 0;
  std::vector<Step> steps;  // counts above 1; the largest distance first

  int64_t end() const;  // of the last repetition
  friend bool operator==(const KeyBytes&, const KeyBytes&) = default;
};

// The rows, or the scales, of a plane at `offset`.
KeyBytes RowsOf(const KeyForm& form, int64_t offset);
KeyBytes ScalesOf(const KeyForm& form, int64_t offset);

// Whether no two repetitions overlap. False also where that is not seen: a step is shorter than
// all that repeats within it.
bool IsNested(const KeyBytes& bytes);
// Whether `a` and `b`, which are nested, have no byte in common. False also where that is not seen.
bool AreDisjoint(const KeyBytes& a, const KeyBytes& b);

// INVALID_ARGUMENT: rows of a plane overlap or extend beyond its pool. Needs no tokens.
absl::Status CheckPlaces(const PreparedMove& move, std::string_view path);

// Call it after CheckPlaces. INVALID_ARGUMENT: rows of two planes overlap, of which one is written;
// a slot is both written and read, or written twice.
absl::Status CheckOverlap(const PreparedMove& move, std::string_view path);

}  // namespace phasor

#endif  // PHASOR_KERNELS_REQUEST_KEY_OVERLAP_H_
