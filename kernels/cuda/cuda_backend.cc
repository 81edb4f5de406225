// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/cuda_backend.h"

#include <cstdlib>
#include <deque>
#include <new>
#include <utility>
#include <vector>

#include "kernels/cuda/chunk.h"
#include "kernels/cuda/run_on_host.h"
#include "kernels/status_macros.h"

namespace phasor::cuda {
namespace {

// Chunks of one call in flight: while one travels, the next is packed.
constexpr size_t kInFlight = 2;

// Bytes that a job writes, with room to spare for what is not written.
int64_t BytesWritten(const Job& job) {
  const int64_t rows = RowsOf(job);
  if (const auto* encode = std::get_if<EncodeJob>(&job)) {
    return rows * LayoutOf(*encode).width * SizeOf(encode->dtype);
  }
  if (const auto* lookup = std::get_if<LookupJob>(&job)) {
    return rows * lookup->table->columns * SizeOf(lookup->dtype);
  }
  if (const auto* bias = std::get_if<BiasJob>(&job)) {
    return rows * bias->heads * bias->keys->count() * SizeOf(bias->dtype);
  }
  const auto& rotary = std::get<RotaryJob>(job);
  int64_t bytes = 0;
  for (const RotaryTensor& tensor : rotary.tensors) {
    bytes += rows * tensor.heads * rotary.plan->spec.head_dim * SizeOf(tensor.dtype);
  }
  return bytes;
}

// Brings tensors that came in pieces to where they are rotated.
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

// One call of Run. Chunks are finished in the order in which they were sent, so that the rows of a
// job that are done are always the first ones.
// Threads: one.
class BatchRun {
 public:
  BatchRun(CudaBackend& backend, absl::Span<const Job> jobs)
      : backend_(backend), jobs_(jobs), progress_(jobs.size()) {}

  absl::Status Run() {
    for (size_t i = 0; i < jobs_.size(); ++i) {
      if (RowsOf(jobs_[i]) == 0) continue;
      if (Supports(jobs_[i])) {
        SendJob(i);
      } else {
        progress_[i].where = Where::kElsewhere;
      }
    }
    SendChunk();
    while (!flights_.empty()) Land();
    std::vector<Job> elsewhere;
    for (size_t i = 0; i < jobs_.size(); ++i) {
      const Progress& progress = progress_[i];
      if (progress.where != Where::kDevice) elsewhere.push_back(jobs_[i]);
      counts_.jobs_not_for_device += progress.where == Where::kElsewhere;
      counts_.jobs_rescued += progress.where == Where::kRescued || progress.finished_here;
      counts_.jobs_on_device +=
          progress.where == Where::kDevice && !progress.finished_here && RowsOf(jobs_[i]) > 0;
    }
    backend_.Add(counts_);
    return elsewhere.empty() ? absl::OkStatus() : backend_.other_->Run(elsewhere);
  }

 private:
  enum class Where {
    kDevice,
    kElsewhere,  // not for the device
    kRescued,    // the device failed it: from the beginning, elsewhere
  };
  struct Progress {
    Where where = Where::kDevice;
    bool begun = false;          // some rows are written
    bool finished_here = false;  // in place, begun and failed
  };
  struct Flight {
    Chunk chunk;
    std::vector<size_t> jobs;  // of the chunk's parts
    Slot* slot = nullptr;
  };

  void SendJob(size_t i) {
    GatherPieces(jobs_[i]);
    const int64_t rows = RowsOf(jobs_[i]);
    for (int64_t first = 0; first < rows && progress_[i].where == Where::kDevice;) {
      const int64_t added = next_.chunk.Add(jobs_[i], first);
      if (added > 0) {
        next_.jobs.push_back(i);
        first += added;
      } else if (!next_.jobs.empty()) {
        SendChunk();
      } else {
        if (first > 0) std::abort();             // all rows of a job take the same
        progress_[i].where = Where::kElsewhere;  // a row is larger than a chunk
      }
    }
  }

  // Sends the chunk that is being filled and begins another.
  void SendChunk() {
    if (next_.jobs.empty()) return;
    Flight flight = std::exchange(next_, NewFlight());
    absl::Status sent = Send(flight);
    if (sent.ok()) {
      flights_.push_back(std::move(flight));
      if (flights_.size() == kInFlight) Land();
      return;
    }
    while (!flights_.empty()) Land();  // rows before these
    Fail(flight, sent);
  }

  // Takes a slot, waits for an earlier chunk's if there is no other, and queues everything.
  absl::Status Send(Flight& flight) {
    if (backend_.lost()) return absl::UnavailableError("cuda: the device is lost");
    const int64_t bytes = std::max(flight.chunk.in_bytes(), flight.chunk.out_bytes());
    PHASOR_ASSIGN_OR_RETURN(flight.slot, backend_.slots_.Take(bytes, flights_.empty()));
    while (flight.slot == nullptr) {
      Land();
      PHASOR_ASSIGN_OR_RETURN(flight.slot, backend_.slots_.Take(bytes, flights_.empty()));
    }
    Slot& slot = *flight.slot;
    Driver& driver = *backend_.driver_;
    const std::vector<Launch> launches =
        flight.chunk.Stage(slot.host_in, slot.device_in, slot.device_out);
    PHASOR_RETURN_IF_ERROR(
        driver.CopyToDevice(slot.device_in, slot.host_in, flight.chunk.in_bytes(), slot.stream));
    for (const Launch& launch : launches) PHASOR_RETURN_IF_ERROR(driver.Run(launch, slot.stream));
    counts_.launches += static_cast<int64_t>(launches.size());
    return driver.CopyToHost(slot.host_out, slot.device_out, flight.chunk.out_bytes(), slot.stream);
  }

  // Waits for the oldest chunk in flight and takes its results.
  void Land() {
    Flight flight = std::move(flights_.front());
    flights_.pop_front();
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

  // The device did not do this chunk. Its earlier ones have landed.
  void Fail(Flight& flight, const absl::Status& error) {
    backend_.Note(error);
    if (flight.slot != nullptr) {
      // What was queued must not write into the buffers of another chunk.
      if (absl::Status idle = backend_.driver_->Synchronize(flight.slot->stream); !idle.ok()) {
        backend_.Note(idle);
      }
      backend_.slots_.Give(flight.slot);
    }
    bool finish_here = false;
    for (const size_t i : flight.jobs) finish_here = Rescue(i) || finish_here;
    if (finish_here) FinishHere(flight);
  }

  // Decides who does the rest of a job: true if its rows are to be done here, because what it reads
  // is partly overwritten.
  bool Rescue(size_t i) {
    Progress& progress = progress_[i];
    if (progress.where != Where::kDevice) return false;
    if (progress.begun && IsInPlace(jobs_[i])) {
      progress.finished_here = true;
      return true;
    }
    progress.where = Where::kRescued;
    return false;
  }

  // Runs the kernels' code on the host for the jobs that cannot begin again.
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

  Flight NewFlight() const { return {Chunk(backend_.options_.chunk_bytes), {}, nullptr}; }

  CudaBackend& backend_;
  const absl::Span<const Job> jobs_;
  std::vector<Progress> progress_;
  Flight next_ = NewFlight();
  std::deque<Flight> flights_;
  CudaState counts_;
};

CudaBackend::CudaBackend(std::unique_ptr<Driver> driver, std::unique_ptr<Backend> other,
                         const CudaBackendOptions& options)
    : driver_(std::move(driver)),
      other_(std::move(other)),
      options_(options),
      slots_(driver_.get(), options.slots) {}

CudaBackend::~CudaBackend() = default;

BatchPolicy CudaBackend::batch_policy() const {
  if (lost()) return {};
  return {.bytes = options_.chunk_bytes, .least_bytes = options_.least_bytes, .runs = kRuns};
}

absl::Status CudaBackend::Run(absl::Span<const Job> jobs) {
  int64_t bytes = 0;
  for (const Job& job : jobs) bytes += BytesWritten(job);
  if (bytes < options_.least_bytes || lost()) {
    CudaState counts;
    counts.jobs_not_for_device = static_cast<int64_t>(jobs.size());
    Add(counts);
    return other_->Run(jobs);
  }
  return BatchRun(*this, jobs).Run();
}

bool CudaBackend::lost() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return state_.lost;
}

void CudaBackend::Note(const absl::Status& error) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (state_.lost) return;  // the first of those errors says why
  state_.last_error = std::string(error.message());
  state_.lost = state_.lost || absl::IsUnavailable(error);
}

void CudaBackend::Add(const CudaState& counts) {
  const std::lock_guard<std::mutex> lock(mutex_);
  state_.chunks += counts.chunks;
  state_.launches += counts.launches;
  state_.jobs_on_device += counts.jobs_on_device;
  state_.jobs_not_for_device += counts.jobs_not_for_device;
  state_.jobs_rescued += counts.jobs_rescued;
}

CudaState CudaBackend::state() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return state_;
}

std::optional<DeviceCounts> CudaBackend::device_counts() const {
  const CudaState now = state();
  return DeviceCounts{!now.lost, now.jobs_on_device, now.jobs_not_for_device, now.jobs_rescued};
}

}  // namespace phasor::cuda
