// SPDX-License-Identifier: Apache-2.0
// What one trip to a device does: slices of jobs that fit in its buffers, their tensors packed
// densely. Two buffers each on the host and on the device: what kernels read (tensors, then items
// and tables) and what they write (tensors, then copies that stay on the device). Tensors that are
// on the device already take no room, but for those copies: of lanes that change places in place,
// which a launch copies before the one that rotates them.
#ifndef PHASOR_KERNELS_CUDA_CHUNK_H_
#define PHASOR_KERNELS_CUDA_CHUNK_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/backend/batch.h"
#include "kernels/cuda/host_rows.h"
#include "kernels/cuda/items.h"
#include "kernels/cuda/job_rows.h"
#include "kernels/cuda/launch_list.h"
#include "kernels/cuda/row_program.h"
#include "kernels/cuda/slots.h"

namespace phasor::cuda {

// Threads: one. Borrows the jobs.
class Chunk {
 public:
  // Neither of its buffers is larger than `capacity` bytes. `memory` says what is on the device;
  // nullptr: nothing.
  explicit Chunk(int64_t capacity, const DeviceMemory* memory = nullptr)
      : capacity_(capacity), memory_(memory) {}

  // One job's share.
  struct Part {
    const Job* job = nullptr;
    Slice slice;
    JobRows rows;
    RowProgram program;  // encode only
    int64_t in_at = 0;   // where the first of rows.in that is not on the device goes
    int64_t out_at = 0;
    int64_t copy_at = 0;  // where the first of rows.copies goes, from the end of all results
  };

  // Adds rows of a supported job, aligned where it is on the device, from row `first` on, which it
  // has, as many as fit. Returns how many: 0 when not even one does.
  int64_t Add(const Job& job, int64_t first);

  const std::vector<Part>& parts() const { return parts_; }
  int64_t in_bytes() const { return in_used_ + arena_bytes_; }
  int64_t out_bytes() const { return out_used_; }
  // What each of a slot's buffers must hold.
  int64_t buffer_bytes() const { return std::max(in_bytes(), out_used_ + copy_used_); }

  // Fills `in`, which will be at `device_in` when the launches run, one after another; they write
  // `device_out`. Buffers are aligned to 256 bytes.
  std::vector<Launch> Stage(std::byte* in, std::byte* device_in, std::byte* device_out) const;

  // Stages in a slot's buffers, which are large enough. The trip computes the chunk.
  Trip StageIn(const Slot& slot) const;

  // Takes a part's results from `out`, a copy of what was written, to where the job wants them on
  // the host.
  static void Finish(const Part& part, const std::byte* out);

 private:
  Part MakePart(const Job& job) const;
  int64_t ArenaBytes(const Part& part) const;
  static void AddItems(const Part& part, std::byte* in, std::byte* out, std::byte* copies,
                       LaunchList& list, Arena& arena);

  int64_t capacity_;
  const DeviceMemory* memory_;
  std::vector<Part> parts_;
  int64_t in_used_ = 0;  // tensors
  int64_t arena_bytes_ = 0;
  int64_t out_used_ = 0;
  int64_t copy_used_ = 0;
};

}  // namespace phasor::cuda

#endif  // PHASOR_KERNELS_CUDA_CHUNK_H_
