// SPDX-License-Identifier: Apache-2.0
// The forms that Encode can return, and the row layout of each rotary table.
// Threads: plain values and pure functions.
#ifndef PHASOR_KERNELS_PLAN_ROW_LAYOUT_H_
#define PHASOR_KERNELS_PLAN_ROW_LAYOUT_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "kernels/ops/pairing.h"
#include "kernels/ops/row_layout.h"

namespace phasor {

// What Encode returns: rows of an ENCODING spec, or a table of sines and cosines of a ROTARY spec.
enum class EncodeOutput : uint8_t {
  kEmbedding,         // [positions, dim]
  kCosSin,            // [positions, 2, pairs]: cosines, then sines
  kCosSinDuplicated,  // [positions, 2, 2 pairs]: each half is cat(f, f)
  kCosSinRepeated,    // [positions, 2, 2 pairs]: each value twice in a row
  kSinCos,            // the same three, sines first
  kSinCosDuplicated,
  kSinCosRepeated,
  kComplex,    // [positions, pairs, 2]: cosine, sine
  kMatrix2x2,  // [positions, pairs, 2, 2]: cosine, -sine, sine, cosine
  kCos,        // [positions, pairs]
  kCosDuplicated,
  kCosRepeated,  // both [positions, 2 pairs]
  kSin,          // the same three for sines
  kSinDuplicated,
  kSinRepeated,
};

// The name in position_embedding_service.proto, without its prefix.
constexpr std::string_view Name(EncodeOutput output) {
  switch (output) {
    case EncodeOutput::kEmbedding:
      return "EMBEDDING";
    case EncodeOutput::kCosSin:
      return "COS_SIN";
    case EncodeOutput::kCosSinDuplicated:
      return "COS_SIN_DUPLICATED";
    case EncodeOutput::kCosSinRepeated:
      return "COS_SIN_REPEATED";
    case EncodeOutput::kSinCos:
      return "SIN_COS";
    case EncodeOutput::kSinCosDuplicated:
      return "SIN_COS_DUPLICATED";
    case EncodeOutput::kSinCosRepeated:
      return "SIN_COS_REPEATED";
    case EncodeOutput::kComplex:
      return "COMPLEX";
    case EncodeOutput::kMatrix2x2:
      return "MATRIX_2X2";
    case EncodeOutput::kCos:
      return "COS";
    case EncodeOutput::kCosDuplicated:
      return "COS_DUPLICATED";
    case EncodeOutput::kCosRepeated:
      return "COS_REPEATED";
    case EncodeOutput::kSin:
      return "SIN";
    case EncodeOutput::kSinDuplicated:
      return "SIN_DUPLICATED";
    case EncodeOutput::kSinRepeated:
      return "SIN_REPEATED";
  }
  return "?";
}

// Whether a table holds each run of values twice, one run after the other.
constexpr bool IsDuplicated(EncodeOutput output) {
  return output == EncodeOutput::kCosSinDuplicated || output == EncodeOutput::kSinCosDuplicated ||
         output == EncodeOutput::kCosDuplicated || output == EncodeOutput::kSinDuplicated;
}

// The pairs of a rotary table. Those of head h start at h * head_pairs, which is even if there are
// several heads.
struct TablePairs {
  int64_t heads = 1;
  int64_t pairs = 0;       // of a head
  int64_t head_pairs = 0;  // from one head to the next
  // Runs of pairs that a DUPLICATED table repeats one by one, for pairs in blocks. Each begins at
  // an even pair. All zeros: one run.
  PairBlocks blocks = {};
};

// The row layout of a table; `output` must not be kEmbedding. Heads lie one after another.
RowLayout TableLayout(EncodeOutput output, TablePairs pairs);

// The shape of a row of the table. Heads come first if there are several.
std::vector<int64_t> TableShape(EncodeOutput output, TablePairs pairs);

}  // namespace phasor

#endif  // PHASOR_KERNELS_PLAN_ROW_LAYOUT_H_
