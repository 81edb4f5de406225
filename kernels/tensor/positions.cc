// SPDX-License-Identifier: Apache-2.0
// Checks what callers say about positions, then reads positions in plain loops. Ranges are
// evaluated in signed 128-bit integers, the value of a Q64.64 number.
#include "kernels/tensor/positions.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"

namespace phasor {
namespace {

constexpr int64_t kMaxTokens = int64_t{1} << 40;

// Checks ----------------------------------------------------------------------------------------

bool IsCount(int64_t count) { return count >= 0 && count <= kMaxTokens; }

absl::Status WrongCount(int64_t count, std::string_view path) {
  return InvalidAt(path, StrCat(count, " is out of range; must be in [0, 2^40]"));
}

// Whether the last position of the range is representable; then all before it are.
bool LastFits(const PositionSource::AxisSteps& steps) {
  if (steps.count < 2) return true;
  Int128 last = 0;
  return !__builtin_mul_overflow(ToFixed(steps.step), Int128{steps.count - 1}, &last) &&
         !__builtin_add_overflow(last, ToFixed(steps.start), &last);
}

absl::Status WrongReal(double x, std::string_view path) {
  return InvalidAt(path, StrCat(x, "; must be finite and below 2^63 in magnitude"));
}

// `path` and `part` are the path of the range. Ranges come with every call, so they are joined only
// for errors.
absl::StatusOr<PositionSource::AxisSteps> MakeSteps(const AxisRange& range, std::string_view path,
                                                    std::string_view part) {
  const auto* const integer = std::get_if<IntegerRange>(&range);
  const auto at = [&](std::string_view field) {
    return StrCat(path, part, integer != nullptr ? ".integer" : ".real", field);
  };
  PositionSource::AxisSteps steps;
  if (integer != nullptr) {
    steps = {{integer->start, 0}, {integer->step, 0}, integer->count};
  } else {
    const RealRange& real = std::get<RealRange>(range);
    if (!PositionFromDouble(real.start, &steps.start)) return WrongReal(real.start, at(".start"));
    if (!PositionFromDouble(real.step, &steps.step)) return WrongReal(real.step, at(".step"));
    steps.count = real.count;
  }
  if (!IsCount(steps.count)) return WrongCount(steps.count, at(".count"));
  if (!LastFits(steps)) {
    return InvalidAt(at(""), "the last position leaves [-2^63, 2^63); must stay inside");
  }
  return steps;
}

absl::Status ManyAxes(int axes, std::string_view path) {
  return InvalidAt(
      path, StrCat("one axis, the spec has ", axes, "; must be a grid or a tensor with that many"));
}

absl::StatusOr<PositionSource> FromRange(const AxisRange& range, int axes, std::string_view path) {
  if (axes != 1) return ManyAxes(axes, StrCat(path, ".range"));
  PositionSource source;
  PHASOR_ASSIGN_OR_RETURN(source.grid[0], MakeSteps(range, path, ".range"));
  source.tokens = source.grid[0].count;
  return source;
}

absl::StatusOr<PositionSource> FromGrid(const PositionGrid& grid, int axes, std::string_view path) {
  if (static_cast<int64_t>(grid.axes.size()) != axes) {
    return InvalidAt(StrCat(path, ".axes"),
                     StrCat(grid.axes.size(), " axes, the spec has ", axes, "; must be equal"));
  }
  PositionSource source;
  source.axes = axes;
  source.tokens = 1;
  for (int a = 0; a < axes; ++a) {
    const std::string axis_path = StrCat(path, ".axes[", a, "]");
    PHASOR_ASSIGN_OR_RETURN(source.grid[a], MakeSteps(grid.axes[a], axis_path, ""));
  }
  // The product cannot overflow: a zero count makes it zero, whatever the other counts are.
  for (int a = 0; a < axes; ++a) {
    if (source.grid[a].count == 0) source.tokens = 0;
  }
  for (int a = 0; a < axes && source.tokens > 0; ++a) {
    if (__builtin_mul_overflow(source.tokens, source.grid[a].count, &source.tokens) ||
        source.tokens > kMaxTokens) {
      return InvalidAt(path, "more than 2^40 positions; must be at most 2^40");
    }
  }
  return source;
}

// Says what is wrong with a sequence that comes after `before` tokens; empty if nothing is.
std::string_view SequenceError(int64_t length, int64_t offset, int64_t before) {
  if (length < 0 || length > kMaxTokens) return " is out of range; must be in [0, 2^40]";
  if (before + length > kMaxTokens) return " makes more than 2^40 positions; must be at most 2^40";
  if (length > 0 && offset > std::numeric_limits<int64_t>::max() - (length - 1)) {
    return " leads the last position out of [-2^63, 2^63); must stay inside";
  }
  return "";
}

absl::StatusOr<PositionSource> FromRagged(const RaggedPositions& ragged, int axes,
                                          std::string_view path) {
  if (axes != 1) return ManyAxes(axes, path);
  const size_t sequences = ragged.lengths.size();
  if (!ragged.offsets.empty() && ragged.offsets.size() != sequences) {
    return InvalidAt(StrCat(path, ".offsets"),
                     StrCat(ragged.offsets.size(), " entries; must be none or as many as lengths (",
                            sequences, ")"));
  }
  PositionSource source;
  source.kind = PositionSource::Kind::kRagged;
  source.starts.reserve(sequences);
  source.ends.reserve(sequences);
  for (size_t s = 0; s < sequences; ++s) {
    const int64_t length = ragged.lengths[s];
    const int64_t offset = ragged.offsets.empty() ? 0 : ragged.offsets[s];
    if (const std::string_view wrong = SequenceError(length, offset, source.tokens);
        !wrong.empty()) {
      return InvalidAt(StrCat(path, ".lengths[", s, "]"), StrCat(length, wrong));
    }
    if (length == 0) continue;
    // May wrap for offsets near -2^63. Adding the token's index wraps back.
    source.starts.push_back(
        static_cast<int64_t>(static_cast<uint64_t>(offset) - static_cast<uint64_t>(source.tokens)));
    source.tokens += length;
    source.ends.push_back(source.tokens);
  }
  return source;
}

absl::Status CheckPositionDtype(Dtype dtype, std::string_view path) {
  switch (dtype) {
    case Dtype::kFloat64:
    case Dtype::kFloat32:
    case Dtype::kInt32:
    case Dtype::kInt64:
      return absl::OkStatus();
    case Dtype::kBFloat16:
      return InvalidAt(
          path, "BFLOAT16 cannot hold position 257; must be INT32, INT64, FLOAT32 or FLOAT64");
    case Dtype::kFloat16:
      return InvalidAt(
          path, "FLOAT16 cannot hold position 2049; must be INT32, INT64, FLOAT32 or FLOAT64");
    case Dtype::kFloat8E4M3:
    case Dtype::kFloat8E5M2:
      break;
  }
  return InvalidAt(path, StrCat(Name(dtype), "; must be INT32, INT64, FLOAT32 or FLOAT64"));
}

absl::StatusOr<PositionSource> FromTensor(const PositionTensor& tensor, int axes,
                                          std::string_view path) {
  PHASOR_RETURN_IF_ERROR(CheckPositionDtype(tensor.dtype, StrCat(path, ".dtype")));
  const std::string shape_path = StrCat(path, ".shape");
  const size_t trailing = axes > 1 ? 1 : 0;
  const size_t rank = tensor.shape.size();
  if (rank != 1 + trailing && rank != 2 + trailing) {
    return InvalidAt(shape_path, StrCat(rank, " dimensions; must be ",
                                        trailing ? "[tokens, axes] or [batch, tokens, axes]"
                                                 : "[tokens] or [batch, tokens]"));
  }
  for (size_t i = 0; i < rank; ++i) {
    if (!IsCount(tensor.shape[i])) {
      return WrongCount(tensor.shape[i], StrCat(shape_path, "[", i, "]"));
    }
  }
  if (trailing && tensor.shape.back() != axes) {
    return InvalidAt(StrCat(shape_path, "[", rank - 1, "]"),
                     StrCat(tensor.shape.back(), "; must be ", axes, ", the spec's axes"));
  }
  PositionSource source;
  source.kind = PositionSource::Kind::kTensor;
  source.axes = axes;
  source.dtype = tensor.dtype;
  source.batch = rank == 2 + trailing ? tensor.shape[0] : 1;
  source.tokens = tensor.shape[rank - 1 - trailing];
  int64_t count = 0;
  if (__builtin_mul_overflow(source.batch, source.tokens, &count) || count > kMaxTokens) {
    return InvalidAt(shape_path, "more than 2^40 positions; must be at most 2^40");
  }
  source.data_bytes = count * axes * SizeOf(source.dtype);
  return source;
}

// Reading ---------------------------------------------------------------------------------------

// Writes positions first..first+count-1 of one axis to every `stride`-th entry of `out`.
void ReadAxis(const PositionSource::AxisSteps& steps, int64_t first, int64_t count, int stride,
              Position* out) {
  const Position start = steps.start, step = steps.step;
  if (start.fraction == 0 && step.fraction == 0) {
    // May wrap on the way for large counts; the positions that are asked for are in range.
    const auto whole = static_cast<uint64_t>(start.whole);
    const auto by = static_cast<uint64_t>(step.whole);
    for (int64_t i = 0; i < count; ++i) {
      out[i * stride] = {static_cast<int64_t>(whole + by * static_cast<uint64_t>(first + i)), 0};
    }
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    out[i * stride] = PositionAlong(start, step, first + i);
  }
}

// Writes runs along the last axis; the positions on the other axes do not change within a run.
void ReadGrid(const PositionSource& source, int64_t first, int64_t count, Position* out) {
  const int last = source.axes - 1;
  for (int64_t t = first; t < first + count;) {
    const int64_t length = source.grid[last].count;
    const int64_t run = std::min(length - t % length, first + count - t);
    ReadAxis(source.grid[last], t % length, run, source.axes, out + last);
    int64_t rest = t / length;
    for (int a = last - 1; a >= 0; --a) {
      ReadAxis(source.grid[a], rest % source.grid[a].count, 1, 1, out + a);
      for (int64_t i = 1; i < run; ++i) out[i * source.axes + a] = out[a];
      rest /= source.grid[a].count;
    }
    out += run * source.axes;
    t += run;
  }
}

void ReadRagged(const PositionSource& source, int64_t first, int64_t count, Position* out) {
  size_t s = std::upper_bound(source.ends.begin(), source.ends.end(), first) - source.ends.begin();
  for (int64_t t = first; t < first + count; ++s) {
    const int64_t end = std::min(source.ends[s], first + count);
    const uint64_t start = static_cast<uint64_t>(source.starts[s]);
    for (; t < end; ++t) *out++ = {static_cast<int64_t>(start + static_cast<uint64_t>(t)), 0};
  }
}

template <typename T>
T Load(const std::byte* data, int64_t i) {
  T value;
  std::memcpy(&value, data + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

template <typename T>
void ReadIntegers(const std::byte* data, int64_t first, int64_t count, Position* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = {static_cast<int64_t>(Load<T>(data, first + i)), 0};
}

template <typename T>
void ReadReals(const std::byte* data, int64_t first, int64_t count, Position* out) {
  for (int64_t i = 0; i < count; ++i) {
    out[i] = {};
    PositionFromDouble(Load<T>(data, first + i), &out[i]);
  }
}

void ReadTensor(const PositionSource& source, int64_t first, int64_t count, Position* out) {
  switch (source.dtype) {
    case Dtype::kInt32:
      return ReadIntegers<int32_t>(source.data, first, count, out);
    case Dtype::kInt64:
      return ReadIntegers<int64_t>(source.data, first, count, out);
    case Dtype::kFloat32:
      return ReadReals<float>(source.data, first, count, out);
    case Dtype::kFloat64:
      return ReadReals<double>(source.data, first, count, out);
    case Dtype::kFloat16:
    case Dtype::kBFloat16:
    case Dtype::kFloat8E4M3:
    case Dtype::kFloat8E5M2:
      return;  // MakePositionSource refuses these types
  }
}

template <typename T>
absl::Status CheckReals(const PositionSource& source, std::string_view path) {
  const int64_t count = source.count() * source.axes;
  for (int64_t i = 0; i < count; ++i) {
    const T x = Load<T>(source.data, i);
    if (std::abs(x) < static_cast<T>(0x1p63)) continue;  // false for NaN
    return InvalidAt(
        StrCat(path, ".tensor"),
        StrCat("element ", i, " is ", x, "; must be finite and below 2^63 in magnitude"));
  }
  return absl::OkStatus();
}

// Sets the sequences of `slice` to those of tokens first..first+count-1, counted from `first`.
void SliceSequences(const PositionSource& source, int64_t first, int64_t count,
                    PositionSource* slice) {
  slice->ends.clear();
  slice->starts.clear();
  size_t s = std::upper_bound(source.ends.begin(), source.ends.end(), first) - source.ends.begin();
  for (int64_t end = 0; end < count; ++s) {
    end = std::min(source.ends[s] - first, count);
    slice->ends.push_back(end);
    slice->starts.push_back(static_cast<int64_t>(static_cast<uint64_t>(source.starts[s]) +
                                                 static_cast<uint64_t>(first)));
  }
}

}  // namespace

absl::StatusOr<PositionSource> MakePositionSource(const Positions& positions, int axes,
                                                  std::string_view path) {
  if (const auto* range = std::get_if<AxisRange>(&positions)) {
    return FromRange(*range, axes, path);
  }
  if (const auto* grid = std::get_if<PositionGrid>(&positions)) {
    return FromGrid(*grid, axes, StrCat(path, ".grid"));
  }
  if (const auto* ragged = std::get_if<RaggedPositions>(&positions)) {
    return FromRagged(*ragged, axes, StrCat(path, ".ragged"));
  }
  return FromTensor(std::get<PositionTensor>(positions), axes, StrCat(path, ".tensor"));
}

absl::Status CheckPositionValues(const PositionSource& source, std::string_view path) {
  if (source.kind != PositionSource::Kind::kTensor) return absl::OkStatus();
  if (source.dtype == Dtype::kFloat32) return CheckReals<float>(source, path);
  if (source.dtype == Dtype::kFloat64) return CheckReals<double>(source, path);
  return absl::OkStatus();
}

PositionSource SliceTokens(const PositionSource& source, int64_t first, int64_t count) {
  PositionSource slice;  // copied member by member: the source may have many sequences
  slice.kind = source.kind;
  slice.axes = source.axes;
  slice.tokens = count;
  slice.grid = source.grid;
  slice.dtype = source.dtype;
  switch (source.kind) {
    case PositionSource::Kind::kGrid:
      slice.first = source.first + first;
      break;
    case PositionSource::Kind::kRagged:
      SliceSequences(source, first, count, &slice);
      break;
    case PositionSource::Kind::kTensor: {
      const int64_t token_bytes = source.axes * SizeOf(source.dtype);
      if (source.data != nullptr) slice.data = source.data + first * token_bytes;
      slice.data_bytes = count * token_bytes;
      break;
    }
  }
  return slice;
}

void ReadPositions(const PositionSource& source, int64_t first, int64_t count, Position* out) {
  if (count == 0) return;
  switch (source.kind) {
    case PositionSource::Kind::kGrid:
      return ReadGrid(source, source.first + first, count, out);
    case PositionSource::Kind::kRagged:
      return ReadRagged(source, first, count, out);
    case PositionSource::Kind::kTensor:
      return ReadTensor(source, first * source.axes, count * source.axes, out);
  }
}

}  // namespace phasor
