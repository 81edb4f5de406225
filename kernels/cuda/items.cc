// SPDX-License-Identifier: Apache-2.0
// Makes the items of every op, and decides which jobs and layouts each kernel supports.
#include "kernels/cuda/items.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <variant>
#include <vector>

#include "kernels/cuda/item_positions.h"
#include "kernels/cuda/job_rows.h"
#include "kernels/cuda/key_items.h"
#include "kernels/cuda/wide_rows.h"
#include "kernels/tensor/integer_positions.h"

namespace phasor::cuda {
namespace {

// Keeps the numbers of units and pairs far below 2^31.
constexpr int64_t kMostUnits = int64_t{1} << 24;

// The rows of an item are numbered in 32 bits.
constexpr int64_t kMostRows = (int64_t{1} << 31) - 1;

template <typename T>
absl::Span<const T> SpanOf(const std::vector<T>& values) {
  return absl::MakeConstSpan(values);
}

// Plans ----------------------------------------------------------------------------------------

// Whether the phase of a pair is one product.
bool HasPlainPhases(const Plan& plan) {
  return static_cast<int64_t>(plan.frequency.size()) == plan.pairs && plan.table.offset.empty() &&
         !plan.xpos.has_value();
}

bool IsPlain(const Plan& plan) { return plan.spec.axes == 1 && HasPlainPhases(plan); }

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
  if (job.plan->parity.has_value() || PairsInBlocks(PairingIn(job), PairingOut(job))) return false;
  int64_t heads = 0;
  for (const RotaryTensor& tensor : job.tensors) heads += tensor.heads;
  const int64_t lanes = job.plan->spec.head_dim;
  if (heads >= kMostUnits || lanes >= kMostUnits || heads * lanes >= kMostUnits) return false;
  const bool moves = PairingIn(job) != PairingOut(job) &&
                     std::any_of(job.tensors.begin(), job.tensors.end(), [](const auto& tensor) {
                       return tensor.rotates && SourceOf(tensor).first == tensor.y;
                     });
  return !moves || lanes <= 2 * kAngleUnits;  // so that a block has whole heads
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

ItemGrid GridOf(int64_t rows, int64_t units, ItemMaker maker) {
  return MakeItemGrid(
      {.rows = rows, .units = static_cast<int32_t>(units), .processors = maker.processors});
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
  uint64_t x = static_cast<uint64_t>((lanes.rotary_begin | lanes.apart) * SizeOf(dtype));
  uint64_t y = 0;  // offsets, if there are any, are sums of strides
  for (const RotaryView& view : views) {
    x |= bits(view.x, view.x_strides);
    y |= bits(view.y, view.y_strides);
  }
  const auto y_bytes =
      static_cast<uint64_t>(IsFloat8(views) ? kVectorBytes / SizeOf(dtype) : kVectorBytes);
  return x % kVectorBytes == 0 && y % y_bytes == 0;
}

// Whether a wide kernel can take plain angles.
bool HasPlainAngles(const RotaryJob& job, bool float8) {
  const Plan& plan = *job.plan;
  const bool whole = float8 ? AreSimple(*job.positions) : AreWhole(*job.positions);
  return whole && HasPlainPhases(plan) && plan.heads == 1 && !job.is_delta() &&
         plan.pairs <= int64_t{kAngleUnits};
}

// Whether all rows are as far apart as those of one batch entry.
bool IsOneEntry(Slice slice, absl::Span<const RotaryView> views, int64_t tokens) {
  if (slice.count <= tokens) return true;
  return std::all_of(views.begin(), views.end(), [&](const RotaryView& view) {
    const bool x = view.x_strides.batch == tokens * view.x_strides.token;
    return x && (!view.y_offsets.empty() || view.y_strides.batch == tokens * view.y_strides.token);
  });
}

// Whether a wide kernel can take plain strides.
bool HasPlainStrides(Slice slice, absl::Span<const RotaryView> views, int64_t tokens) {
  constexpr uint64_t kLimit = uint64_t{1} << 32;
  const auto is_short = [](const ViewStrides& strides) {
    return static_cast<uint64_t>(strides.token) < kLimit &&
           static_cast<uint64_t>(strides.head) < kLimit;
  };
  return IsOneEntry(slice, views, tokens) &&
         std::all_of(views.begin(), views.end(), [&](const RotaryView& view) {
           return is_short(view.x_strides) && is_short(view.y_strides);
         });
}

// The most wide units of a row.
int64_t MostUnits(const RotaryJob& job, Dtype dtype, absl::Span<const RotaryView> views) {
  int64_t heads = 0;
  for (const RotaryView& view : views) heads += view.heads;
  return heads * (job.plan->spec.head_dim * SizeOf(dtype) / (2 * kVectorBytes) + 1);
}

void SetPairs(int32_t pairs, RotaryItem& item) {
  item.pairs = MakeSmallDivisor(std::max(pairs, 1));
  item.angle_rows = pairs == 0 ? 0 : kThreads / pairs;
  item.pairs.value = pairs;
}

void SetViews(absl::Span<const RotaryView> views, const KernelId& kernel, RotaryItem& item) {
  const int64_t size = SizeOf(kernel.dtype), vector = kernel.wide ? kVectorBytes / size : 1;
  const auto lanes = [&](bool split, int64_t element) {
    return UnitLanesOf(item.rotary_begin, item.pairs.value, split, vector, element);
  };
  item.x_lanes = lanes(item.split_in, size);
  int32_t heads = 0;
  for (int i = 0; i < kMostViews; ++i) item.first_heads[i] = std::numeric_limits<int32_t>::max();
  for (size_t i = 0; i < views.size(); ++i) {
    RotaryView& view = item.views[i];
    view = views[i];
    item.first_heads[i] = heads;
    heads += view.heads;
    const ViewStrides &x = view.x_strides, &y = view.y_strides;
    view.same_strides =
        view.y_offsets.empty() && x.batch == y.batch && x.token == y.token && x.head == y.head;
    view.y_lanes = lanes(view.rotates ? item.split_out : item.split_in, kernel.float8 ? 1 : size);
  }
}

// Cuts heads into units and units into blocks.
void SetRotaryGrid(int64_t rows, const KernelId& kernel, int64_t heads, int processors,
                   RotaryItem& item) {
  const int32_t vector =
      kernel.wide ? static_cast<int32_t>(kVectorBytes / SizeOf(kernel.dtype)) : 1;
  const int32_t pair_units = item.pairs.value / vector;
  const int32_t copy_units = (item.lanes_apart + 2 * vector - 1) / (2 * vector);
  const int32_t head_units = std::max(pair_units + copy_units, 1);
  item.pair_units = MakeSmallDivisor(std::max(pair_units, 1));
  item.pair_units.value = pair_units;
  item.head_units = MakeSmallDivisor(head_units);
  item.own_angles = item.head_pairs > 0 || 2 * pair_units > kAngleUnits;
  GridShape shape;
  shape.rows = heads == 0 ? 0 : rows;
  shape.units = static_cast<int32_t>(std::max<int64_t>(heads, 1)) * head_units;
  shape.processors = processors;
  if (item.own_angles) shape.most_units = kAngleUnits;
  if (!item.own_angles && pair_units > 0) shape.most_rows = kAngleUnits / pair_units;
  const int32_t most = item.own_angles ? kAngleUnits : kUnitsPerBlock;
  if (head_units <= most) shape.together = head_units;
  item.grid = MakeItemGrid(shape);
  const bool keeps_lanes = item.split_in == item.split_out;
  item.early = keeps_lanes && item.grid.blocks <= item.grid.places;
  item.loads_first = !std::has_single_bit(static_cast<uint32_t>(head_units));
  item.even = keeps_lanes && !kernel.float8 && pair_units > 0 && copy_units == 0;
  for (const RotaryView& view : item.views) {
    item.even = item.even && (view.heads == 0 || (view.same_strides && view.rotates));
  }
}

}  // namespace

bool Supports(const Job& job) {
  return std::visit([](const auto& j) { return IsSupported(j); }, job);
}

int64_t RowsOf(const Job& job) {
  if (const auto* encode = std::get_if<EncodeJob>(&job))
    return LayoutOf(*encode).width == 0 ? 0 : encode->positions->count();
  if (const auto* lookup = std::get_if<LookupJob>(&job)) return lookup->positions->count();
  if (const auto* bias = std::get_if<BiasJob>(&job))
    return bias->keys->count() == 0 ? 0 : bias->queries->count();
  if (const auto* move = std::get_if<MoveJob>(&job)) return RowsOf(*move);
  const auto& rotary = std::get<RotaryJob>(job);
  return rotary.batch * rotary.tokens;
}

JobBytes BytesOf(const Job& job) {
  const int64_t rows = RowsOf(job);
  const auto of = [](int64_t written, const std::byte* add_to) {
    return JobBytes{add_to == nullptr ? 0 : written, written};
  };
  if (const auto* encode = std::get_if<EncodeJob>(&job))
    return of(rows * LayoutOf(*encode).width * SizeOf(encode->dtype), encode->add_to);
  if (const auto* lookup = std::get_if<LookupJob>(&job))
    return of(rows * lookup->table->columns * SizeOf(lookup->dtype), lookup->add_to);
  if (const auto* bias = std::get_if<BiasJob>(&job))
    return of(rows * bias->heads * bias->keys->count() * SizeOf(bias->dtype), bias->add_to);
  if (const auto* move = std::get_if<MoveJob>(&job)) return BytesOf(*move);
  const auto& rotary = std::get<RotaryJob>(job);
  int64_t bytes = 0;
  for (const RotaryTensor& tensor : rotary.tensors) {
    bytes += rows * tensor.heads * rotary.plan->spec.head_dim * SizeOf(tensor.dtype);
  }
  return {bytes, bytes};
}

Slice SliceFrom(const Job& job, int64_t first, int64_t most) {
  const int64_t count = std::min({most, RowsOf(job) - first, kMostRows});
  if (const auto* move = std::get_if<MoveJob>(&job)) {
    return {first, std::min(count, RowsOfGroup(*move, first))};
  }
  const auto* rotary = std::get_if<RotaryJob>(&job);
  if (rotary == nullptr || rotary->batch == 1) return {first, count};
  const int64_t into = first % rotary->tokens;
  if (into == 0 && count >= rotary->tokens) return {first, count - count % rotary->tokens};
  return {first, std::min(count, rotary->tokens - into)};
}

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

KernelId EncodeKernel(const EncodeJob& job) {
  return {Op::kEncode, job.dtype, false, IsPlain(*job.plan)};
}

EncodeItem MakeEncodeItem(const EncodeJob& job, const RowProgram& program, Slice slice,
                          const RowBuffers& buffers, ItemMaker maker) {
  Arena& arena = maker.arena;
  EncodeItem item;
  item.wide = WideRowsOf(job, buffers);
  if (item.wide.used) {
    item.wide_grid =
        MakeWideGrid(item.wide.pairs, slice.count, SizeOf(job.dtype), maker.processors);
    item.grid.blocks = BlocksOf(item.wide_grid);
    if (IsPlain(*job.plan) && AreSimple(*job.positions)) {
      item.wide.fraction = PutFractions(*job.plan, item.wide, SizeOf(job.dtype), arena);
    }
  } else {
    item.grid = GridOf(slice.count, program.units(), maker);
    item.unit_begin = arena.Put(SpanOf(program.unit_begin));
    item.steps = arena.Put(SpanOf(program.steps));
  }
  item.positions = MakePositions(*job.positions, slice, arena);
  item.turns = MakeTurns(*job.plan, arena);
  item.amplitude = job.plan->amplitude;
  item.cos_bias = LayoutOf(job).cos_bias;
  item.embedding_scale = job.embedding_scale;
  item.out = buffers.out;
  item.out_row_bytes = buffers.out_row_bytes;
  item.out_lanes_bytes = buffers.out_row_bytes * item.wide_grid.lanes;
  item.add_to = buffers.add_to;
  item.add_to_row_bytes = buffers.add_to_row_bytes;
  return item;
}

KernelId LookupKernel(const LookupJob& job) { return {Op::kLookup, job.dtype, false, false}; }

LookupItem MakeLookupItem(const LookupJob& job, Slice slice, const RowBuffers& buffers,
                          ItemMaker maker) {
  Arena& arena = maker.arena;
  const Table& table = *job.table;
  LookupItem item;
  item.grid = GridOf(slice.count, table.columns, maker);
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

BiasItem MakeBiasItem(const BiasJob& job, Slice slice, const RowBuffers& buffers, ItemMaker maker) {
  Arena& arena = maker.arena;
  const BiasRule& rule = *job.rule;
  BiasItem item;
  item.grid = GridOf(slice.count, job.keys->count(), maker);
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

KernelId RotaryKernel(const RotaryJob& job, Slice slice, Dtype dtype, const HeadLanes& lanes,
                      absl::Span<const RotaryView> views, int64_t tokens) {
  const bool wide = CanGoWide(job, dtype, lanes, views);
  const bool plain = wide && HasPlainAngles(job, IsFloat8(views)) &&
                     HasPlainStrides(slice, views, tokens) &&
                     slice.count * MostUnits(job, dtype, views) < kMostRows;
  return {Op::kRotary, dtype, wide, plain, IsFloat8(views)};
}

RotaryItem MakeRotaryItem(const RotaryJob& job, Slice slice, const KernelId& kernel,
                          const HeadLanes& lanes, absl::Span<const RotaryView> views,
                          int64_t tokens, ItemMaker maker) {
  Arena& arena = maker.arena;
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
  // One batch entry has the rows of the slice at most.
  item.tokens = MakeSmallDivisor(static_cast<int32_t>(std::min(tokens, kMostRows)));
  item.rotary_begin = static_cast<int32_t>(lanes.rotary_begin);
  SetPairs(static_cast<int32_t>(plan.spec.rotary_dim / 2), item);
  if (plan.heads > 1) item.head_pairs = plan.head_pairs();
  SetViews(views, kernel, item);
  int64_t heads = 0;
  bool in_place = true;
  for (const RotaryView& view : views) {
    heads += view.heads;
    in_place = in_place && view.x == view.y;
  }
  item.lanes_apart = in_place ? 0 : static_cast<int32_t>(lanes.apart);
  SetRotaryGrid(slice.count, kernel, heads, maker.processors, item);
  return item;
}

}  // namespace phasor::cuda
