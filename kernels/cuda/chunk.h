// SPDX-License-Identifier: Apache-2.0
// What one trip to a device does: slices of jobs that fit in its buffers, their tensors packed
// densely. Two buffers each on the host and on the device: what kernels read (tensors, then items
// and tables) and what they write.
#ifndef PHASOR_KERNELS_CUDA_CHUNK_H_
#define PHASOR_KERNELS_CUDA_CHUNK_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/batch.h"
#include "kernels/cuda/host_rows.h"
#include "kernels/cuda/items.h"
#include "kernels/cuda/launch_list.h"
#include "kernels/cuda/row_program.h"

namespace phasor::cuda {

// Whether a job reads memory that it writes, so that running it twice is wrong. Pieces that were
// gathered are still where they came from.
bool IsInPlace(const Job& job);

// Threads: one. Borrows the jobs.
class Chunk {
 public:
  // Neither of its buffers is larger than `capacity` bytes.
  explicit Chunk(int64_t capacity) : capacity_(capacity) {}

  // One job's share.
  struct Part {
    const Job* job = nullptr;
    Slice slice;
    std::vector<HostRows> in;   // what is read: add_to, or the lanes that rotate of every tensor
    std::vector<HostRows> out;  // what is written, likewise
    RowProgram program;         // encode only
    int64_t in_at = 0;          // where the first of `in` goes
    int64_t out_at = 0;
  };

  // Adds rows of a supported job from row `first` on, which it has, as many as fit. Returns how
  // many: 0 when not even one does.
  int64_t Add(const Job& job, int64_t first);

  const std::vector<Part>& parts() const { return parts_; }
  int64_t in_bytes() const { return in_used_ + arena_bytes_; }
  int64_t out_bytes() const { return out_used_; }

  // Fills `in`, which will be at `device_in` when the launches run; they write `device_out`.
  // Buffers are aligned to 256 bytes.
  std::vector<Launch> Stage(std::byte* in, std::byte* device_in, std::byte* device_out) const;

  // Takes a part's results from `out`, a copy of what was written, to where the job wants them.
  static void Finish(const Part& part, const std::byte* out);

 private:
  Part MakePart(const Job& job) const;
  int64_t ArenaBytes(const Part& part) const;
  static void AddItems(const Part& part, std::byte* in, std::byte* out, LaunchList& list,
                       Arena& arena);

  int64_t capacity_;
  std::vector<Part> parts_;
  int64_t in_used_ = 0;  // tensors
  int64_t arena_bytes_ = 0;
  int64_t out_used_ = 0;
};

}  // namespace phasor::cuda

#endif  // PHASOR_KERNELS_CUDA_CHUNK_H_
