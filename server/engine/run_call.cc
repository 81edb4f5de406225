// SPDX-License-Identifier: Apache-2.0
// Stages items as jobs and runs them. An input in one piece is read where it is. An input in
// several pieces is copied once. If the input is laid out as its output is, it goes to the output
// (the backend gathers tensors to rotate itself, tile by tile); otherwise it goes to scratch
// memory.
#include "server/engine/run_call.h"

#include <array>
#include <charconv>
#include <chrono>
#include <iterator>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "kernels/request/prepared.h"

namespace phasor::engine {
namespace {

constexpr int64_t kOutputAlignment = 64;

using Jobs = absl::InlinedVector<Job, 1>;
using Tick = std::chrono::steady_clock::time_point;
Tick Now() { return std::chrono::steady_clock::now(); }

absl::Status NoMemory(int64_t bytes) {
  return absl::UnavailableError(absl::StrCat("server: no memory for ", bytes, " bytes; try again"));
}

// Whether the output overwrites its input in memory that the caller holds.
bool IsInPlace(const Item& item, const Output& output) {
  const Destination& place = output.place;
  if (place.data == nullptr) return false;
  if (output.slot.moves_within) return true;
  if (output.slot.input < 0) return false;
  const PieceList& bytes = item.inputs[static_cast<size_t>(output.slot.input)].bytes;
  return !bytes.empty() && bytes[0].data() == place.data;
}

// Whether an input in several pieces needs no scratch memory: its output or the backend gathers it.
// Only the backend may write an output on a device, so such an output cannot.
bool NeedsNoScratch(const Item& item, const InputSlot& slot) {
  const bool alike = slot.reading == Reading::kLikeOutput || slot.reading == Reading::kInPieces;
  return alike && !item.outputs[static_cast<size_t>(slot.output)].place.on_device;
}

// Places the outputs that are part of the result one after another, and returns where the last one
// ends: at most the call's cost plus padding.
int64_t PlaceOutputs(const Call& call, absl::InlinedVector<ItemResult, 1>* results) {
  int64_t end = 0;
  results->resize(call.items.size());
  for (size_t i = 0; i < call.items.size(); ++i) {
    (*results)[i].outputs.reserve(call.items[i].outputs.size());
    for (const Output& output : call.items[i].outputs) {
      OutputRange range;
      if (output.place.data == nullptr) {
        range = {(end + kOutputAlignment - 1) / kOutputAlignment * kOutputAlignment,
                 output.slot.bytes};
        end = range.offset + range.bytes;
      }
      (*results)[i].outputs.push_back(range);
    }
  }
  return end;
}

// Turns items into jobs. Holds the scratch memory that the jobs read.
class Stager {
 public:
  Stager(BufferPool* pool, Backend* backend, std::byte* output)
      : pool_(*pool), backend_(*backend), output_(output) {}

  // Whether a job reads the payload itself.
  bool borrows() const { return borrows_; }

  // Adds the job of the item. `ranges`: the places of the outputs in the result. `item` must not
  // have failed.
  absl::Status StageItem(Item& item, absl::Span<const OutputRange> ranges, std::string_view path,
                         Jobs* jobs) {
    PHASOR_RETURN_IF_ERROR(StageNumbers(item, path));
    absl::InlinedVector<OutputMemory, 4> outputs;
    for (size_t i = 0; i < item.outputs.size(); ++i) {
      const Destination& place = item.outputs[i].place;
      outputs.push_back(
          {place.data != nullptr ? place.data : output_ + ranges[i].offset, place.strided});
    }
    absl::InlinedVector<InputMemory, 4> inputs;
    for (const Input& input : item.inputs) {
      PHASOR_RETURN_IF_ERROR(StageInput(item, input, outputs, &inputs));
    }
    const auto read = [this](const std::byte* from, int64_t bytes, std::byte* out) {
      return backend_.devices().Read(from, bytes, out);
    };
    PHASOR_RETURN_IF_ERROR(CheckMemory(inputs, outputs, path, read, &item.prepared));
    jobs->push_back(MakeJob(item.prepared, inputs, outputs));
    return absl::OkStatus();
  }

 private:
  // Reads and checks the positions and slots. If others may write them, copies them first, so that
  // the values used are the values checked.
  absl::Status StageNumbers(Item& item, std::string_view path) {
    for (const Input& input : item.inputs) {
      if (input.slot.reading != Reading::kNumbers) continue;
      const std::byte* data = nullptr;
      if (input.changing || input.bytes.size() != 1) {
        PHASOR_ASSIGN_OR_RETURN(data, GatherToScratch(input));
      } else {
        data = Borrow(input);
      }
      PHASOR_RETURN_IF_ERROR(SetNumbers(input.slot, data, path, &item.prepared));
    }
    return CheckNumbers(item.prepared, path);
  }

  // Adds the input to `inputs`: where it is, or a copy of it.
  absl::Status StageInput(const Item& item, const Input& input,
                          absl::Span<const OutputMemory> outputs,
                          absl::InlinedVector<InputMemory, 4>* inputs) {
    const InputSlot& slot = input.slot;
    if (slot.reading == Reading::kNumbers) return absl::OkStatus();
    std::byte* const output =
        slot.output < 0 ? nullptr : outputs[static_cast<size_t>(slot.output)].data;
    if (slot.reading == Reading::kInitial) {
      CopyPieces(input.bytes, output);
      return absl::OkStatus();
    }
    InputMemory memory{slot.role, slot.output};
    if (input.bytes.size() == 1) {
      memory.data = Borrow(input);
    } else if (!input.bytes.empty() && slot.reading == Reading::kInPieces &&
               NeedsNoScratch(item, slot)) {
      memory.data = output;
      memory.pieces = input.bytes;
      borrows_ = true;
    } else if (slot.reading == Reading::kLikeOutput && NeedsNoScratch(item, slot)) {
      CopyPieces(input.bytes, output);
      memory.data = output;
    } else {
      PHASOR_ASSIGN_OR_RETURN(memory.data, GatherToScratch(input));
    }
    inputs->push_back(memory);
    return absl::OkStatus();
  }

  const std::byte* Borrow(const Input& input) {
    borrows_ = true;
    return input.bytes[0].data();
  }

  absl::StatusOr<const std::byte*> GatherToScratch(const Input& input) {
    PHASOR_ASSIGN_OR_RETURN(std::byte* const copy, Scratch(input.slot.bytes));
    CopyPieces(input.bytes, copy);
    return copy;
  }

  absl::StatusOr<std::byte*> Scratch(int64_t bytes) {
    BufferRef scratch = pool_.Get(bytes);
    if (scratch == nullptr) return NoMemory(bytes);
    scratch_.push_back(std::move(scratch));
    return scratch_.back()->data();
  }

  BufferPool& pool_;
  Backend& backend_;
  std::byte* const output_;
  bool borrows_ = false;
  absl::InlinedVector<BufferRef, 4> scratch_;
};

// Why a call that runs should end; OK: it should not.
absl::Status WhyStop(const Call& call, const Clock& clock) {
  if (call.cancelled()) return absl::CancelledError("server: cancelled by the caller");
  if (call.deadline <= clock.Now()) {
    return absl::DeadlineExceededError("server: deadline passed in the middle; allow more time");
  }
  return absl::OkStatus();
}

// The status of an item whose job failed. ABORTED if an input that it was to change in place may be
// changed in part: the caller cannot repeat the call then.
absl::Status HalfDone(const Item& item, const JobResult& result, const Stop* stop) {
  const absl::Status stopped = stop == nullptr ? absl::OkStatus() : stop->why();
  const absl::Status& why = result.status.ok() ? stopped : result.status;
  if (result.status.ok() ? !stop->begun() : result.intact) return why;
  bool changed = false;
  for (const Output& output : item.outputs) {
    if (!IsInPlace(item, output)) continue;
    changed = true;
    if (output.place.dirty != nullptr) output.place.dirty->store(true, std::memory_order_relaxed);
  }
  if (!changed) return why;
  if (result.status.ok()) return HalfMoved(why);
  return absl::AbortedError(
      absl::StrCat("server: failed in the middle of an in-place call; start again from the "
                   "original, because what it was to change holds neither input "
                   "nor output: ",
                   result.status.message()));
}

// The path of an item for errors; most items need none, so it is written in place.
class ItemPath {
 public:
  std::string_view Of(const Call& call, size_t i) {
    if (!call.batch) return "item";
    char* const end = std::to_chars(text_.data() + 6, text_.end() - 1, i).ptr;
    *end = ']';
    return {text_.data(), static_cast<size_t>(end + 1 - text_.data())};
  }

 private:
  std::array<char, 32> text_ = {'i', 't', 'e', 'm', 's', '['};
};

// What a job belongs to.
struct JobOwner {
  size_t item = 0;
  std::unique_ptr<Stop> stop;  // nullptr: the job runs to its end
};

// A call that runs together with others.
class StagedCall {
 public:
  StagedCall(Call* call, Backend* backend, BufferPool* pool, const Clock* clock)
      : call_(*call), backend_(*backend), pool_(*pool), clock_(*clock) {
    status_ = Stage();
  }

  // The jobs of the backend; none if staging failed.
  Jobs& jobs() { return jobs_; }

  size_t job_count() const { return owners_.size(); }

  // The answer. `ran`: the results of the jobs.
  absl::StatusOr<Result> Finish(absl::Span<const JobResult> ran) {
    if (!status_.ok()) return std::move(status_);
    for (size_t k = 0; k < ran.size(); ++k) {
      const Item& item = call_.items[owners_[k].item];
      ItemResult& item_result = result_.items[owners_[k].item];
      item_result.backend = ran[k].backend;
      const Stop* const stop = owners_[k].stop.get();
      if (ran[k].status.ok() && (stop == nullptr || stop->why().ok())) continue;
      item_result.status = HalfDone(item, ran[k], stop);
      item_result.outputs.clear();
    }
    if (stager_->borrows()) call_.ReleasePayload();
    return std::move(result_);
  }

 private:
  absl::Status Stage() {
    PHASOR_RETURN_IF_ERROR(call_.FetchPayload(pool_));
    const int64_t bytes = PlaceOutputs(call_, &result_.items);
    result_.buffer = pool_.Get(bytes);
    if (result_.buffer == nullptr) return NoMemory(bytes);

    stager_.emplace(&pool_, &backend_, result_.buffer->data());
    jobs_.reserve(call_.items.size());
    owners_.reserve(call_.items.size());
    ItemPath path;
    size_t next = 0;  // index in the message
    for (size_t i = 0; i < call_.items.size(); ++i) {
      ItemResult& item_result = result_.items[i];
      const size_t index = std::exchange(next, next + call_.items[i].parts);
      if (!call_.items[i].status.ok()) {
        item_result.status = call_.items[i].status;
        continue;
      }
      item_result.status =
          stager_->StageItem(call_.items[i], item_result.outputs, path.Of(call_, index), &jobs_);
      if (!item_result.status.ok()) {
        item_result.outputs.clear();
        continue;
      }
      owners_.push_back({i, nullptr});
      if (auto* const move = std::get_if<MoveJob>(&jobs_.back())) {
        owners_.back().stop = std::make_unique<Stop>(
            [call = &call_, clock = &clock_] { return WhyStop(*call, *clock); });
        move->stop = owners_.back().stop.get();
      }
    }
    if (!stager_->borrows()) call_.ReleasePayload();
    return absl::OkStatus();
  }

  Call& call_;
  Backend& backend_;
  BufferPool& pool_;
  const Clock& clock_;
  absl::Status status_;
  Result result_;
  std::optional<Stager> stager_;
  Jobs jobs_;
  absl::InlinedVector<JobOwner, 1> owners_;  // of each job
};

}  // namespace

int64_t ScratchBytes(const Item& item) {
  int64_t bytes = 0;
  for (const Input& input : item.inputs) {
    const InputSlot& slot = input.slot;
    const bool numbers = slot.reading == Reading::kNumbers;
    const bool copied = input.bytes.size() > 1 || (numbers && input.changing);
    bytes += slot.extra_bytes;
    if (!copied || slot.reading == Reading::kInitial || NeedsNoScratch(item, slot)) continue;
    bytes += slot.bytes;
  }
  return bytes;
}

Results RunCalls(absl::Span<Call* const> calls, Backend& backend, BufferPool& pool,
                 const Clock& clock, RunFacts* facts) {
  const Tick begun = Now();
  absl::InlinedVector<StagedCall, 1> staged;
  staged.reserve(calls.size());
  for (Call* const call : calls) staged.emplace_back(call, &backend, &pool, &clock);
  Jobs jobs = std::move(staged[0].jobs());
  for (size_t i = 1; i < staged.size(); ++i) {
    std::move(staged[i].jobs().begin(), staged[i].jobs().end(), std::back_inserter(jobs));
  }
  const Tick gathered = Now();
  absl::InlinedVector<JobResult, 1> ran(jobs.size());
  if (!jobs.empty()) backend.RunEach(jobs, absl::MakeSpan(ran));
  const Tick computed = Now();
  if (facts != nullptr) {
    facts->jobs = static_cast<int64_t>(jobs.size());
    facts->gather = absl::FromChrono(gathered - begun);
    facts->compute = absl::FromChrono(computed - gathered);
  }
  for (Call* const call : calls) {
    call->phases.started = begun;
    call->phases.gathered = gathered;
    call->phases.computed = computed;
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
