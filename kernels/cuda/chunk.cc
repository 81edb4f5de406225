// SPDX-License-Identifier: Apache-2.0
// Decides how many rows fit in a chunk, packs their tensors and makes the items of the kernels.
#include "kernels/cuda/chunk.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "kernels/cuda/key_items.h"

namespace phasor::cuda {
namespace {

// Every tensor in a buffer is aligned to this, as is the memory that drivers give.
constexpr int64_t kTensorAlignment = 256;

// The bytes that `count` rows take in a buffer.
int64_t PackedBytes(const HostRows& rows, int64_t count) {
  return rows.on_device ? 0 : AlignUp(count * rows.row_bytes(), kTensorAlignment);
}

int64_t BytesOf(const std::vector<HostRows>& tensors, int64_t count) {
  int64_t bytes = 0;
  for (const HostRows& rows : tensors) bytes += PackedBytes(rows, count);
  return bytes;
}

int64_t RowBytesOf(const std::vector<HostRows>& tensors) {
  int64_t bytes = 0;
  for (const HostRows& rows : tensors) bytes += rows.on_device ? 0 : rows.row_bytes();
  return bytes;
}

// An upper bound on the bytes of positions per row: the coordinates of a tensor, or the end and
// start of a sequence.
int64_t PositionBytes(const PositionSource& source) {
  return std::max<int64_t>(16, source.axes * SizeOf(source.dtype));
}

// The properties that all tensors of one rotary item share.
struct ItemType {
  Dtype dtype;
  bool float8;
  friend bool operator==(const ItemType&, const ItemType&) = default;
};
ItemType TypeOf(const RotaryTensor& tensor) {
  return {tensor.dtype, tensor.float8 != Float8::kNone};
}

// An upper bound on the bytes that a row needs besides those of its tensors: positions, once for
// each item, and offsets in caches.
int64_t BesideRowBytes(const RotaryJob& job, const JobRows& rows) {
  int64_t positions = PositionBytes(*job.positions);
  if (job.is_delta()) positions += PositionBytes(*job.from_positions);
  int64_t bytes = 0;
  std::vector<ItemType> before;
  for (size_t i = 0; i < job.tensors.size(); ++i) {
    const ItemType type = TypeOf(job.tensors[i]);
    if (std::count(before.begin(), before.end(), type) % kMostViews == 0) bytes += positions;
    before.push_back(type);
    if (rows.out[i].on_device && rows.out[i].offsets != nullptr) bytes += sizeof(int64_t);
  }
  return bytes;
}

int64_t BesideRowBytes(const Job& job, const JobRows& rows) {
  if (const auto* encode = std::get_if<EncodeJob>(&job)) return PositionBytes(*encode->positions);
  if (const auto* lookup = std::get_if<LookupJob>(&job)) return PositionBytes(*lookup->positions);
  if (const auto* bias = std::get_if<BiasJob>(&job)) return PositionBytes(*bias->queries);
  if (std::holds_alternative<MoveJob>(job)) return 1;  // see Add
  return BesideRowBytes(std::get<RotaryJob>(job), rows);
}

// Copies the lanes that did not travel and are not in place yet.
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

// A slice as kernels see it: in place if it is on the device, else packed at `packed`.
struct SliceView {
  std::byte* base = nullptr;
  ViewStrides strides;
};

// `tokens`: the rows of one batch entry in packed memory.
SliceView ViewOf(const HostRows& rows, Slice slice, int64_t tokens, std::byte* packed) {
  if (!rows.on_device) return {packed, {tokens * rows.row_bytes(), rows.row_bytes(), rows.bytes}};
  std::byte* const base = rows.offsets != nullptr ? rows.base : RowOf(rows, slice.first);
  return {base, {rows.batch_stride, rows.row_stride, rows.head_stride}};
}

// The buffers of a part that has at most one input tensor, and one output.
RowBuffers BuffersOf(const Chunk::Part& part, std::byte* in, std::byte* out) {
  RowBuffers buffers;
  const SliceView y = ViewOf(part.rows.out[0], part.slice, 0, out);
  buffers.out = y.base;
  buffers.out_head_bytes = y.strides.head;
  buffers.out_row_bytes = y.strides.token;
  if (part.rows.in.empty()) return buffers;
  const SliceView x = ViewOf(part.rows.in[0], part.slice, 0, in);
  buffers.add_to = x.base;
  buffers.add_to_head_bytes = x.strides.head;
  buffers.add_to_row_bytes = x.strides.token;
  return buffers;
}

// Tensor i of a part. `tokens` as in ViewOf.
RotaryView RotaryViewOf(const Chunk::Part& part, size_t i, int64_t tokens, std::byte* in,
                        std::byte* out, Arena& arena) {
  const RotaryTensor& tensor = std::get<RotaryJob>(*part.job).tensors[i];
  const HostRows& to = part.rows.out[i];
  const SliceView x = ViewOf(part.rows.in[i], part.slice, tokens, in);
  const SliceView y = ViewOf(to, part.slice, tokens, out);
  RotaryView view;
  view.x = x.base;
  view.y = y.base;
  view.heads = static_cast<int32_t>(tensor.heads);
  view.x_strides = x.strides;
  view.y_strides = y.strides;
  if (to.on_device && to.offsets != nullptr) {
    view.y_offsets = arena.Put(
        absl::MakeConstSpan(to.offsets + part.slice.first, static_cast<size_t>(part.slice.count)));
  }
  view.float8 = tensor.float8;
  view.inv_scale = tensor.inv_scale;
  view.rotates = tensor.rotates;
  return view;
}

// Adds an item for up to kMostViews tensors of an ItemType.
void AddRotaryItems(const Chunk::Part& part, std::byte* in, std::byte* out, LaunchList& list,
                    ItemMaker maker) {
  const auto& job = std::get<RotaryJob>(*part.job);
  const ResolvedSpec& spec = job.plan->spec;
  const bool whole_heads = part.rows.whole_heads;
  // A packed slice is one batch entry, unless whole heads keep the job's own order of rows.
  const int64_t tokens = whole_heads ? std::max<int64_t>(job.tokens, 1) : part.slice.count;
  std::vector<std::pair<ItemType, std::vector<RotaryView>>> types;
  for (size_t i = 0; i < job.tensors.size(); ++i) {
    if (part.rows.in[i].bytes == 0) continue;
    const ItemType type = TypeOf(job.tensors[i]);
    auto known = std::find_if(types.begin(), types.end(), [&](const auto& other) {
      return other.first == type && other.second.size() < kMostViews;
    });
    if (known == types.end()) known = types.insert(types.end(), {type, {}});
    known->second.push_back(RotaryViewOf(part, i, tokens, in, out, maker.arena));
    in += PackedBytes(part.rows.in[i], part.slice.count);
    out += PackedBytes(part.rows.out[i], part.slice.count);
  }
  for (const auto& [type, views] : types) {
    HeadLanes lanes;
    if (whole_heads || type.float8) lanes = {spec.rotary_begin, spec.head_dim - spec.rotary_dim};
    const KernelId kernel = RotaryKernel(job, part.slice, type.dtype, lanes, views, tokens);
    list.Add(kernel, MakeRotaryItem(job, part.slice, kernel, lanes, views, tokens, maker));
  }
}

}  // namespace

Chunk::Part Chunk::MakePart(const Job& job) const {
  Part part;
  part.job = &job;
  part.rows = RowsOfTensors(job, memory_);
  if (const auto* encode = std::get_if<EncodeJob>(&job)) {
    part.program = CompileRow(LayoutOf(*encode));
  }
  return part;
}

void Chunk::AddItems(const Part& part, std::byte* in, std::byte* out, LaunchList& list,
                     ItemMaker maker) {
  const Job& job = *part.job;
  if (const auto* encode = std::get_if<EncodeJob>(&job)) {
    list.Add(EncodeKernel(*encode),
             MakeEncodeItem(*encode, part.program, part.slice, BuffersOf(part, in, out), maker));
  } else if (const auto* lookup = std::get_if<LookupJob>(&job)) {
    list.Add(LookupKernel(*lookup),
             MakeLookupItem(*lookup, part.slice, BuffersOf(part, in, out), maker));
  } else if (const auto* bias = std::get_if<BiasJob>(&job)) {
    list.Add(BiasKernel(*bias), MakeBiasItem(*bias, part.slice, BuffersOf(part, in, out), maker));
  } else if (const auto* move = std::get_if<MoveJob>(&job)) {
    AddKeyItems(*move, part.slice, out, list, maker);
  } else {
    AddRotaryItems(part, in, out, list, maker);
  }
}

// The bytes of a part's items, tables and positions, if the part were alone.
int64_t Chunk::ArenaBytes(const Part& part) const {
  Arena count;
  LaunchList list;
  auto* const anywhere = reinterpret_cast<std::byte*>(kTensorAlignment);
  AddItems(part, anywhere, anywhere, list, {count, processors_});
  list.Finish(count, nullptr);
  return count.used();
}

// How many rows of `job` from `first` on there is room for; `part` describes the first.
int64_t Chunk::RoomFor(const Job& job, const Part& part, int64_t first) const {
  const auto fixed =
      static_cast<int64_t>(part.rows.in.size() + 1) * kTensorAlignment + ArenaBytes(part);
  const int64_t in_left = capacity_ - in_bytes() - fixed;
  const int64_t out_left =
      capacity_ - out_used_ - static_cast<int64_t>(part.rows.out.size()) * kTensorAlignment;
  if (in_left < 0 || out_left < 0) return 0;
  int64_t most = std::min(in_left / (RowBytesOf(part.rows.in) + BesideRowBytes(job, part.rows)),
                          out_left / std::max<int64_t>(RowBytesOf(part.rows.out), 1));
  if (const auto* move = std::get_if<MoveJob>(&job)) {
    const int64_t keys = (kMovedPerCapacity * capacity_ - moved_bytes_) / TokenBytes(*move, first);
    most = std::min(most, moved_bytes_ == 0 ? std::max<int64_t>(keys, 1) : keys);
  }
  return most;
}

int64_t Chunk::Add(const Job& job, int64_t first) {
  Part part = MakePart(job);
  part.slice = SliceFrom(job, first, 1);
  const int64_t most = RoomFor(job, part, first);
  if (most < 1) return 0;
  part.slice = SliceFrom(job, first, most);
  int64_t arena_bytes = ArenaBytes(part);
  // The items of a move depend on its tokens.
  for (; std::holds_alternative<MoveJob>(job) && in_bytes() + arena_bytes > capacity_;
       arena_bytes = ArenaBytes(part)) {
    if (part.slice.count == 1) return 0;
    part.slice.count /= 2;
  }
  part.in_at = in_used_;
  part.out_at = out_used_;
  in_used_ += BytesOf(part.rows.in, part.slice.count);
  out_used_ += BytesOf(part.rows.out, part.slice.count);
  arena_bytes_ += arena_bytes;
  const int64_t rows = part.slice.count;
  if (const auto* move = std::get_if<MoveJob>(&job)) {
    moved_bytes_ += rows * TokenBytes(*move, first);
  }
  parts_.push_back(std::move(part));
  return rows;
}

std::vector<Launch> Chunk::Stage(std::byte* in, std::byte* device_in, std::byte* device_out) const {
  LaunchList list;
  Arena arena(in + in_used_, arena_bytes_);
  for (const Part& part : parts_) {
    int64_t at = part.in_at;
    for (const HostRows& rows : part.rows.in) {
      if (!rows.on_device) Gather(rows, part.slice, in + at);
      at += PackedBytes(rows, part.slice.count);
    }
    AddItems(part, device_in + part.in_at, device_out + part.out_at, list, {arena, processors_});
  }
  return list.Finish(arena, device_in + in_used_);
}

Trip Chunk::StageIn(const Slot& slot) const {
  return {slot.host_in,    slot.device_in,
          sent_bytes(),    Stage(slot.host_in, slot.device_in, slot.device_out),
          slot.device_out, slot.host_out,
          out_bytes()};
}

void Chunk::Finish(const Part& part, const std::byte* out) {
  int64_t at = part.out_at;
  if (const auto* move = std::get_if<MoveJob>(part.job)) {
    if (move->mode == MoveMode::kCompare) AddResults(*move, part.slice, out + at);
    return;
  }
  for (const HostRows& rows : part.rows.out) {
    if (!rows.on_device) Scatter(out + at, part.slice, rows);
    at += PackedBytes(rows, part.slice.count);
  }
  const auto* const rotary = std::get_if<RotaryJob>(part.job);
  if (rotary != nullptr && !part.rows.whole_heads) CopyLanesApart(*rotary, part.slice);
}

}  // namespace phasor::cuda
