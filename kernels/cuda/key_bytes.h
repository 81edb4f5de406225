// SPDX-License-Identifier: Apache-2.0
// Which bytes of stored rows a kernel moves, and in words of how many bytes. Threads: pure
// functions.
#ifndef PHASOR_KERNELS_CUDA_KEY_BYTES_H_
#define PHASOR_KERNELS_CUDA_KEY_BYTES_H_

#include <cstdint>

#include "kernels/cuda/keys.h"
#include "kernels/ops/key_form.h"

namespace phasor::cuda {

inline constexpr int64_t kWidestWord = 16;

uint64_t BitsOf(const void* p);

// The widest word that divides everything whose bits are set.
int64_t WidthOf(uint64_t bits);

// Whether lanes have others between them, and whether they lie in several groups.
bool IsStrided(const KeyForm& form);
bool HasGroups(const KeyForm& form);

// The bits of the distances between rows.
uint64_t RowBits(const KeyForm& form);

// The bits of the lengths of contiguous lanes, and of the distances between them.
uint64_t LaneBits(const KeyForm& form);

// The words of a row, of a width that divides all of these.
KeyWords WordsOf(const KeyForm& form, int64_t width);

// Bytes of a dense row, from its first lane on.
struct ByteRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t bytes() const { return end - begin; }
};

// Lanes of whole units of the code.
ByteRange BytesOfLanes(const KeyForm& form, KeyWindow lanes);

// All that a copy takes of a row.
ByteRange WholeRow(const KeyForm& from, const KeyForm& to);

}  // namespace phasor::cuda

#endif  // PHASOR_KERNELS_CUDA_KEY_BYTES_H_
