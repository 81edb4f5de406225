// SPDX-License-Identifier: Apache-2.0
// Moves cached keys: reads rows, rotates them and writes them, a few tokens of all layers at a
// time, so that layers with one spec share its sines and cosines. See MoveJob in
// kernels/backend/batch.h.
#ifndef PHASOR_KERNELS_CPU_MOVE_H_
#define PHASOR_KERNELS_CPU_MOVE_H_

#include <cstddef>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "kernels/backend/batch.h"
#include "kernels/cpu/kernels.h"

namespace phasor::cpu {

// A job can be cut between its rows: tokens, group after group; in COMPARE, layers.
int64_t MoveRows(const MoveJob& job);
// About the bytes that a row writes or compares.
int64_t MoveRowBytes(const MoveJob& job);

// Runs rows [first, first + count). `pages_in_turns`: as in CpuBackendOptions, if the keys of the
// job are more than the caches hold; otherwise 0. `scratch` returns memory of that size, aligned to
// 64 bytes; the last memory returned is gone then.
void RunMove(const MoveJob& job, int64_t first, int64_t count, RotaryKernel rotary,
             int64_t pages_in_turns, absl::FunctionRef<std::byte*(int64_t)> scratch);

}  // namespace phasor::cpu

#endif  // PHASOR_KERNELS_CPU_MOVE_H_
