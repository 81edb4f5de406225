// SPDX-License-Identifier: Apache-2.0
// The positions of slots, by which a repeated MOVE sees what is done. Used by
// kernels/request/move_keys.h, and before a job is made.
// Threads: pure functions.
#ifndef PHASOR_KERNELS_REQUEST_SLOT_POSITIONS_H_
#define PHASOR_KERNELS_REQUEST_SLOT_POSITIONS_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/request/move_keys.h"

namespace phasor {

// Bytes of the positions of all destination slots of a group's smallest layout.
int64_t SlotPositionBytes(const PreparedMove& move, size_t group);

// INVALID_ARGUMENT: the positions of a group extend beyond their pool; its
// tokens have several axes, or positions that 32 bits do not hold; in place, a token keeps its
// position under a spec that changes. `path` is that of the group.
absl::Status CheckSlotPositions(const PreparedMove& move, size_t group, std::string_view path);

// Copies bytes of a pool, which may be on a device.
using ReadMemory =
    absl::FunctionRef<absl::Status(const std::byte* from, int64_t bytes, std::byte* out)>;
// Copies bytes of the host's memory.
absl::Status ReadHostMemory(const std::byte* from, int64_t bytes, std::byte* out);

// Compares slot positions with the tokens. Removes the tokens of a MOVE that are done. Call it once
// all pools hold their bytes. FAILED_PRECONDITION: a slot has another position. Also the errors of
// `read`.
absl::Status ReadSlotPositions(absl::Span<const std::byte* const> pools, std::string_view path,
                               PreparedMove* move, ReadMemory read = ReadHostMemory);

}  // namespace phasor

#endif  // PHASOR_KERNELS_REQUEST_SLOT_POSITIONS_H_
