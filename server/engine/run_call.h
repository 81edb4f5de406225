// SPDX-License-Identifier: Apache-2.0
// What a worker does with calls: output memory, gather, checks of values, backend.
#ifndef PHASOR_SERVER_ENGINE_RUN_CALL_H_
#define PHASOR_SERVER_ENGINE_RUN_CALL_H_

#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kernels/backend/backend.h"
#include "server/engine/buffer.h"
#include "server/engine/call.h"

namespace phasor::engine {

// One per call, in order.
using Results = absl::InlinedVector<absl::StatusOr<Result>, 1>;

// What a run was, and where its time went.
struct RunFacts {
  int64_t jobs = 0;  // that the backend was given
  absl::Duration gather;
  absl::Duration compute;
};

// Memory that a run takes beside the item's own and its outputs: copies of input that came in
// several pieces, and of numbers that others may write.
int64_t ScratchBytes(const Item& item);

// Computes every item of every call in one Backend::RunEach; a call or an item that fails does not
// touch the others. Calls a call's ReleasePayload as soon as nothing reads its payload any more.
// Errors of a call: UNAVAILABLE, no memory; those of FetchPayload. Of an item: those of its job;
// ABORTED: the job failed in the middle of changing its input in place.
// `facts`: nullptr, or what is filled in.
Results RunCalls(absl::Span<Call* const> calls, Backend& backend, BufferPool& pool,
                 RunFacts* facts = nullptr);

}  // namespace phasor::engine

#endif  // PHASOR_SERVER_ENGINE_RUN_CALL_H_
