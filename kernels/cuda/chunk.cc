// SPDX-License-Identifier: Apache-2.0
// Decides how many rows fit in a chunk, packs their tensors and makes the items of the kernels.
#include "kernels/cuda/chunk.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "kernels/base/status_macros.h"
#include "kernels/cuda/key_items.h"
#include "kernels/cuda/launch.h"

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

// An upper bound on what the items of a slice take in an arena.
struct ArenaBound {
  int64_t fixed = 0;
  int64_t row = 0;  // for each row of the slice

  void Put(int64_t bytes) { fixed += AlignUp(bytes, kArenaAlignment); }
  template <typename T>
  void Put(const std::vector<T>& values) {
    Put(static_cast<int64_t>(values.size() * sizeof(T)));
  }
  void PutItem(size_t size) {
    Put(static_cast<int64_t>(size));
    Put(sizeof(int64_t));  // the number of its first block
  }
  void PutTurns(const Plan& plan) {
    Put(plan.frequency);
    Put(plan.axis);
    Put(plan.offset);
    if (plan.xpos.has_value()) Put(plan.xpos->rate);
  }
  void PutPositions(const PositionSource& source) {
    Put(source.axes * static_cast<int64_t>(sizeof(AxisSteps)) + kArenaAlignment);
    if (source.kind == PositionSource::Kind::kRagged) row += 2 * int64_t{sizeof(int64_t)};
    if (source.kind == PositionSource::Kind::kTensor) row += source.axes * SizeOf(source.dtype);
  }
};

// The properties that all tensors of one rotary item share.
struct ItemType {
  Dtype dtype;
  bool float8;
  friend bool operator==(const ItemType&, const ItemType&) = default;
};
ItemType TypeOf(const RotaryTensor& tensor) {
  return {tensor.dtype, tensor.float8 != Float8::kNone};
}

ArenaBound BoundOf(const RotaryJob& job, const JobRows& rows) {
  ArenaBound bound;
  std::vector<ItemType> before;
  for (size_t i = 0; i < job.tensors.size(); ++i) {
    if (rows.out[i].on_device && rows.out[i].offsets != nullptr) {
      bound.Put(kArenaAlignment);
      bound.row += sizeof(int64_t);
    }
    const ItemType type = TypeOf(job.tensors[i]);
    const auto same = std::count(before.begin(), before.end(), type);
    before.push_back(type);
    if (same % kMostViews != 0) continue;  // of an item that has one of them already
    bound.PutItem(sizeof(RotaryItem));
    bound.PutTurns(*job.plan);
    bound.PutPositions(*job.positions);
    if (!job.is_delta()) continue;
    bound.PutTurns(*job.from_plan);
    bound.PutPositions(*job.from_positions);
  }
  return bound;
}

// The bound of a part whose slice is not known yet. Those of moves are counted (see Add).
ArenaBound BoundOf(const Chunk::Part& part) {
  if (const auto* rotary = std::get_if<RotaryJob>(part.job)) return BoundOf(*rotary, *part.rows);
  ArenaBound bound;
  if (const auto* encode = std::get_if<EncodeJob>(part.job)) {
    bound.PutItem(sizeof(EncodeItem));
    bound.PutTurns(*encode->plan);
    bound.PutPositions(*encode->positions);
    bound.Put(part.program.unit_begin);
    bound.Put(part.program.steps);
  } else if (const auto* lookup = std::get_if<LookupJob>(part.job)) {
    bound.PutItem(sizeof(LookupItem));
    bound.PutPositions(*lookup->positions);
    bound.Put(lookup->table->bytes());
  } else if (const auto* bias = std::get_if<BiasJob>(part.job)) {
    const BiasRule& rule = *bias->rule;
    bound.PutPositions(*bias->keys);
    bound = {bound.fixed + bound.row * bias->keys->count(), 0};  // all of them, for any row
    bound.PutItem(sizeof(BiasItem));
    bound.PutPositions(*bias->queries);
    bound.Put(rule.buckets.thresholds());
    bound.Put(rule.slopes);
    bound.Put(bias->table == nullptr ? 0
                                     : rule.table_rows * bias->heads * SizeOf(bias->table_dtype));
  } else {
    bound.row = 1;
  }
  return bound;
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
  const SliceView y = ViewOf(part.rows->out[0], part.slice, 0, out);
  buffers.out = y.base;
  buffers.out_head_bytes = y.strides.head;
  buffers.out_row_bytes = y.strides.token;
  if (part.rows->in.empty()) return buffers;
  const SliceView x = ViewOf(part.rows->in[0], part.slice, 0, in);
  buffers.add_to = x.base;
  buffers.add_to_head_bytes = x.strides.head;
  buffers.add_to_row_bytes = x.strides.token;
  return buffers;
}

// Tensor i of a part. `tokens` as in ViewOf.
RotaryView RotaryViewOf(const Chunk::Part& part, size_t i, int64_t tokens, std::byte* in,
                        std::byte* out, Arena& arena) {
  const RotaryTensor& tensor = std::get<RotaryJob>(*part.job).tensors[i];
  const HostRows& to = part.rows->out[i];
  const SliceView x = ViewOf(part.rows->in[i], part.slice, tokens, in);
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
  const bool whole_heads = part.rows->whole_heads;
  // A packed slice is one batch entry, unless whole heads keep the job's own order of rows.
  const int64_t tokens = whole_heads ? std::max<int64_t>(job.tokens, 1) : part.slice.count;
  std::vector<std::pair<ItemType, std::vector<RotaryView>>> types;
  for (size_t i = 0; i < job.tensors.size(); ++i) {
    if (part.rows->in[i].bytes == 0) continue;
    const ItemType type = TypeOf(job.tensors[i]);
    auto known = std::find_if(types.begin(), types.end(), [&](const auto& other) {
      return other.first == type && other.second.size() < kMostViews;
    });
    if (known == types.end()) known = types.insert(types.end(), {type, {}});
    known->second.push_back(RotaryViewOf(part, i, tokens, in, out, maker.arena));
    in += PackedBytes(part.rows->in[i], part.slice.count);
    out += PackedBytes(part.rows->out[i], part.slice.count);
  }
  for (const auto& [type, views] : types) {
    HeadLanes lanes;
    if (whole_heads || type.float8) lanes = {spec.rotary_begin, spec.head_dim - spec.rotary_dim};
    const KernelId kernel = RotaryKernel(job, part.slice, type.dtype, lanes, views, tokens);
    list.Add(kernel, MakeRotaryItem(job, part.slice, kernel, lanes, views, tokens, maker));
  }
}

}  // namespace

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
int64_t Chunk::CountArena(const Part& part) const {
  Arena count;
  LaunchList list;
  auto* const anywhere = reinterpret_cast<std::byte*>(kTensorAlignment);
  AddItems(part, anywhere, anywhere, list, {count, processors_});
  list.Finish(count, nullptr);
  return count.used();
}

int64_t Chunk::Add(const Job& job, const JobRows& rows, int64_t first) {
  Part part{&job, &rows, {}, {}, in_used_, out_used_};
  if (const auto* encode = std::get_if<EncodeJob>(&job)) {
    part.program = CompileRow(LayoutOf(*encode));
  }
  const ArenaBound bound = BoundOf(part);
  const auto gaps = [](const std::vector<HostRows>& tensors) {
    return static_cast<int64_t>(tensors.size()) * kTensorAlignment;
  };
  const int64_t in_left = capacity_ - in_bytes() - gaps(rows.in) - bound.fixed;
  const int64_t out_left = capacity_ - out_used_ - gaps(rows.out);
  if (in_left < 0 || out_left < 0) return 0;
  int64_t most = std::min(in_left / std::max<int64_t>(RowBytesOf(rows.in) + bound.row, 1),
                          out_left / std::max<int64_t>(RowBytesOf(rows.out), 1));
  const auto* const move = std::get_if<MoveJob>(&job);
  if (move != nullptr) {
    const int64_t keys = (kMovedPerCapacity * capacity_ - moved_bytes_) / TokenBytes(*move, first);
    most = std::min(most, moved_bytes_ == 0 ? std::max<int64_t>(keys, 1) : keys);
  }
  if (most < 1) return 0;
  part.slice = SliceFrom(job, first, most);
  int64_t arena_bytes = bound.fixed + bound.row * part.slice.count;
  if (move != nullptr) {  // whose items depend on its tokens
    while ((arena_bytes = CountArena(part)) + in_bytes() > capacity_) {
      if (part.slice.count == 1) return 0;
      part.slice.count /= 2;
    }
    moved_bytes_ += part.slice.count * TokenBytes(*move, first);
  }
  in_used_ += BytesOf(rows.in, part.slice.count);
  out_used_ += BytesOf(rows.out, part.slice.count);
  arena_bytes_ += arena_bytes;
  parts_.push_back(std::move(part));
  return parts_.back().slice.count;
}

std::vector<Launch> Chunk::Stage(std::byte* in, std::byte* device_in, std::byte* device_out) const {
  LaunchList list;
  Arena arena(in + in_used_, arena_bytes_);
  const int processors = ShareOf(processors_, parts_.size());
  for (const Part& part : parts_) {
    int64_t at = part.in_at;
    for (const HostRows& rows : part.rows->in) {
      if (!rows.on_device) Gather(rows, part.slice, in + at);
      at += PackedBytes(rows, part.slice.count);
    }
    AddItems(part, device_in + part.in_at, device_out + part.out_at, list, {arena, processors});
  }
  return list.Finish(arena, device_in + in_used_);
}

absl::Status Chunk::Queue(const Slot& slot, Driver& driver, int64_t* launched) const {
  const std::vector<Launch> launches = Stage(slot.host_in, slot.device_in, slot.device_out);
  const int64_t arena = launches.empty() ? 0 : launches[0].batch.arena_bytes;
  const int64_t sent = in_used_ + (arena > kInlineBytes ? arena : 0);
  *launched = 0;
  if (sent > 0) {
    PHASOR_RETURN_IF_ERROR(driver.CopyToDevice(slot.device_in, slot.host_in, sent, slot.stream));
  }
  for (const Launch& launch : launches) {
    PHASOR_RETURN_IF_ERROR(driver.Run(launch, slot.stream));
    ++*launched;
  }
  if (out_used_ == 0) return absl::OkStatus();
  return driver.CopyToHost(slot.host_out, slot.device_out, out_used_, slot.stream);
}

void Chunk::Finish(const Part& part, const std::byte* out) {
  int64_t at = part.out_at;
  if (const auto* move = std::get_if<MoveJob>(part.job)) {
    if (move->mode == MoveMode::kCompare) AddResults(*move, part.slice, out + at);
    return;
  }
  for (const HostRows& rows : part.rows->out) {
    if (!rows.on_device) Scatter(out + at, part.slice, rows);
    at += PackedBytes(rows, part.slice.count);
  }
  const auto* const rotary = std::get_if<RotaryJob>(part.job);
  if (rotary != nullptr && !part.rows->whole_heads) CopyLanesApart(*rotary, part.slice);
}

}  // namespace phasor::cuda
