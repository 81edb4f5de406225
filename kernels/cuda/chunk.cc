// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/chunk.h"

#include <algorithm>
#include <utility>
#include <variant>

namespace phasor::cuda {
namespace {

// Tensors in a buffer start here; the memory that drivers give is aligned to it.
constexpr int64_t kTensorAlignment = 256;

std::byte* Mutable(const std::byte* p) { return const_cast<std::byte*>(p); }

int64_t BytesOf(const std::vector<HostRows>& tensors, int64_t count) {
  int64_t bytes = 0;
  for (const HostRows& rows : tensors) bytes += AlignUp(count * rows.row_bytes(), kTensorAlignment);
  return bytes;
}

int64_t RowBytesOf(const std::vector<HostRows>& tensors) {
  int64_t bytes = 0;
  for (const HostRows& rows : tensors) bytes += rows.row_bytes();
  return bytes;
}

// At most so many bytes of positions go with a row: coordinates of a tensor, or a sequence's end
// and start.
int64_t PositionBytes(const PositionSource& source) {
  return std::max<int64_t>(16, source.axes * SizeOf(source.dtype));
}

int64_t PositionBytes(const Job& job) {
  if (const auto* encode = std::get_if<EncodeJob>(&job)) return PositionBytes(*encode->positions);
  if (const auto* lookup = std::get_if<LookupJob>(&job)) return PositionBytes(*lookup->positions);
  if (const auto* bias = std::get_if<BiasJob>(&job)) return PositionBytes(*bias->queries);
  const auto& rotary = std::get<RotaryJob>(job);
  return PositionBytes(*rotary.positions) +
         (rotary.is_delta() ? PositionBytes(*rotary.from_positions) : 0);
}

HostRows DenseRows(const std::byte* base, int64_t row_stride, int64_t bytes) {
  HostRows rows;
  rows.base = Mutable(base);
  rows.tokens = int64_t{1} << 62;
  rows.row_stride = row_stride;
  rows.bytes = bytes;
  return rows;
}

// Where a tensor is read: gathered pieces are in y.
std::pair<const std::byte*, RotaryStrides> SourceOf(const RotaryTensor& tensor) {
  if (!tensor.pieces.empty()) return {tensor.y, tensor.y_strides};
  return {tensor.x, tensor.x_strides};
}

// Lanes of a head.
struct LaneRange {
  int64_t first = 0;
  int64_t count = 0;
};

// Those that travel: what rotates, or, where types differ, all.
LaneRange SentLanes(const RotaryJob& job, const RotaryTensor& tensor) {
  const ResolvedSpec& spec = job.plan->spec;
  if (tensor.float8 != Float8::kNone) return {0, spec.head_dim};
  return tensor.rotates ? LaneRange{spec.rotary_begin, spec.rotary_dim} : LaneRange{};
}

// Lanes of every head, of `size` bytes each.
HostRows LaneRows(const RotaryJob& job, const RotaryTensor& tensor, const std::byte* base,
                  const RotaryStrides& strides, LaneRange lanes, int64_t size) {
  return {Mutable(base) + lanes.first * size,
          std::max<int64_t>(job.tokens, 1),
          strides.batch,
          strides.token,
          tensor.heads,
          strides.head,
          lanes.count * size};
}
HostRows InputRows(const RotaryJob& job, const RotaryTensor& tensor, LaneRange lanes) {
  const auto [x, strides] = SourceOf(tensor);
  return LaneRows(job, tensor, x, strides, lanes, SizeOf(tensor.dtype));
}
HostRows OutputRows(const RotaryJob& job, const RotaryTensor& tensor, LaneRange lanes) {
  HostRows rows = LaneRows(job, tensor, tensor.y, tensor.y_strides, lanes, OutputSizeOf(tensor));
  rows.offsets = tensor.y_offsets;
  return rows;
}

// Lanes that did not travel and are not where they belong yet.
void CopyLanesApart(const RotaryJob& job, Slice slice) {
  for (const RotaryTensor& tensor : job.tensors) {
    if (SourceOf(tensor).first == tensor.y) continue;
    const LaneRange sent = SentLanes(job, tensor);
    const int64_t end = sent.first + sent.count;
    for (const LaneRange lanes :
         {LaneRange{0, sent.first}, LaneRange{end, job.plan->spec.head_dim - end}}) {
      if (lanes.count == 0) continue;
      CopyRows(InputRows(job, tensor, lanes), slice, OutputRows(job, tensor, lanes));
    }
  }
}

template <typename RowJob>
void SetRows(const RowJob& job, int64_t width, Chunk::Part& part) {
  const int64_t bytes = width * SizeOf(job.dtype);
  part.out = {DenseRows(job.out, job.out_row_bytes, bytes)};
  if (job.add_to != nullptr) part.in = {DenseRows(job.add_to, job.add_to_row_bytes, bytes)};
}

// Buffers of a part with one tensor in, at most, and one out.
RowBuffers BuffersOf(const Chunk::Part& part, std::byte* in, std::byte* out) {
  RowBuffers buffers;
  buffers.out = out;
  buffers.out_head_bytes = part.out[0].bytes;
  buffers.out_row_bytes = part.out[0].row_bytes();
  if (part.in.empty()) return buffers;
  buffers.add_to = in;
  buffers.add_to_head_bytes = part.in[0].bytes;
  buffers.add_to_row_bytes = part.in[0].row_bytes();
  return buffers;
}

// One item for all tensors of a type.
void AddRotaryItems(const Chunk::Part& part, std::byte* in, std::byte* out, LaunchList& list,
                    Arena& arena) {
  const auto& job = std::get<RotaryJob>(*part.job);
  using Type = std::pair<Dtype, bool>;  // and whether it becomes FLOAT8
  std::vector<std::pair<Type, std::vector<RotaryView>>> types;
  for (size_t i = 0; i < job.tensors.size(); ++i) {
    const HostRows& from = part.in[i];
    const HostRows& to = part.out[i];
    if (from.bytes == 0) continue;
    const RotaryTensor& tensor = job.tensors[i];
    const Type type{tensor.dtype, tensor.float8 != Float8::kNone};
    auto known = std::find_if(types.begin(), types.end(),
                              [&](const auto& other) { return other.first == type; });
    if (known == types.end()) known = types.insert(types.end(), {type, {}});
    RotaryView view{
        in, out, from.heads, {0, from.row_bytes(), from.bytes}, {0, to.row_bytes(), to.bytes}};
    view.float8 = tensor.float8;
    view.inv_scale = tensor.inv_scale;
    view.rotates = tensor.rotates;
    known->second.push_back(view);
    in += AlignUp(part.slice.count * from.row_bytes(), kTensorAlignment);
    out += AlignUp(part.slice.count * to.row_bytes(), kTensorAlignment);
  }
  const ResolvedSpec& spec = job.plan->spec;
  for (const auto& [type, views] : types) {
    const HeadLanes lanes =
        type.second ? HeadLanes{spec.rotary_begin, spec.head_dim - spec.rotary_dim} : HeadLanes{};
    const KernelId kernel = RotaryKernel(job, type.first, lanes, views);
    list.Add(kernel,
             MakeRotaryItem(job, part.slice, kernel, lanes, views, part.slice.count, arena));
  }
}

}  // namespace

bool IsInPlace(const Job& job) {
  if (const auto* encode = std::get_if<EncodeJob>(&job)) return encode->add_to == encode->out;
  if (const auto* lookup = std::get_if<LookupJob>(&job)) return lookup->add_to == lookup->out;
  if (const auto* bias = std::get_if<BiasJob>(&job)) return bias->add_to == bias->out;
  const auto& tensors = std::get<RotaryJob>(job).tensors;
  return std::any_of(tensors.begin(), tensors.end(), [](const RotaryTensor& tensor) {
    return tensor.pieces.empty() && tensor.x == tensor.y;
  });
}

Chunk::Part Chunk::MakePart(const Job& job) const {
  Part part;
  part.job = &job;
  if (const auto* encode = std::get_if<EncodeJob>(&job)) {
    SetRows(*encode, LayoutOf(*encode).width, part);
    part.program = CompileRow(LayoutOf(*encode));
  } else if (const auto* lookup = std::get_if<LookupJob>(&job)) {
    SetRows(*lookup, lookup->table->columns, part);
  } else if (const auto* bias = std::get_if<BiasJob>(&job)) {
    SetRows(*bias, bias->keys->count(), part);
    part.out[0].heads = bias->heads;
    part.out[0].head_stride = bias->out_head_bytes;
    if (!part.in.empty()) {
      part.in[0].heads = bias->heads;
      part.in[0].head_stride = bias->add_to_head_bytes;
    }
  } else {
    const auto& rotary = std::get<RotaryJob>(job);
    for (const RotaryTensor& tensor : rotary.tensors) {
      const LaneRange lanes = SentLanes(rotary, tensor);
      part.in.push_back(InputRows(rotary, tensor, lanes));
      part.out.push_back(OutputRows(rotary, tensor, lanes));
    }
  }
  return part;
}

void Chunk::AddItems(const Part& part, std::byte* in, std::byte* out, LaunchList& list,
                     Arena& arena) {
  const Job& job = *part.job;
  if (const auto* encode = std::get_if<EncodeJob>(&job)) {
    list.Add(EncodeKernel(*encode),
             MakeEncodeItem(*encode, part.program, part.slice, BuffersOf(part, in, out), arena));
  } else if (const auto* lookup = std::get_if<LookupJob>(&job)) {
    list.Add(LookupKernel(*lookup),
             MakeLookupItem(*lookup, part.slice, BuffersOf(part, in, out), arena));
  } else if (const auto* bias = std::get_if<BiasJob>(&job)) {
    list.Add(BiasKernel(*bias), MakeBiasItem(*bias, part.slice, BuffersOf(part, in, out), arena));
  } else {
    AddRotaryItems(part, in, out, list, arena);
  }
}

// What items, tables and positions of a part take, were it alone.
int64_t Chunk::ArenaBytes(const Part& part) const {
  Arena count;
  LaunchList list;
  auto* const anywhere = reinterpret_cast<std::byte*>(kTensorAlignment);
  AddItems(part, anywhere, anywhere, list, count);
  list.Finish(count);
  return count.used();
}

int64_t Chunk::Add(const Job& job, int64_t first) {
  Part part = MakePart(job);
  part.slice = SliceFrom(job, first, 1);
  const int64_t arena_of_one = ArenaBytes(part);
  const auto fixed = static_cast<int64_t>(part.in.size() + 1) * kTensorAlignment + arena_of_one;
  const int64_t in_left = capacity_ - in_bytes() - fixed;
  const int64_t out_left =
      capacity_ - out_bytes() - static_cast<int64_t>(part.out.size()) * kTensorAlignment;
  const int64_t most = std::min(in_left / (RowBytesOf(part.in) + PositionBytes(job)),
                                out_left / std::max<int64_t>(RowBytesOf(part.out), 1));
  if (in_left < 0 || out_left < 0 || most < 1) return 0;
  part.slice = SliceFrom(job, first, most);
  part.in_at = in_used_;
  part.out_at = out_used_;
  in_used_ += BytesOf(part.in, part.slice.count);
  out_used_ += BytesOf(part.out, part.slice.count);
  arena_bytes_ += ArenaBytes(part);
  const int64_t rows = part.slice.count;
  parts_.push_back(std::move(part));
  return rows;
}

std::vector<Launch> Chunk::Stage(std::byte* in, std::byte* device_in, std::byte* device_out) const {
  LaunchList list;
  Arena arena(in + in_used_, device_in + in_used_, arena_bytes_);
  for (const Part& part : parts_) {
    int64_t at = part.in_at;
    for (const HostRows& rows : part.in) {
      Gather(rows, part.slice, in + at);
      at += AlignUp(part.slice.count * rows.row_bytes(), kTensorAlignment);
    }
    AddItems(part, device_in + part.in_at, device_out + part.out_at, list, arena);
  }
  return list.Finish(arena);
}

void Chunk::Finish(const Part& part, const std::byte* out) {
  int64_t at = part.out_at;
  for (const HostRows& rows : part.out) {
    Scatter(out + at, part.slice, rows);
    at += AlignUp(part.slice.count * rows.row_bytes(), kTensorAlignment);
  }
  if (const auto* rotary = std::get_if<RotaryJob>(part.job)) CopyLanesApart(*rotary, part.slice);
}

}  // namespace phasor::cuda
