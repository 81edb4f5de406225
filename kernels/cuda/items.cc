// SPDX-License-Identifier: Apache-2.0
// Makes the items of every op, and decides which jobs and layouts each kernel supports.
#include "kernels/cuda/items.h"

#include <algorithm>
#include <array>
#include <variant>
#include <vector>

#include "kernels/tensor/integer_positions.h"

namespace phasor::cuda {
namespace {

// Keeps the numbers of units and pairs far below 2^31.
constexpr int64_t kMostUnits = int64_t{1} << 24;

// With this many threads a launch fills any device; with fewer, heads are spread over more threads.
constexpr int64_t kManyUnits = 1 << 16;

template <typename T>
absl::Span<const T> SpanOf(const std::vector<T>& values) {
  return absl::MakeConstSpan(values);
}

// Positions ------------------------------------------------------------------------------------

void PutRagged(const PositionSource& source, Slice slice, ItemPositions& positions, Arena& arena) {
  std::vector<int64_t> ends, starts;
  size_t s = static_cast<size_t>(
      std::upper_bound(source.ends.begin(), source.ends.end(), slice.first) - source.ends.begin());
  for (int64_t t = slice.first; t < slice.first + slice.count; ++s) {
    if (source.ends[s] <= t) continue;  // empty
    ends.push_back(source.ends[s]);
    starts.push_back(source.starts[s]);
    t = source.ends[s];
  }
  positions.sequences = static_cast<int64_t>(ends.size());
  positions.ends = arena.Put(SpanOf(ends));
  positions.starts = arena.Put(SpanOf(starts));
}

// The positions of `slice` in the source; rows after it start again at its beginning.
ItemPositions MakePositions(const PositionSource& source, Slice slice, Arena& arena) {
  ItemPositions positions;
  positions.axes = source.axes;
  positions.period = MakeDivisor(slice.count);
  positions.first = slice.first;
  switch (source.kind) {
    case PositionSource::Kind::kGrid: {
      std::array<AxisSteps, kMaxAxes> grid;
      for (int a = 0; a < source.axes; ++a) {
        grid[a] = {source.grid[a].start, source.grid[a].step, MakeDivisor(source.grid[a].count)};
      }
      positions.kind = source.axes == 1 ? PositionKind::kRange : PositionKind::kGrid;
      positions.first += source.first;
      positions.range = grid[0];
      if (source.axes > 1) {
        positions.grid = arena.Put(absl::MakeConstSpan(grid.data(), source.axes));
      }
      break;
    }
    case PositionSource::Kind::kRagged:
      positions.kind = PositionKind::kRagged;
      PutRagged(source, slice, positions, arena);
      break;
    case PositionSource::Kind::kTensor: {
      const int64_t row_bytes = source.axes * SizeOf(source.dtype);
      positions.kind = PositionKind::kTensor;
      positions.dtype = source.dtype;
      positions.data =
          arena.PutBytes(source.data + slice.first * row_bytes, slice.count * row_bytes);
      break;
    }
  }
  return positions;
}

// The positions of a slice of tokens. Batch entries may share them.
ItemPositions MakeTokenPositions(const RotaryJob& job, const PositionSource& source, Slice slice,
                                 Arena& arena) {
  if (job.batch == 1 || source.batch != 1) return MakePositions(source, slice, arena);
  const int64_t first = slice.first % job.tokens;
  return MakePositions(source, {first, std::min(slice.count, job.tokens - first)}, arena);
}

// Plans ----------------------------------------------------------------------------------------

ItemTurns MakeTurns(const Plan& plan, Arena& arena) {
  ItemTurns turns;
  turns.pairs = plan.pairs;
  turns.layers =
      plan.pairs == 0
          ? 0
          : static_cast<int32_t>(static_cast<int64_t>(plan.frequency.size()) / plan.pairs);
  turns.frequency = arena.Put(SpanOf(plan.frequency));
  if (plan.spec.axes > 1) turns.axis = arena.Put(SpanOf(plan.axis));
  if (!plan.table.offset.empty()) turns.offset = arena.Put(SpanOf(plan.offset));
  if (plan.xpos.has_value()) {
    turns.xpos_rate = arena.Put(SpanOf(plan.xpos->rate));
    turns.xpos_center = plan.xpos->center;
    turns.xpos_inverse = plan.xpos->inverse;
  }
  return turns;
}

bool IsPlain(const Plan& plan) {
  return plan.spec.axes == 1 && static_cast<int64_t>(plan.frequency.size()) == plan.pairs &&
         !plan.xpos.has_value();
}

// What kernels support -------------------------------------------------------------------------

bool IsSupported(const EncodeJob& job) {
  return !job.plan->parity.has_value() && LayoutOf(job).width < kMostUnits &&
         job.plan->pairs < kMostUnits;
}

bool IsSupported(const LookupJob& job) { return job.table->columns < kMostUnits; }

// Whether the distance from any query to any key is below `limit`.
bool IsBelow(const BiasJob& job, int64_t limit) {
  const Interval q = IntervalOf(*job.queries, 0), k = IntervalOf(*job.keys, 0);
  return q.max - k.min < limit && k.max - q.min < limit;  // |positions| < 2^62
}

bool IsSupported(const BiasJob& job) {
  if (job.keys->count() >= kMostUnits) return false;
  if (job.rule->family != BiasFamily::kDeberta || RowsOf(job) == 0) return true;
  return IsBelow(job, job.rule->buckets.limit());
}

bool IsSupported(const RotaryJob& job) {
  if (job.plan->parity.has_value()) return false;
  int64_t heads = 0;
  for (const RotaryTensor& tensor : job.tensors) heads += tensor.heads;
  const int64_t lanes = job.plan->spec.head_dim;
  return heads < kMostUnits && lanes < kMostUnits && heads * lanes < kMostUnits;
}

// Biases ---------------------------------------------------------------------------------------

BiasKind KindOf(BiasFamily family) {
  switch (family) {
    case BiasFamily::kT5:
      return BiasKind::kBuckets;
    case BiasFamily::kClipped:
      return BiasKind::kClipped;
    case BiasFamily::kSwin:
      return BiasKind::kWindow;
    case BiasFamily::kAlibi:
      return BiasKind::kDistance;
    case BiasFamily::kDeberta:
      return BiasKind::kSignedBuckets;
    case BiasFamily::kAlibiKey:
      return BiasKind::kKey;
  }
  return BiasKind::kDistance;
}

// Encode ---------------------------------------------------------------------------------------

// `used` is false if columns are zero or added to, or if kVectorBytes cannot be stored at once.
WideRows WideRowsOf(const EncodeJob& job, const RowBuffers& buffers) {
  const RowLayout& layout = LayoutOf(job);
  WideRows wide;
  if (layout.blocks.size() != 1 || buffers.add_to != nullptr) return wide;
  const EncodeBlock& block = layout.blocks[0];
  const int64_t begin = std::min(block.sin_begin, block.cos_begin);
  const int64_t apart = std::max(block.sin_begin, block.cos_begin) - begin;
  const bool side_by_side = block.stride == 2 && apart == 1;
  const bool in_runs = block.stride == 1 && apart == block.pairs;
  if (begin != 0 || block.first_pair != 0 || layout.width != 2 * block.pairs) return wide;
  if ((!side_by_side && !in_runs) || block.accumulate || block.negate_sin) return wide;
  const auto out = static_cast<int64_t>(reinterpret_cast<uintptr_t>(buffers.out));
  const int64_t run_bytes = block.pairs * SizeOf(job.dtype);
  wide.used = (run_bytes | out | buffers.out_row_bytes) % kVectorBytes == 0;
  wide.side_by_side = side_by_side;
  wide.sin_first = block.sin_begin == 0;
  wide.pairs = block.pairs;
  return wide;
}

// Rotary ---------------------------------------------------------------------------------------

// Whether the views write 8-bit floats. All do or none.
bool IsFloat8(absl::Span<const RotaryView> views) {
  return !views.empty() && views[0].float8 != Float8::kNone;
}

// Whether units of kVectorBytes can be moved at once: everything must be aligned to that.
bool CanGoWide(const RotaryJob& job, Dtype dtype, const HeadLanes& lanes,
               absl::Span<const RotaryView> views) {
  const int64_t pairs = job.plan->spec.rotary_dim / 2;
  if (pairs * SizeOf(dtype) % kVectorBytes != 0) return false;
  const auto bits = [](const std::byte* p, const ViewStrides& s) {
    return reinterpret_cast<uintptr_t>(p) | static_cast<uint64_t>(s.batch | s.token | s.head);
  };
  uint64_t x = static_cast<uint64_t>(lanes.rotary_begin * SizeOf(dtype));
  uint64_t y = 0;  // offsets, if there are any, are sums of strides
  for (const RotaryView& view : views) {
    x |= bits(view.x, view.x_strides);
    y |= bits(view.y, view.y_strides);
  }
  const auto y_bytes =
      static_cast<uint64_t>(IsFloat8(views) ? kVectorBytes / SizeOf(dtype) : kVectorBytes);
  return x % kVectorBytes == 0 && y % y_bytes == 0;
}

}  // namespace

bool Supports(const Job& job) {
  return std::visit([](const auto& j) { return IsSupported(j); }, job);
}

int64_t RowsOf(const Job& job) {
  if (const auto* encode = std::get_if<EncodeJob>(&job)) {
    return LayoutOf(*encode).width == 0 ? 0 : encode->positions->count();
  }
  if (const auto* lookup = std::get_if<LookupJob>(&job)) return lookup->positions->count();
  if (const auto* bias = std::get_if<BiasJob>(&job)) {
    return bias->keys->count() == 0 ? 0 : bias->queries->count();
  }
  const auto& rotary = std::get<RotaryJob>(job);
  return rotary.batch * rotary.tokens;
}

Slice SliceFrom(const Job& job, int64_t first, int64_t most) {
  const int64_t count = std::min(most, RowsOf(job) - first);
  const auto* rotary = std::get_if<RotaryJob>(&job);
  if (rotary == nullptr || rotary->batch == 1) return {first, count};
  const int64_t into = first % rotary->tokens;
  if (into == 0 && count >= rotary->tokens) return {first, count - count % rotary->tokens};
  return {first, std::min(count, rotary->tokens - into)};
}

KernelId EncodeKernel(const EncodeJob& job) {
  return {Op::kEncode, job.dtype, false, IsPlain(*job.plan)};
}

EncodeItem MakeEncodeItem(const EncodeJob& job, const RowProgram& program, Slice slice,
                          const RowBuffers& buffers, Arena& arena) {
  EncodeItem item;
  item.wide = WideRowsOf(job, buffers);
  const int64_t units =
      item.wide.used ? item.wide.pairs * SizeOf(job.dtype) / kVectorBytes : program.units();
  item.grid = MakeItemGrid(slice.count, static_cast<int32_t>(units));
  item.positions = MakePositions(*job.positions, slice, arena);
  item.turns = MakeTurns(*job.plan, arena);
  item.amplitude = job.plan->amplitude;
  item.cos_bias = LayoutOf(job).cos_bias;
  item.embedding_scale = job.embedding_scale;
  item.unit_begin = arena.Put(SpanOf(program.unit_begin));
  item.steps = arena.Put(SpanOf(program.steps));
  item.out = buffers.out;
  item.out_row_bytes = buffers.out_row_bytes;
  item.add_to = buffers.add_to;
  item.add_to_row_bytes = buffers.add_to_row_bytes;
  return item;
}

KernelId LookupKernel(const LookupJob& job) { return {Op::kLookup, job.dtype, false, false}; }

LookupItem MakeLookupItem(const LookupJob& job, Slice slice, const RowBuffers& buffers,
                          Arena& arena) {
  const Table& table = *job.table;
  LookupItem item;
  item.grid = MakeItemGrid(slice.count, static_cast<int32_t>(table.columns));
  item.positions = MakePositions(*job.positions, slice, arena);
  item.table = arena.PutBytes(table.data.get(), table.bytes());
  item.table_dtype = table.dtype;
  item.copy = job.add_to == nullptr && job.dtype == table.dtype;
  item.table_rows = table.rows;
  item.columns = table.columns;
  item.embedding_scale = job.embedding_scale;
  item.out = buffers.out;
  item.out_row_bytes = buffers.out_row_bytes;
  item.add_to = buffers.add_to;
  item.add_to_row_bytes = buffers.add_to_row_bytes;
  return item;
}

KernelId BiasKernel(const BiasJob& job) { return {Op::kBias, job.dtype, false, false}; }

BiasItem MakeBiasItem(const BiasJob& job, Slice slice, const RowBuffers& buffers, Arena& arena) {
  const BiasRule& rule = *job.rule;
  BiasItem item;
  item.grid = MakeItemGrid(slice.count, static_cast<int32_t>(job.keys->count()));
  item.queries = MakePositions(*job.queries, slice, arena);
  item.keys = MakePositions(*job.keys, {0, job.keys->count()}, arena);
  item.kind = KindOf(rule.family);
  item.bidirectional = rule.bidirectional;
  item.heads = job.heads;
  item.direction_rows = rule.direction_rows;
  item.clip = rule.clip;
  item.window_height = rule.window[0];
  item.window_width = rule.window[1];
  item.exact_end = rule.buckets.exact_end();
  item.first_bucket = rule.buckets.first_bucket();
  item.thresholds = arena.Put(SpanOf(rule.buckets.thresholds()));
  item.threshold_count = static_cast<int64_t>(rule.buckets.thresholds().size());
  if (rule.has_slopes()) item.slopes = arena.Put(SpanOf(rule.slopes));
  if (job.table != nullptr) {
    item.table_dtype = job.table_dtype;
    item.table = arena.PutBytes(job.table, rule.table_rows * job.heads * SizeOf(job.table_dtype));
  }
  item.out = buffers.out;
  item.out_head_bytes = buffers.out_head_bytes;
  item.out_row_bytes = buffers.out_row_bytes;
  item.add_to = buffers.add_to;
  item.add_to_head_bytes = buffers.add_to_head_bytes;
  item.add_to_row_bytes = buffers.add_to_row_bytes;
  return item;
}

KernelId RotaryKernel(const RotaryJob& job, Dtype dtype, const HeadLanes& lanes,
                      absl::Span<const RotaryView> views) {
  return {Op::kRotary, dtype, CanGoWide(job, dtype, lanes, views),
          IsPlain(*job.plan) && !job.is_delta(), IsFloat8(views)};
}

RotaryItem MakeRotaryItem(const RotaryJob& job, Slice slice, const KernelId& kernel,
                          const HeadLanes& lanes, absl::Span<const RotaryView> views,
                          int64_t tokens, Arena& arena) {
  const Plan& plan = *job.plan;
  RotaryItem item;
  item.positions = MakeTokenPositions(job, *job.positions, slice, arena);
  item.turns = MakeTurns(plan, arena);
  item.delta = job.is_delta();
  if (item.delta) {
    item.from_positions = MakeTokenPositions(job, *job.from_positions, slice, arena);
    item.from_turns = MakeTurns(*job.from_plan, arena);
  }
  item.inverse = job.inverse;
  item.split_in = PairingIn(job) == Pairing::kHalfSplit;
  item.split_out = PairingOut(job) == Pairing::kHalfSplit;
  item.amplitude = AmplitudeOf(job);
  item.tokens = MakeDivisor(tokens);
  item.rotary_begin = lanes.rotary_begin;
  item.pairs = static_cast<int32_t>(plan.spec.rotary_dim / 2);
  item.own_turns = plan.heads > 1;
  item.head_pairs = plan.head_pairs();
  item.views = arena.Put(views);
  item.view_count = static_cast<int32_t>(views.size());
  int64_t heads = 0;
  bool in_place = true;
  for (const RotaryView& view : views) {
    heads += view.heads;
    in_place = in_place && view.x == view.y;
  }
  const int64_t vector = kernel.wide ? kVectorBytes / SizeOf(kernel.dtype) : 1;
  item.pair_units = static_cast<int32_t>(item.pairs / vector);
  const int64_t wanted = kManyUnits / std::max<int64_t>(slice.count * item.pair_units, 1);
  const int64_t groups = std::clamp<int64_t>(wanted, 1, std::max<int64_t>(heads, 1));
  item.heads_per_unit = (std::max<int64_t>(heads, 1) + groups - 1) / groups;
  const int64_t used = (heads + item.heads_per_unit - 1) / item.heads_per_unit;
  item.turn_units = static_cast<int32_t>(used * item.pair_units);
  item.lanes_apart = in_place ? 0 : static_cast<int32_t>(lanes.apart);
  item.grid = MakeItemGrid(slice.count, std::max(item.turn_units + item.lanes_apart, 1));
  return item;
}

}  // namespace phasor::cuda
