// SPDX-License-Identifier: Apache-2.0
// The bytes of a pool that a move writes, for memory that is written back from a copy.
// Threads: pure functions.
#ifndef PHASOR_KERNELS_REQUEST_WRITTEN_BYTES_H_
#define PHASOR_KERNELS_REQUEST_WRITTEN_BYTES_H_

#include <cstddef>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "kernels/request/move_keys.h"

namespace phasor {

// Whether all rows that the move writes to the pool are dense, so that a row is one range of bytes.
bool WritesWholeRows(const PreparedMove& move, size_t pool);

// Calls `range` with all bytes of the pool that the move writes, as [begin, begin + bytes): rows,
// then scales beside them, then slot positions. Ranges that follow one another are joined. The rows
// must be whole.
void ForEachWritten(const PreparedMove& move, size_t pool,
                    absl::FunctionRef<void(int64_t begin, int64_t bytes)> range);

}  // namespace phasor

#endif  // PHASOR_KERNELS_REQUEST_WRITTEN_BYTES_H_
