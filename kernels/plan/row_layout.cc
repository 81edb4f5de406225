// SPDX-License-Identifier: Apache-2.0
// Builds the blocks of each form of rotary table.
#include "kernels/plan/row_layout.h"

namespace phasor {
namespace {

// How often a table holds each value, and in which order.
enum class Copies : uint8_t { kOne, kDuplicated, kRepeated };

// What a kind of table holds.
struct Form {
  bool cos = true;
  bool sin = true;
  bool sin_first = false;
  Copies copies = Copies::kOne;
  int64_t neighbours = 0;  // 2: complex, 4: matrix; 0: components lie apart
};

Form FormOf(EncodeOutput output) {
  switch (output) {
    case EncodeOutput::kEmbedding:
    case EncodeOutput::kCosSin:
      return {};
    case EncodeOutput::kCosSinDuplicated:
      return {.copies = Copies::kDuplicated};
    case EncodeOutput::kCosSinRepeated:
      return {.copies = Copies::kRepeated};
    case EncodeOutput::kSinCos:
      return {.sin_first = true};
    case EncodeOutput::kSinCosDuplicated:
      return {.sin_first = true, .copies = Copies::kDuplicated};
    case EncodeOutput::kSinCosRepeated:
      return {.sin_first = true, .copies = Copies::kRepeated};
    case EncodeOutput::kComplex:
      return {.neighbours = 2};
    case EncodeOutput::kMatrix2x2:
      return {.neighbours = 4};
    case EncodeOutput::kCos:
      return {.sin = false};
    case EncodeOutput::kCosDuplicated:
      return {.sin = false, .copies = Copies::kDuplicated};
    case EncodeOutput::kCosRepeated:
      return {.sin = false, .copies = Copies::kRepeated};
    case EncodeOutput::kSin:
      return {.cos = false};
    case EncodeOutput::kSinDuplicated:
      return {.cos = false, .copies = Copies::kDuplicated};
    case EncodeOutput::kSinRepeated:
      return {.cos = false, .copies = Copies::kRepeated};
  }
  return {};
}

int64_t ComponentWidth(const Form& form, int64_t pairs) {
  return form.copies == Copies::kOne ? pairs : 2 * pairs;
}

int64_t HeadWidth(const Form& form, int64_t pairs) {
  if (form.neighbours > 0) return form.neighbours * pairs;
  return (form.cos && form.sin ? 2 : 1) * ComponentWidth(form, pairs);
}

// Adds complex numbers or matrices from `column` on. `block` gives the pairs.
void AddNeighbours(int64_t neighbours, int64_t column, EncodeBlock block, RowLayout& layout) {
  block.stride = neighbours;
  block.cos_begin = column;
  block.sin_begin = neighbours == 2 ? column + 1 : column + 2;
  layout.blocks.push_back(block);
  if (neighbours == 2) return;
  block.sin_begin = column + 1;
  block.cos_begin = column + 3;
  block.negate_sin = true;
  layout.blocks.push_back(block);
}

// Adds components that lie apart, one block per copy. The second component begins `apart` columns
// after the first.
void AddApart(const Form& form, int64_t column, int64_t apart, EncodeBlock block,
              RowLayout& layout) {
  const bool repeated = form.copies == Copies::kRepeated;
  const int64_t second = column + (form.cos && form.sin ? apart : 0);
  block.stride = repeated ? 2 : 1;
  for (int64_t copy = 0; copy < (form.copies == Copies::kOne ? 1 : 2); ++copy) {
    const int64_t shift = copy * (repeated ? 1 : block.pairs);
    block.sin_begin = form.sin ? (form.sin_first ? column : second) + shift : -1;
    block.cos_begin = form.cos ? (form.sin_first ? second : column) + shift : -1;
    layout.blocks.push_back(block);
  }
}

// The same for the runs of a head, one after another.
void AddRuns(const Form& form, int64_t column, const PairBlocks& runs, EncodeBlock block,
             RowLayout& layout) {
  const int64_t apart = ComponentWidth(form, block.pairs);
  if (form.copies != Copies::kDuplicated || runs[0] == 0) {
    return AddApart(form, column, apart, block, layout);
  }
  for (const int64_t pairs : runs) {
    if (pairs == 0) break;
    block.pairs = pairs;
    AddApart(form, column, apart, block, layout);
    block.first_pair += pairs;
    column += 2 * pairs;
  }
}

}  // namespace

RowLayout TableLayout(EncodeOutput output, TablePairs pairs) {
  const Form form = FormOf(output);
  const int64_t head_width = HeadWidth(form, pairs.pairs);
  RowLayout layout;
  layout.width = layout.content_end = pairs.heads * head_width;
  for (int64_t head = 0; head < pairs.heads; ++head) {
    EncodeBlock block;
    block.first_pair = head * pairs.head_pairs;
    block.pairs = pairs.pairs;
    if (form.neighbours > 0) {
      AddNeighbours(form.neighbours, head * head_width, block, layout);
    } else {
      AddRuns(form, head * head_width, pairs.blocks, block, layout);
    }
  }
  return layout;
}

std::vector<int64_t> TableShape(EncodeOutput output, TablePairs pairs) {
  const Form form = FormOf(output);
  std::vector<int64_t> shape;
  if (pairs.heads > 1) shape.push_back(pairs.heads);
  if (form.neighbours == 0 && form.cos && form.sin) shape.push_back(2);
  shape.push_back(ComponentWidth(form, pairs.pairs));
  if (form.neighbours > 0) shape.push_back(2);
  if (form.neighbours == 4) shape.push_back(2);
  return shape;
}

}  // namespace phasor
