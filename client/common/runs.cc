// SPDX-License-Identifier: Apache-2.0
// Cuts ApplyRoPE calls into batch entries and runs of tokens, as views of the same memory.
#include "client/common/runs.h"

#include <utility>
#include <variant>

#include "client/common/calls.h"
#include "kernels/spec/spec.h"

namespace phasor::client_internal {
namespace {

// Index of the tokens' dimension in a tensor of rank 3 or 4.
size_t TokenDimension(size_t rank, RopeLayout layout) {
  return rank - 3 + (layout == RopeLayout::kTokensHeads ? 0 : 1);
}

// The part [first, first + count) of dimension `d`. View is TensorView or MutableTensorView.
template <typename View>
View Part(const View& view, size_t d, int64_t first, int64_t count) {
  View part = view;
  part.desc.strides = StridesOf(view.desc);
  const int64_t offset = first * part.desc.strides[d] * SizeOf(view.desc.dtype);
  part.desc.shape[d] = count;
  part.data += offset;
  part.bytes -= offset;
  return part;
}

// Entry `b` of the first dimension, without that dimension.
template <typename View>
View Entry(const View& view, int64_t b) {
  View entry = Part(view, 0, b, 1);
  entry.desc.shape.erase(entry.desc.shape.begin());
  entry.desc.strides.erase(entry.desc.strides.begin());
  return entry;
}

// Whether all tensors have the same batch and number of tokens, both at least 1, and there is no
// paged cache.
bool CanBeCut(const RopeCall& call) {
  if (call.tensors.empty() || call.paged.has_value()) return false;
  const std::vector<int64_t>& first = call.tensors[0].input.desc.shape;
  if (first.size() != 3 && first.size() != 4) return false;
  const size_t token = TokenDimension(first.size(), call.layout);
  for (const RopeTensor& tensor : call.tensors) {
    const std::vector<int64_t>& shape = tensor.input.desc.shape;
    if (shape.size() != first.size() || shape[token] != first[token]) return false;
    if (first.size() == 4 && shape[0] != first[0]) return false;
    for (const int64_t extent : shape) {
      if (extent < 1) return false;
    }
  }
  return true;
}

// Positions of batch entry b. nullopt if the positions do not tell whether they have a batch
// dimension.
std::optional<PositionList> EntryPositions(const PositionList& positions, int64_t batch,
                                           int64_t tokens, int64_t b) {
  const auto* tensor = std::get_if<PositionTensor>(&positions.value());
  if (tensor == nullptr || tensor->shape.empty()) return positions;
  const std::vector<int64_t>& shape = tensor->shape;
  const bool maybe_axes = shape.size() == 2 && shape[0] == tokens && shape[1] <= kMaxAxes;
  const bool maybe_batch = shape.size() >= 2 && shape[0] == batch && shape[1] == tokens;
  if (!maybe_batch) return positions;
  if (maybe_axes) return std::nullopt;
  const int64_t bytes = static_cast<int64_t>(PositionBytes(positions).size()) / batch;
  return PositionList(TensorView{{tensor->dtype, {shape.begin() + 1, shape.end()}, {}},
                                 positions.bytes().data() + b * bytes,
                                 bytes});
}

std::optional<RopeCall> BatchEntry(const RopeCall& call, int64_t batch, int64_t b) {
  const int64_t tokens = call.tensors[0].input.desc.shape[TokenDimension(4, call.layout)];
  RopeCall entry = call;
  auto positions = EntryPositions(call.positions, batch, tokens, b);
  if (!positions.has_value()) return std::nullopt;
  entry.positions = *std::move(positions);
  if (call.from_positions.has_value()) {
    entry.from_positions = EntryPositions(*call.from_positions, batch, tokens, b);
    if (!entry.from_positions.has_value()) return std::nullopt;
  }
  for (RopeTensor& tensor : entry.tensors) {
    tensor.input = Entry(tensor.input, b);
    tensor.output = Entry(tensor.output, b);
  }
  return entry;
}

}  // namespace

std::optional<std::vector<RopeCall>> CutBatch(const RopeCall& call) {
  if (!CanBeCut(call)) return std::nullopt;
  const std::vector<int64_t>& shape = call.tensors[0].input.desc.shape;
  if (shape.size() == 3) return std::vector<RopeCall>{call};
  std::vector<RopeCall> entries;
  for (int64_t b = 0; b < shape[0]; ++b) {
    std::optional<RopeCall> entry = BatchEntry(call, shape[0], b);
    if (!entry.has_value()) return std::nullopt;
    entries.push_back(*std::move(entry));
  }
  return entries;
}

int64_t TokensOf(const RopeCall& call) {
  return call.tensors[0].input.desc.shape[TokenDimension(3, call.layout)];
}

int64_t BytesPerToken(const RopeCall& call) {
  int64_t bytes = 0;
  for (const RopeTensor& tensor : call.tensors) {
    bytes += ElementCount(tensor.input.desc) * SizeOf(tensor.input.desc.dtype);
  }
  return bytes / TokensOf(call);
}

RopeCall RunOf(const RopeCall& call, TokenRun run) {
  const size_t token = TokenDimension(3, call.layout);
  RopeCall part{.spec = call.spec, .direction = call.direction, .layout = call.layout};
  part.tensors = call.tensors;
  for (RopeTensor& tensor : part.tensors) {
    tensor.input = Part(tensor.input, token, run.first, run.tokens);
    tensor.output = Part(tensor.output, token, run.first, run.tokens);
  }
  return part;
}

}  // namespace phasor::client_internal
