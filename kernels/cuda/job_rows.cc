// SPDX-License-Identifier: Apache-2.0
// Describes the tensors of each kind of job as rows, and finds out which are on the device.
#include "kernels/cuda/job_rows.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "kernels/cuda/move_rows.h"

namespace phasor::cuda {
namespace {

std::byte* Mutable(const std::byte* p) { return const_cast<std::byte*>(p); }

// Finds out where tensors are, and sums up what that means for their job. Threads: one thread.
class Locator {
 public:
  explicit Locator(const DeviceMemory* memory) : memory_(memory) {}

  bool OnDevice(const std::byte* address) {
    const Place place = memory_ == nullptr ? Place::kHost : memory_->PlaceOf(address);
    place_ = std::max(place_, place);
    return place != Place::kHost;
  }
  Place place() const { return place_; }

 private:
  const DeviceMemory* const memory_;
  Place place_ = Place::kHost;
};

HostRows DenseRows(const std::byte* base, int64_t row_stride, int64_t bytes) {
  HostRows rows;
  rows.base = Mutable(base);
  rows.tokens = int64_t{1} << 62;
  rows.row_stride = row_stride;
  rows.bytes = bytes;
  return rows;
}

bool IsAligned(const HostRows& rows, int64_t size) {
  const uint64_t bits =
      reinterpret_cast<uintptr_t>(rows.base) |
      static_cast<uint64_t>(rows.batch_stride | rows.row_stride | rows.head_stride);
  return !rows.on_device || bits % static_cast<uint64_t>(size) == 0;
}

template <typename RowJob>
JobRows RowsOfRowJob(const RowJob& job, int64_t width, Locator& locator) {
  const int64_t size = SizeOf(job.dtype);
  JobRows rows;
  rows.out = {DenseRows(job.out, job.out_row_bytes, width * size)};
  if (job.add_to != nullptr) {
    rows.in = {DenseRows(job.add_to, job.add_to_row_bytes, width * size)};
  }
  if constexpr (std::is_same_v<RowJob, BiasJob>) {
    rows.out[0].heads = job.heads;
    rows.out[0].head_stride = job.out_head_bytes;
    if (!rows.in.empty()) {
      rows.in[0].heads = job.heads;
      rows.in[0].head_stride = job.add_to_head_bytes;
    }
  }
  for (auto* const tensors : {&rows.in, &rows.out}) {
    for (HostRows& tensor : *tensors) {
      tensor.on_device = locator.OnDevice(tensor.base);
      rows.aligned = rows.aligned && IsAligned(tensor, size);
    }
  }
  return rows;
}

// The given lanes of every head, `size` bytes each.
HostRows LaneRows(const RotaryJob& job, const RotaryTensor& tensor, const std::byte* base,
                  const RotaryStrides& strides, LaneRange lanes, int64_t size) {
  HostRows rows;
  rows.base = Mutable(base) + lanes.first * size;
  rows.tokens = std::max<int64_t>(job.tokens, 1);
  rows.batch_stride = strides.batch;
  rows.row_stride = strides.token;
  rows.heads = tensor.heads;
  rows.head_stride = strides.head;
  rows.bytes = lanes.count * size;
  return rows;
}

JobRows RowsOfRotary(const RotaryJob& job, Locator& locator) {
  JobRows rows;
  std::vector<std::pair<bool, bool>> on_device;
  for (const RotaryTensor& tensor : job.tensors) {
    on_device.emplace_back(locator.OnDevice(SourceOf(tensor).first), locator.OnDevice(tensor.y));
  }
  rows.whole_heads = locator.place() != Place::kHost;
  for (size_t i = 0; i < job.tensors.size(); ++i) {
    const RotaryTensor& tensor = job.tensors[i];
    const LaneRange lanes =
        rows.whole_heads ? LaneRange{0, job.plan->spec.head_dim} : SentLanes(job, tensor);
    HostRows& in = rows.in.emplace_back(InputRows(job, tensor, lanes));
    HostRows& out = rows.out.emplace_back(OutputRows(job, tensor, lanes));
    in.on_device = on_device[i].first;
    out.on_device = on_device[i].second;
    rows.aligned =
        rows.aligned && IsAligned(in, SizeOf(tensor.dtype)) && IsAligned(out, OutputSizeOf(tensor));
  }
  return rows;
}

JobRows RowsOf(const Job& job, Locator& locator) {
  if (const auto* encode = std::get_if<EncodeJob>(&job)) {
    return RowsOfRowJob(*encode, LayoutOf(*encode).width, locator);
  }
  if (const auto* lookup = std::get_if<LookupJob>(&job)) {
    return RowsOfRowJob(*lookup, lookup->table->columns, locator);
  }
  if (const auto* bias = std::get_if<BiasJob>(&job)) {
    return RowsOfRowJob(*bias, bias->keys->count(), locator);
  }
  if (const auto* move = std::get_if<MoveJob>(&job)) {
    for (const std::byte* pool : move->pools) locator.OnDevice(pool);
    JobRows rows;
    if (move->mode == MoveMode::kCompare) rows.out = {DenseRows(nullptr, 0, ResultBytes(*move))};
    return rows;
  }
  return RowsOfRotary(std::get<RotaryJob>(job), locator);
}

}  // namespace

JobRows RowsOfTensors(const Job& job, const DeviceMemory* memory) {
  Locator locator(memory);
  JobRows rows = RowsOf(job, locator);
  rows.place = locator.place();
  return rows;
}

bool IsInPlace(const Job& job) {
  if (const auto* encode = std::get_if<EncodeJob>(&job)) return encode->add_to == encode->out;
  if (const auto* lookup = std::get_if<LookupJob>(&job)) return lookup->add_to == lookup->out;
  if (const auto* bias = std::get_if<BiasJob>(&job)) return bias->add_to == bias->out;
  if (const auto* move = std::get_if<MoveJob>(&job)) return move->mode == MoveMode::kMove;
  const auto& tensors = std::get<RotaryJob>(job).tensors;
  return std::any_of(tensors.begin(), tensors.end(), [](const RotaryTensor& tensor) {
    return tensor.pieces.empty() && tensor.x == tensor.y;
  });
}

LaneRange SentLanes(const RotaryJob& job, const RotaryTensor& tensor) {
  const ResolvedSpec& spec = job.plan->spec;
  if (tensor.float8 != Float8::kNone) return {0, spec.head_dim};
  return tensor.rotates ? LaneRange{spec.rotary_begin, spec.rotary_dim} : LaneRange{};
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

std::pair<const std::byte*, RotaryStrides> SourceOf(const RotaryTensor& tensor) {
  if (!tensor.pieces.empty()) return {tensor.y, tensor.y_strides};
  return {tensor.x, tensor.x_strides};
}

}  // namespace phasor::cuda
