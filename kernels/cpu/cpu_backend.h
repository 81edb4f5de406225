// SPDX-License-Identifier: Apache-2.0
// The CPU backend: splits jobs into pieces of rows or tokens and runs them on a thread pool.
#ifndef PHASOR_KERNELS_CPU_CPU_BACKEND_H_
#define PHASOR_KERNELS_CPU_CPU_BACKEND_H_

#include <memory>
#include <optional>

#include "kernels/backend/backend.h"
#include "kernels/cpu/kernels.h"

namespace phasor::cpu {

// How to make a CPU backend.
struct CpuBackendOptions {
  Target target = Target::kScalar;
  int threads = 1;  // >= 1, the caller's included
  // Jobs that write more than this many bytes write them past the caches; 0: half of the last-level
  // cache, which cores share.
  int64_t stream_bytes = 0;
  // Heads of so many pages of a token are rotated in turns where tokens are fetched ahead; 0: those
  // of tensors are not fetched, and keys that move are, page by page. Without a value, what was
  // fastest on this CPU.
  std::optional<int64_t> pages_in_turns;
  // Whether kAvx3 uses that instruction. The CPU must have it.
  bool rounds_to_bfloat16 = RoundsToBFloat16();
  std::string_view name = "cpu";
};

std::unique_ptr<Backend> MakeCpuBackend(const CpuBackendOptions& options);

}  // namespace phasor::cpu

#endif  // PHASOR_KERNELS_CPU_CPU_BACKEND_H_
