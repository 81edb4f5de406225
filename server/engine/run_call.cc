// SPDX-License-Identifier: Apache-2.0
// A payload that arrived in one piece is read where it lies. Otherwise dense tensors are gathered
// into the output and computed in place, which makes the gather the only copy (of tensors to rotate
// by the backend, tile by tile); strided tensors and positions are gathered into scratch memory.
#include "server/engine/run_call.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "kernels/request/bias.h"
#include "kernels/request/lookup.h"
#include "kernels/request/paged_cache.h"
#include "kernels/request/request.h"

namespace phasor::engine {
namespace {

constexpr int64_t kOutputAlignment = 64;

using Tick = std::chrono::steady_clock::time_point;
Tick Now() { return std::chrono::steady_clock::now(); }

absl::Status NoMemory(int64_t bytes) {
  return absl::UnavailableError(absl::StrCat("server: no memory for ", bytes, " bytes, try again"));
}

const Destination& DestinationOf(const RopeItem& item, size_t i) {
  static const Destination kResult;
  return item.destinations.empty() ? kResult : item.destinations[i];
}

bool InPlace(const Segments& input, const Destination& destination) {
  return destination.data != nullptr && !destination.copied && !input.empty() &&
         input[0].data() == destination.data;
}

// The outputs that take the place of an input that the caller holds.
std::vector<const Destination*> Overwritten(const Item& item) {
  std::vector<const Destination*> found;
  if (const auto* encode = std::get_if<EncodeItem>(&item)) {
    if (InPlace(encode->add_to, encode->destination)) found.push_back(&encode->destination);
  } else if (const auto* rope = std::get_if<RopeItem>(&item)) {
    for (size_t i = 0; i < rope->tensors.size(); ++i) {
      const Destination& destination = DestinationOf(*rope, i);
      if (InPlace(rope->tensors[i], destination)) found.push_back(&destination);
    }
  }
  return found;
}

// Places the outputs of `call` that are part of the result one after another. Their sum is at most
// the call's cost plus padding.
class OutputLayout {
 public:
  explicit OutputLayout(const Call& call) {
    ranges_.reserve(call.items.size());
    for (const Item& item : call.items) {
      std::vector<OutputRange>& outputs = ranges_.emplace_back();
      if (const auto* encode = std::get_if<EncodeItem>(&item)) {
        Place(encode->destination, encode->prepared.output_bytes, &outputs);
      } else if (const auto* rope = std::get_if<RopeItem>(&item)) {
        for (size_t i = 0; i < rope->prepared.tensors.size(); ++i) {
          Place(DestinationOf(*rope, i), rope->prepared.tensors[i].output_bytes, &outputs);
        }
      } else if (const auto* bias = std::get_if<BiasItem>(&item)) {
        Place({}, bias->prepared.output_bytes, &outputs);
      }
    }
  }

  int64_t bytes() const { return end_; }
  std::vector<OutputRange>& of_item(size_t i) { return ranges_[i]; }

 private:
  void Place(const Destination& destination, int64_t bytes, std::vector<OutputRange>* outputs) {
    if (destination.data != nullptr) return;
    const int64_t offset = (end_ + kOutputAlignment - 1) / kOutputAlignment * kOutputAlignment;
    end_ = offset + bytes;
    outputs->push_back({offset, bytes});
  }

  std::vector<std::vector<OutputRange>> ranges_;
  int64_t end_ = 0;
};

// Turns items into jobs. Holds the scratch memory that the jobs read.
class Stager {
 public:
  Stager(BufferPool* pool, std::byte* output) : pool_(*pool), output_(output) {}

  // Whether some job reads the payload itself.
  bool borrows() const { return borrows_; }

  // `item` is no status.
  absl::StatusOr<Job> StageItem(Item& item, absl::Span<const OutputRange> outputs,
                                const std::string& path) {
    if (auto* encode = std::get_if<EncodeItem>(&item)) return Stage(*encode, outputs, path);
    if (auto* bias = std::get_if<BiasItem>(&item)) return Stage(*bias, outputs, path);
    return Stage(std::get<RopeItem>(item), outputs, path);
  }

 private:
  absl::StatusOr<Job> Stage(EncodeItem& item, absl::Span<const OutputRange> outputs,
                            const std::string& path) {
    PreparedEncode& prepared = item.prepared;
    PHASOR_RETURN_IF_ERROR(StagePositions(item.positions, prepared.positions_bytes, item.changing,
                                          path + ".positions", &prepared.positions));
    if (prepared.table != nullptr) {
      PHASOR_RETURN_IF_ERROR(CheckLookupPositions(prepared, path));
    }
    std::byte* const out = NextOutput(item.destination, &outputs);
    std::byte* const place = item.destination.on_device ? nullptr : out;
    PHASOR_ASSIGN_OR_RETURN(const std::byte* add_to,
                            StageAddTo(item.add_to, prepared.add_to_bytes, prepared.add_to, place));
    if (prepared.table != nullptr) return MakeLookupJob(prepared, add_to, out);
    return MakeEncodeJob(prepared, add_to, out);
  }

  absl::StatusOr<Job> Stage(BiasItem& item, absl::Span<const OutputRange> outputs,
                            const std::string& path) {
    PreparedBias& prepared = item.prepared;
    PHASOR_RETURN_IF_ERROR(StagePositions(item.queries, prepared.queries_bytes, false,
                                          path + ".query_positions", &prepared.queries));
    PHASOR_RETURN_IF_ERROR(StagePositions(item.keys, prepared.keys_bytes, false,
                                          path + ".key_positions", &prepared.keys));
    PHASOR_RETURN_IF_ERROR(CheckBiasPositions(prepared, path));
    const std::byte* table_values = nullptr;
    if (prepared.table_bytes > 0) {
      PHASOR_ASSIGN_OR_RETURN(table_values,
                              StagePayload(item.table_values, prepared.table_bytes, nullptr));
    }
    std::byte* const out = output_ + outputs[0].offset;
    PHASOR_ASSIGN_OR_RETURN(const std::byte* add_to,
                            StageAddTo(item.add_to, prepared.add_to_bytes, prepared.add_to, out));
    return MakeBiasJob(prepared, table_values, add_to, out);
  }

  absl::StatusOr<Job> Stage(RopeItem& item, absl::Span<const OutputRange> outputs,
                            const std::string& path) {
    PreparedRope& prepared = item.prepared;
    PHASOR_RETURN_IF_ERROR(StagePositions(item.positions, prepared.positions_bytes, item.changing,
                                          path + ".positions", &prepared.positions));
    if (prepared.from_positions.has_value()) {
      PHASOR_RETURN_IF_ERROR(StagePositions(item.from_positions, prepared.from_positions_bytes,
                                            item.changing, path + ".from_positions",
                                            &*prepared.from_positions));
    }
    if (prepared.pages.has_value()) {
      PHASOR_ASSIGN_OR_RETURN(
          const std::byte* const slots,
          StageNumbers(item.slot_mapping, prepared.pages->slot_mapping_bytes, item.changing));
      PHASOR_RETURN_IF_ERROR(SetSlots(slots, path, prepared));
    }
    absl::InlinedVector<const std::byte*, 4> x;
    absl::InlinedVector<std::byte*, 4> y;
    for (size_t i = 0; i < prepared.tensors.size(); ++i) {
      const PreparedRope::Tensor& tensor = prepared.tensors[i];
      const Destination& destination = DestinationOf(item, i);
      std::byte* const out = NextOutput(destination, &outputs);
      const std::byte* in = out;  // gathered by the backend, which it does on the host
      if (!GatheredByBackend(item, i)) {
        PHASOR_ASSIGN_OR_RETURN(in, StagePayload(item.tensors[i], tensor.input_bytes, nullptr));
      }
      if (!tensor.cache_shape.empty() && destination.data == nullptr) {
        Gather(i == prepared.pages->key_index ? item.key_cache : item.value_cache, out);
      }
      x.push_back(in);
      y.push_back(out);
    }
    RotaryJob job = MakeRotaryJob(prepared, x, y);
    for (size_t i = 0; i < prepared.tensors.size(); ++i) {
      if (DestinationOf(item, i).strided) {
        job.tensors[i].y_strides = InputStrides(prepared.tensors[i]);
      }
      if (!GatheredByBackend(item, i)) continue;
      job.tensors[i].pieces = item.tensors[i];
      borrows_ = true;
    }
    return job;
  }

  // Where the next output goes: its destination, or the first of `outputs`, which is taken.
  std::byte* NextOutput(const Destination& destination, absl::Span<const OutputRange>* outputs) {
    if (destination.data != nullptr) return destination.data;
    std::byte* const out = output_ + outputs->front().offset;
    outputs->remove_prefix(1);
    return out;
  }

  // Those of an output that lies as its input does.
  static RotaryStrides InputStrides(const PreparedRope::Tensor& tensor) {
    const int64_t from = SizeOf(tensor.dtype), to = SizeOf(tensor.output_dtype);
    const RotaryStrides& x = tensor.x_strides;
    return {x.batch / from * to, x.token / from * to, x.head / from * to};
  }

  // What is added, if anything. When it lies as the output will, it may be gathered there, unless
  // `output` is nullptr.
  absl::StatusOr<const std::byte*> StageAddTo(const Segments& segments, int64_t bytes,
                                              const std::optional<TensorDesc>& add_to,
                                              std::byte* output) {
    if (bytes == 0) return nullptr;
    return StagePayload(segments, bytes, IsDense(*add_to) ? output : nullptr);
  }

  // The payload as one piece: where it lies, or gathered to `place`, or to scratch memory.
  absl::StatusOr<const std::byte*> StagePayload(const Segments& segments, int64_t bytes,
                                                std::byte* place) {
    if (segments.size() == 1) {
      borrows_ = true;
      return segments[0].data();
    }
    if (place == nullptr) {
      PHASOR_ASSIGN_OR_RETURN(place, Scratch(bytes));
    }
    Gather(segments, place);
    return place;
  }

  absl::StatusOr<std::byte*> Scratch(int64_t bytes) {
    BufferRef scratch = pool_.Get(bytes);
    if (scratch == nullptr) return NoMemory(bytes);
    scratch_.push_back(std::move(scratch));
    return scratch_.back()->data();
  }

  // Numbers that are going to be checked. Where others may write them, copies of them: what was
  // checked must be what is used.
  absl::StatusOr<const std::byte*> StageNumbers(const Segments& segments, int64_t bytes,
                                                bool changing) {
    if (!changing) return StagePayload(segments, bytes, nullptr);
    PHASOR_ASSIGN_OR_RETURN(std::byte* const copy, Scratch(bytes));
    Gather(segments, copy);
    return copy;
  }

  // Sets the numbers of a position tensor and checks them.
  absl::Status StagePositions(const Segments& segments, int64_t bytes, bool changing,
                              const std::string& path, PositionSource* source) {
    if (source->kind != PositionSource::Kind::kTensor) return absl::OkStatus();
    PHASOR_ASSIGN_OR_RETURN(source->data, StageNumbers(segments, bytes, changing));
    source->data_bytes = bytes;
    return CheckPositionValues(*source, path);
  }

  BufferPool& pool_;
  std::byte* const output_;
  bool borrows_ = false;
  absl::InlinedVector<BufferRef, 4> scratch_;
};

// The error of an item's job. Whoever gave memory to be changed in place cannot try again, unless
// it is intact: some of it may have changed.
absl::Status HalfDone(const Item& item, const JobResult& result) {
  if (result.intact) return result.status;
  const std::vector<const Destination*> overwritten = Overwritten(item);
  if (overwritten.empty()) return result.status;
  for (const Destination* const destination : overwritten) {
    if (destination->dirty != nullptr) destination->dirty->store(true, std::memory_order_relaxed);
  }
  return absl::AbortedError(absl::StrCat(
      "server: failed in the middle of an in-place call, what it was to change holds neither input "
      "nor output: ",
      result.status.message()));
}

std::string PathOf(const Call& call, size_t i) {
  return call.batch ? absl::StrCat("items[", i, "]") : "item";
}

// A call that is run together with others.
class StagedCall {
 public:
  StagedCall(Call* call, BufferPool* pool) : call_(*call), pool_(*pool) { status_ = Stage(); }

  // What the backend is to do; nothing if staging failed.
  std::vector<Job>& jobs() { return jobs_; }

  size_t job_count() const { return job_items_.size(); }

  // The answer, after the jobs were run with these results.
  absl::StatusOr<Result> Finish(absl::Span<const JobResult> ran) {
    if (!status_.ok()) return std::move(status_);
    for (size_t k = 0; k < ran.size(); ++k) {
      const Item& item = call_.items[job_items_[k]];
      ItemResult& item_result = result_.items[job_items_[k]];
      item_result.backend = ran[k].backend;
      if (ran[k].status.ok()) continue;
      item_result.status = HalfDone(item, ran[k]);
      item_result.outputs.clear();
    }
    if (stager_->borrows()) call_.ReleasePayload();
    return std::move(result_);
  }

 private:
  absl::Status Stage() {
    PHASOR_RETURN_IF_ERROR(call_.FetchPayload());
    OutputLayout layout(call_);
    result_.buffer = pool_.Get(layout.bytes());
    if (result_.buffer == nullptr) return NoMemory(layout.bytes());
    result_.items.resize(call_.items.size());

    stager_.emplace(&pool_, result_.buffer->data());
    jobs_.reserve(call_.items.size());
    for (size_t i = 0; i < call_.items.size(); ++i) {
      ItemResult& item_result = result_.items[i];
      if (const auto* failed = std::get_if<absl::Status>(&call_.items[i])) {
        item_result.status = *failed;
        continue;
      }
      absl::StatusOr<Job> job =
          stager_->StageItem(call_.items[i], layout.of_item(i), PathOf(call_, i));
      if (!job.ok()) {
        item_result.status = std::move(job).status();
        continue;
      }
      jobs_.push_back(*std::move(job));
      job_items_.push_back(i);
      item_result.outputs = std::move(layout.of_item(i));
    }
    if (!stager_->borrows()) call_.ReleasePayload();
    return absl::OkStatus();
  }

  Call& call_;
  BufferPool& pool_;
  absl::Status status_;
  Result result_;
  std::optional<Stager> stager_;
  std::vector<Job> jobs_;
  std::vector<size_t> job_items_;  // what they are for
};

// What StageNumbers takes.
int64_t NumbersScratch(const Segments& segments, int64_t bytes, bool changing) {
  return changing || segments.size() > 1 ? bytes : 0;
}

// What StageAddTo takes.
int64_t AddToScratch(const Segments& segments, int64_t bytes,
                     const std::optional<TensorDesc>& add_to, bool on_device) {
  if (bytes == 0 || segments.size() <= 1) return 0;
  return IsDense(*add_to) && !on_device ? 0 : bytes;
}

}  // namespace

bool GatheredByBackend(const RopeItem& item, size_t i) {
  const PreparedRope::Tensor& tensor = item.prepared.tensors[i];
  return tensor.dense && item.tensors[i].size() > 1 && tensor.output_dtype == tensor.dtype &&
         tensor.cache_shape.empty() && !DestinationOf(item, i).on_device;
}

int64_t ScratchBytes(const EncodeItem& item) {
  const PreparedEncode& prepared = item.prepared;
  return NumbersScratch(item.positions, prepared.positions_bytes, item.changing) +
         AddToScratch(item.add_to, prepared.add_to_bytes, prepared.add_to,
                      item.destination.on_device);
}

int64_t ScratchBytes(const RopeItem& item) {
  const PreparedRope& prepared = item.prepared;
  int64_t bytes = NumbersScratch(item.positions, prepared.positions_bytes, item.changing) +
                  NumbersScratch(item.from_positions, prepared.from_positions_bytes, item.changing);
  if (prepared.pages.has_value()) {
    bytes += NumbersScratch(item.slot_mapping, prepared.pages->slot_mapping_bytes, item.changing);
  }
  for (size_t i = 0; i < item.tensors.size(); ++i) {
    if (item.tensors[i].size() <= 1 || GatheredByBackend(item, i)) continue;
    bytes += prepared.tensors[i].input_bytes;
  }
  return bytes;
}

int64_t ScratchBytes(const BiasItem& item) {
  const PreparedBias& prepared = item.prepared;
  return NumbersScratch(item.queries, prepared.queries_bytes, false) +
         NumbersScratch(item.keys, prepared.keys_bytes, false) +
         NumbersScratch(item.table_values, prepared.table_bytes, false) +
         AddToScratch(item.add_to, prepared.add_to_bytes, prepared.add_to, false);
}

Results RunCalls(absl::Span<Call* const> calls, Backend& backend, BufferPool& pool,
                 RunFacts* facts) {
  const Tick begun = Now();
  absl::InlinedVector<StagedCall, 1> staged;
  staged.reserve(calls.size());
  for (Call* const call : calls) staged.emplace_back(call, &pool);
  std::vector<Job> jobs = std::move(staged[0].jobs());
  for (size_t i = 1; i < staged.size(); ++i) {
    std::move(staged[i].jobs().begin(), staged[i].jobs().end(), std::back_inserter(jobs));
  }
  const Tick gathered = Now();
  std::vector<JobResult> ran(jobs.size());
  if (!jobs.empty()) backend.RunEach(jobs, absl::MakeSpan(ran));
  if (facts != nullptr) {
    facts->jobs = static_cast<int64_t>(jobs.size());
    facts->gather = absl::FromChrono(gathered - begun);
    facts->compute = absl::FromChrono(Now() - gathered);
  }
  Results results;
  results.reserve(calls.size());
  absl::Span<const JobResult> left = ran;
  for (StagedCall& call : staged) {
    results.push_back(call.Finish(left.first(call.job_count())));
    left.remove_prefix(call.job_count());
  }
  return results;
}

}  // namespace phasor::engine
