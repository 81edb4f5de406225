// SPDX-License-Identifier: Apache-2.0
// Runs calls: gets memory for outputs, gathers inputs, checks values and runs the backend.
#ifndef PHASOR_SERVER_ENGINE_RUN_CALL_H_
#define PHASOR_SERVER_ENGINE_RUN_CALL_H_

#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kernels/backend/backend.h"
#include "server/base/clock.h"
#include "server/engine/buffer.h"
#include "server/engine/call.h"

namespace phasor::engine {

// One result per call, in order.
using Results = absl::InlinedVector<absl::StatusOr<Result>, 1>;

// What a run did, and how long each step took.
struct RunFacts {
  int64_t jobs = 0;  // given to the backend
  absl::Duration gather;
  absl::Duration compute;
};

// Memory that a run needs besides the item's own and its outputs: copies of inputs in several
// pieces, and of positions and slots in memory that others may write.
int64_t ScratchBytes(const Item& item);

// Computes every item of every call in one Backend::RunEach. A call or an item that fails does not
// affect the others. Calls ReleasePayload of a call as soon as nothing reads its payload any more.
// Errors of a call: UNAVAILABLE (no memory), and those of FetchPayload. Errors of an item: those of
// its job, and ABORTED if the job failed in the middle of changing its input in place. A move whose
// caller leaves, or whose deadline passes by `clock`, ends before its next piece: CANCELLED,
// DEADLINE_EXCEEDED, or ABORTED in place. `facts` is filled in unless nullptr.
Results RunCalls(absl::Span<Call* const> calls, Backend& backend, BufferPool& pool,
                 const Clock& clock, RunFacts* facts = nullptr);

}  // namespace phasor::engine

#endif  // PHASOR_SERVER_ENGINE_RUN_CALL_H_
