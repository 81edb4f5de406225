// SPDX-License-Identifier: Apache-2.0
// Runs each batch: sends chunks to the device, lands their results in order, and rescues what
// fails.
#include "kernels/cuda/cuda_backend.h"

#include <algorithm>
#include <cstdlib>
#include <new>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"
#include "kernels/cuda/chunk.h"
#include "kernels/cuda/host_copies.h"
#include "kernels/cuda/job_rows.h"
#include "kernels/cuda/move_keys.h"
#include "kernels/cuda/move_rows.h"
#include "kernels/cuda/run_on_host.h"

namespace phasor::cuda {
namespace {

// The most chunks of one call in flight: while one travels, the next is packed.
constexpr size_t kInFlight = 2;

// Copies tensors that arrived in pieces to the memory in which they are rotated.
void GatherPieces(const Job& job) {
  const auto* rotary = std::get_if<RotaryJob>(&job);
  if (rotary == nullptr) return;
  for (const RotaryTensor& tensor : rotary->tensors) {
    if (tensor.pieces.empty()) continue;
    const int64_t bytes = rotary->batch * rotary->tokens * tensor.heads *
                          rotary->plan->spec.head_dim * SizeOf(tensor.dtype);
    PieceReader(tensor.pieces, 0).Read(bytes, tensor.y);
  }
}

struct FreeMemory {
  void operator()(std::byte* memory) const { std::free(memory); }
};
using HostMemory = std::unique_ptr<std::byte, FreeMemory>;

HostMemory AllocateHost(int64_t bytes) {
  auto* const memory = static_cast<std::byte*>(
      std::aligned_alloc(256, static_cast<size_t>(AlignUp(bytes + 1, 256))));
  if (memory == nullptr) throw std::bad_alloc();
  return HostMemory(memory);
}

}  // namespace

// Carries out one call of RunEach. `rows` are those of the jobs' tensors, found while the device
// was in use. Chunks are finished in the order in which they were sent, so the finished rows of a
// job are always its first ones. Jobs in device memory have their own chunks, because only chunks
// of host memory can be finished on the host. Threads: one thread at a time.
class BatchRun {
 public:
  // If `use` is empty, the device is lost. Otherwise jobs in host memory go to the device if
  // `travel` is kYes.
  BatchRun(CudaBackend& backend, absl::Span<const Job> jobs, absl::Span<const JobRows> rows,
           const DeviceLife::Use& use, Travel travel, absl::Span<JobResult> results)
      : backend_(backend),
        jobs_(jobs),
        rows_(rows),
        has_device_(static_cast<bool>(use)),
        travel_(travel),
        results_(results),
        progress_(jobs.size()) {}

  void Run() {
    std::vector<size_t> in_device_memory;
    for (size_t i = 0; i < jobs_.size(); ++i) {
      if (!Sort(i)) continue;
      if (progress_[i].on_device) {
        in_device_memory.push_back(i);
      } else {
        SendJob(i);
      }
    }
    SendChunk();
    for (const size_t i : in_device_memory) SendJob(i);
    SendChunk();
    while (!flights_.empty()) Land();
    RunRest();
    Report();
  }

 private:
  enum class Where {
    kDevice,
    kElsewhere,  // the other backend runs it
    kRescued,    // the device failed it; the other backend runs it from the start
    kFailed,     // neither can compute it; its result says why
  };
  struct Progress {
    Where where = Where::kDevice;
    bool on_device = false;      // some of its tensors are in device memory
    bool begun = false;          // some rows are written, or may be
    bool finished_here = false;  // it rotates in place, had begun, and the device failed it
  };
  struct Flight {
    Chunk chunk;
    std::vector<size_t> jobs;  // of the chunk's parts
    Slot* slot = nullptr;
    bool launched = false;  // a kernel may have run
  };

  // Decides where a job begins. Returns true for the device.
  bool Sort(size_t i) {
    const auto* const move = std::get_if<MoveJob>(&jobs_[i]);
    if (move == nullptr && RowsOf(jobs_[i]) == 0) return false;
    const JobRows& rows = rows_[i];
    Progress& progress = progress_[i];
    progress.on_device = rows.place != Place::kHost;
    if (progress.on_device && (rows.place == Place::kGone || !has_device_)) {
      FailJob(i, Lost(), /*intact=*/false);
      return false;
    }
    if (move != nullptr) return SortMove(i, *move);
    const bool sends = progress.on_device ? rows.aligned : has_device_ && travel_ == Travel::kYes;
    // A chunk without launches must not be sent, because its buffers would be empty.
    const bool has_work = std::any_of(rows.out.begin(), rows.out.end(),
                                      [](const HostRows& out) { return out.row_bytes() > 0; });
    if (!sends || !has_work || !Supports(jobs_[i])) progress.where = Where::kElsewhere;
    return progress.where == Where::kDevice;
  }

  // Keys are moved where they lie: those in host memory by the other backend, and those on the
  // device by it alone, because copies would overwrite what others write beside them meanwhile.
  bool SortMove(size_t i, const MoveJob& move) {
    if (!progress_[i].on_device) {
      progress_[i].where = Where::kElsewhere;
    } else if (!Supports(jobs_[i])) {
      FailJob(i,
              absl::UnimplementedError(
                  StrCat("cuda: a move that rotates or compares heads of more than ", kMostKeyLanes,
                         " lanes or has misaligned lanes; must be of host memory")),
              /*intact=*/true);
    } else if (move.mode == MoveMode::kCompare) {
      ClearReports(move);
    }
    return progress_[i].where == Where::kDevice;
  }

  // Whether another part of a job may begin: a move may be stopped.
  static bool MayBegin(const Job& job) {
    const auto* const move = std::get_if<MoveJob>(&job);
    return move == nullptr || move->stop == nullptr || move->stop->MayBegin();
  }

  void SendJob(size_t i) {
    GatherPieces(jobs_[i]);
    const int64_t rows = RowsOf(jobs_[i]);
    for (int64_t first = 0; first < rows && progress_[i].where == Where::kDevice;) {
      if (!MayBegin(jobs_[i])) return;
      const int64_t added = next_.chunk.Add(jobs_[i], rows_[i], first);
      if (added > 0) {
        next_.jobs.push_back(i);
        first += added;
      } else if (!next_.jobs.empty()) {
        SendChunk();
      } else if (std::holds_alternative<MoveJob>(jobs_[i])) {
        const absl::Status large = absl::ResourceExhaustedError(
            "cuda: the specs of a token's layers fill more than a chunk; must be fewer in a call");
        return FailJob(i, large, /*intact=*/first == 0);
      } else {
        if (first > 0) std::abort();             // all rows of a job have the same size
        progress_[i].where = Where::kElsewhere;  // a row is larger than a chunk
      }
    }
  }

  // Sends the chunk that is being filled and begins another.
  void SendChunk() {
    if (next_.jobs.empty()) return;
    Flight flight = std::exchange(next_, NewFlight());
    if (flight.chunk.buffer_bytes() == 0) return;  // moves of keys that change no byte
    absl::Status sent = Send(flight);
    if (sent.ok()) {
      flights_.push_back(std::move(flight));
      if (flights_.size() == kInFlight) Land();
      return;
    }
    while (!flights_.empty()) Land();  // their rows come before these
    Fail(flight, sent);
  }

  // Takes a slot and queues everything. If no slot is free, lands chunks that were sent earlier
  // first.
  absl::Status Send(Flight& flight) {
    if (!backend_.life_.working()) return absl::UnavailableError("cuda: the device is lost");
    const int64_t bytes = flight.chunk.buffer_bytes();
    PHASOR_ASSIGN_OR_RETURN(flight.slot, backend_.slots_.Take(bytes, flights_.empty()));
    while (flight.slot == nullptr) {
      Land();
      PHASOR_ASSIGN_OR_RETURN(flight.slot, backend_.slots_.Take(bytes, flights_.empty()));
    }
    int64_t launched = 0;
    absl::Status sent = flight.chunk.Queue(*flight.slot, *backend_.driver_, &launched);
    flight.launched = launched > 0;
    counts_.launches += launched;
    return sent;
  }

  // Waits for the oldest chunk in flight and takes its results.
  void Land() {
    Flight flight = std::move(flights_.front());
    flights_.erase(flights_.begin());
    if (absl::Status done = backend_.driver_->Synchronize(flight.slot->stream); !done.ok()) {
      return Fail(flight, done);
    }
    ++counts_.chunks;
    for (size_t p = 0; p < flight.jobs.size(); ++p) {
      Progress& progress = progress_[flight.jobs[p]];
      if (progress.where != Where::kDevice) continue;
      Chunk::Finish(flight.chunk.parts()[p], flight.slot->host_out);
      progress.begun = true;
    }
    backend_.slots_.Give(flight.slot);
  }

  // Handles a chunk that the device did not compute. Earlier chunks have landed.
  void Fail(Flight& flight, const absl::Status& error) {
    backend_.Note(error);
    if (flight.slot != nullptr) {
      // Wait, so that queued work does not write into the buffers of another chunk.
      if (absl::Status idle = backend_.driver_->Synchronize(flight.slot->stream); !idle.ok()) {
        backend_.Note(idle);
      }
      backend_.slots_.Give(flight.slot);
    }
    bool finish_here = false;
    for (const size_t i : flight.jobs) finish_here = Rescue(i, flight, error) || finish_here;
    if (finish_here) FinishHere(flight);
  }

  // Decides who computes the rest of a job. Returns true if the kernels' code must do it on the
  // host, because some of the job's input is overwritten already.
  bool Rescue(size_t i, const Flight& flight, const absl::Status& error) {
    Progress& progress = progress_[i];
    if (progress.where != Where::kDevice) return false;
    if (backend_.options_.strict) {
      FailJob(i, error, /*intact=*/false);
      return false;
    }
    progress.begun = progress.begun || (progress.on_device && flight.launched);
    if (std::holds_alternative<MoveJob>(jobs_[i])) {
      FailMove(i, error);
      return false;
    }
    if (!progress.begun || !IsInPlace(jobs_[i])) {
      progress.where = Where::kRescued;
      return false;
    }
    if (progress.on_device) {
      FailJob(i, absl::AbortedError(std::string(error.message())), /*intact=*/false);
      return false;
    }
    progress.finished_here = true;
    return true;
  }

  // Nobody else moves keys on the device.
  void FailMove(size_t i, const absl::Status& error) {
    const bool begun = progress_[i].begun;
    if (absl::IsUnavailable(error)) return FailJob(i, Lost(), /*intact=*/false);
    if (begun && IsInPlace(jobs_[i])) {
      return FailJob(i, absl::AbortedError(std::string(error.message())), /*intact=*/false);
    }
    FailJob(i, absl::UnavailableError(StrCat(error.message(), "; try again")), /*intact=*/!begun);
  }

  void FailJob(size_t i, absl::Status status, bool intact) {
    progress_[i].where = Where::kFailed;
    results_[i] = {std::move(status), backend_.name(), intact};
  }

  // Runs the kernels' code on the host for jobs that cannot begin again.
  void FinishHere(const Flight& flight) {
    const HostMemory in = AllocateHost(flight.chunk.in_bytes());
    const HostMemory out = AllocateHost(flight.chunk.out_bytes());
    for (const Launch& launch : flight.chunk.Stage(in.get(), in.get(), out.get())) {
      RunOnHost(launch.kernel, launch.batch);
    }
    for (size_t p = 0; p < flight.jobs.size(); ++p) {
      if (progress_[flight.jobs[p]].where != Where::kDevice) continue;
      Chunk::Finish(flight.chunk.parts()[p], out.get());
    }
  }

  // Runs on the other backend what the device did not run.
  void RunRest() {
    std::vector<Job> elsewhere;
    std::vector<size_t> numbers;
    for (size_t i = 0; i < jobs_.size(); ++i) {
      const Progress& progress = progress_[i];
      if (progress.where == Where::kDevice || progress.where == Where::kFailed) continue;
      if (progress.on_device) {
        RunOnCopies(i);
      } else {
        elsewhere.push_back(jobs_[i]);
        numbers.push_back(i);
      }
    }
    if (elsewhere.empty()) return;
    std::vector<JobResult> results(elsewhere.size());
    backend_.other_->RunEach(elsewhere, absl::MakeSpan(results));
    for (size_t k = 0; k < numbers.size(); ++k) results_[numbers[k]] = std::move(results[k]);
  }

  // Runs a job in device memory on the other backend, on copies.
  void RunOnCopies(size_t i) {
    const JobRows& rows = rows_[i];
    const auto room = backend_.TakeForCopies(HostCopies::BytesFor(jobs_[i], rows));
    if (!room.ok()) return FailJob(i, room.status(), /*intact=*/true);
    auto slot = backend_.slots_.Take(1, /*wait=*/true);
    if (!slot.ok()) return FailCopy(i, slot.status(), /*intact=*/true);
    auto copies = HostCopies::Make(jobs_[i], rows, backend_.driver_.get(), (*slot)->stream);
    if (copies.ok()) {
      backend_.other_->RunEach({&copies->job(), 1}, {&results_[i], 1});
      if (results_[i].status.ok()) {
        const absl::Status written = copies->WriteBack();
        if (!written.ok()) FailCopy(i, written, /*intact=*/false);
      }
    } else if (absl::IsResourceExhausted(copies.status())) {
      FailJob(i, copies.status(), /*intact=*/true);  // too large now and later
    } else {
      FailCopy(i, copies.status(), /*intact=*/true);
    }
    backend_.slots_.Give(*slot);
  }

  void FailCopy(size_t i, const absl::Status& error, bool intact) {
    backend_.Note(error);
    if (absl::IsUnavailable(error)) return FailJob(i, Lost(), /*intact=*/false);
    FailJob(i, absl::UnavailableError(StrCat(error.message(), "; try again")), intact);
  }

  static absl::Status Lost() {
    return absl::AbortedError("cuda: the device was lost, and what was in its memory with it");
  }

  // Fills in the results of jobs that the device ran, and counts.
  void Report() {
    for (size_t i = 0; i < jobs_.size(); ++i) {
      const Progress& progress = progress_[i];
      const bool here = progress.finished_here;
      if (progress.where == Where::kDevice) {
        const Backend& did = here ? *backend_.other_ : static_cast<const Backend&>(backend_);
        results_[i] = {absl::OkStatus(), did.name(), false};
        const bool whole = !here && RowsOf(jobs_[i]) > 0;
        counts_.jobs_on_device += whole;
        counts_.jobs_in_device_memory += whole && progress.on_device;
      }
      const bool elsewhere = progress.where == Where::kElsewhere;
      const bool sooner =
          elsewhere && has_device_ && !progress.on_device && travel_ == Travel::kSoonerOnHost;
      counts_.jobs_sooner_on_host += sooner;
      counts_.jobs_not_for_device += elsewhere && !sooner;
      counts_.jobs_rescued += progress.where == Where::kRescued || here;
      counts_.jobs_failed += progress.where == Where::kFailed;
    }
    backend_.Add(counts_);
  }

  Flight NewFlight() const {
    return {
        Chunk(backend_.options_.chunk_bytes, backend_.driver_->device().processors), {}, nullptr};
  }

  CudaBackend& backend_;
  const absl::Span<const Job> jobs_;
  const absl::Span<const JobRows> rows_;
  const bool has_device_;
  const Travel travel_;
  const absl::Span<JobResult> results_;
  std::vector<Progress> progress_;
  Flight next_ = NewFlight();
  std::vector<Flight> flights_;
  CudaState counts_;
};

CudaBackend::CudaBackend(std::unique_ptr<Driver> driver, std::shared_ptr<Backend> other,
                         const CudaBackendOptions& options)
    : driver_(std::move(driver)),
      other_(std::move(other)),
      options_(options),
      slots_(driver_.get(), options.slots),
      life_(options.life, [this] { return Revive(); }) {}

CudaBackend::~CudaBackend() = default;

std::string CudaBackend::device_uuid() const {
  const auto& bytes = driver_->device().uuid;
  const std::string digits =
      absl::BytesToHexString({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  return StrCat("GPU-", digits.substr(0, 8), "-", digits.substr(8, 4), "-", digits.substr(12, 4),
                "-", digits.substr(16, 4), "-", digits.substr(20));
}

BatchPolicy CudaBackend::batch_policy() const {
  if (!options_.host_tensors || !life_.working()) return {};
  return {.bytes = options_.chunk_bytes, .least_bytes = options_.least_bytes, .runs = kRuns};
}

absl::Status CudaBackend::Run(absl::Span<const Job> jobs) {
  std::vector<JobResult> results(jobs.size());
  RunEach(jobs, absl::MakeSpan(results));
  for (JobResult& result : results) PHASOR_RETURN_IF_ERROR(std::move(result.status));
  return absl::OkStatus();
}

void CudaBackend::RunEach(absl::Span<const Job> jobs, absl::Span<JobResult> results) {
  DeviceLife::Use first = life_.EnterIfWorking();  // so that no address changes its meaning
  std::vector<JobRows> rows;
  rows.reserve(jobs.size());
  int64_t of_host = -1;  // bytes that jobs in host memory write; -1: there are none
  for (const Job& job : jobs) {
    rows.push_back(RowsOfTensors(job, &memory_));
    if (rows.back().place == Place::kHost) {
      of_host = std::max<int64_t>(of_host, 0) + BytesOf(job).written;
    }
  }
  const Travel travel = ShouldTravel(of_host);
  // In a fresh context, memory of the old one is still gone.
  const bool revives = !first && travel == Travel::kYes;
  const DeviceLife::Use use = revives ? life_.Enter() : std::move(first);
  BatchRun(*this, jobs, rows, use, travel, results).Run();
}

Travel CudaBackend::ShouldTravel(int64_t written) const {
  if (written < 0 || written < options_.least_bytes) return Travel::kTooSmall;
  return options_.host_tensors ? Travel::kYes : Travel::kSoonerOnHost;
}

absl::StatusOr<HostMemoryShare> CudaBackend::TakeForCopies(int64_t bytes) const {
  if (bytes > options_.copied_bytes) {
    return absl::ResourceExhaustedError(StrCat("cuda: the CPU would need copies of ", bytes,
                                               " bytes of the device's memory; a job may have ",
                                               options_.copied_bytes));
  }
  if (!copy_budget_) return HostMemoryShare();
  absl::StatusOr<HostMemoryShare> share = copy_budget_(bytes);
  if (share.ok()) return share;
  return absl::Status(share.status().code(), StrCat("cuda: copies of the device's memory for the "
                                                    "CPU: ",
                                                    share.status().message()));
}

absl::Status CudaBackend::Revive() {
  slots_.Forget();
  return driver_->Reset();
}

void CudaBackend::Note(const absl::Status& error) {
  const bool was_working = life_.working();
  life_.Note(error);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (was_working) state_.last_error = std::string(error.message());
}

void CudaBackend::Add(const CudaState& counts) {
  const std::lock_guard<std::mutex> lock(mutex_);
  state_.chunks += counts.chunks;
  state_.launches += counts.launches;
  state_.jobs_on_device += counts.jobs_on_device;
  state_.jobs_sooner_on_host += counts.jobs_sooner_on_host;
  state_.jobs_not_for_device += counts.jobs_not_for_device;
  state_.jobs_rescued += counts.jobs_rescued;
  state_.jobs_in_device_memory += counts.jobs_in_device_memory;
  state_.jobs_failed += counts.jobs_failed;
}

CudaState CudaBackend::state() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return state_;
}

DeviceCounts CudaBackend::device_counts() const {
  const CudaState now = state();
  const bool usable = life_.state().kind == DeviceState::Kind::kWorking;
  return DeviceCounts{usable, now.jobs_on_device, now.jobs_not_for_device, now.jobs_rescued,
                      now.jobs_sooner_on_host};
}

}  // namespace phasor::cuda
