// SPDX-License-Identifier: Apache-2.0
// What one trip to a device does: slices of jobs that fit in its buffers, with their tensors packed
// densely. There are two buffers on the host and two on the device: one that kernels read (tensors,
// then the arena with the items) and one that they write. Tensors that are already on the device
// are not packed. A small arena travels with its launches.
#ifndef PHASOR_KERNELS_CUDA_CHUNK_H_
#define PHASOR_KERNELS_CUDA_CHUNK_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "kernels/backend/batch.h"
#include "kernels/cuda/driver.h"
#include "kernels/cuda/host_rows.h"
#include "kernels/cuda/items.h"
#include "kernels/cuda/job_rows.h"
#include "kernels/cuda/launch_list.h"
#include "kernels/cuda/row_program.h"
#include "kernels/cuda/slots.h"

namespace phasor::cuda {

// A chunk moves so many times its capacity of keys at most: a piece, after which a move can be
// stopped. Keys take no room in its buffers.
inline constexpr int64_t kMovedPerCapacity = 8;

// Collects slices of jobs and stages them for a trip. Borrows the jobs and their rows.
// Threads: one thread at a time.
class Chunk {
 public:
  // Neither buffer becomes larger than `capacity` bytes. `processors`: of the device.
  Chunk(int64_t capacity, int processors) : capacity_(capacity), processors_(processors) {}

  // The share of one job.
  struct Part {
    const Job* job = nullptr;
    const JobRows* rows = nullptr;
    Slice slice;
    RowProgram program;  // encode only
    int64_t in_at = 0;   // where the first of rows->in that is not on the device goes
    int64_t out_at = 0;
  };

  // Adds rows of a job from row `first` on, as many as fit. `rows`: of its tensors. The job must be
  // supported, must have that row, and must be aligned if it is on the device. Returns how many
  // rows: 0 if not even one fits.
  int64_t Add(const Job& job, const JobRows& rows, int64_t first);

  const std::vector<Part>& parts() const { return parts_; }
  // At most: Queue knows how many bytes are sent.
  int64_t in_bytes() const { return in_used_ + arena_bytes_; }
  int64_t out_bytes() const { return out_used_; }
  // What each of a slot's buffers must hold.
  int64_t buffer_bytes() const { return std::max(in_bytes(), out_used_); }

  // Fills `in`, which must be at `device_in` when the launches run. They write to `device_out`.
  // Buffers must be aligned to 256 bytes.
  std::vector<Launch> Stage(std::byte* in, std::byte* device_in, std::byte* device_out) const;

  // Stages in the buffers of a slot, which must be large enough, and queues a copy to the device,
  // the launches, and a copy back: what there is of each. A small arena is not copied, because it
  // travels with the launches. Sets `launched` to the number of launches, also after an error.
  absl::Status Queue(const Slot& slot, Driver& driver, int64_t* launched) const;

  // Copies a part's results from `out`, the host's copy of what the kernels wrote, to the job's
  // outputs on the host.
  static void Finish(const Part& part, const std::byte* out);

 private:
  int64_t CountArena(const Part& part) const;
  static void AddItems(const Part& part, std::byte* in, std::byte* out, LaunchList& list,
                       ItemMaker maker);

  int64_t capacity_;
  int processors_;
  std::vector<Part> parts_;
  int64_t in_used_ = 0;      // tensors
  int64_t arena_bytes_ = 0;  // at most
  int64_t out_used_ = 0;
  int64_t moved_bytes_ = 0;  // of keys
};

}  // namespace phasor::cuda

#endif  // PHASOR_KERNELS_CUDA_CHUNK_H_
