// SPDX-License-Identifier: Apache-2.0
// What a worker does with a call: output memory, gather, checks of values, backend.
#ifndef PHASOR_SERVER_ENGINE_RUN_CALL_H_
#define PHASOR_SERVER_ENGINE_RUN_CALL_H_

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "server/engine/buffer.h"
#include "server/engine/call.h"

namespace phasor::engine {

// Computes every item of `call`; an item that fails does not touch the others. Calls ReleasePayload
// as soon as nothing reads the payload any more. UNAVAILABLE: no memory; errors of FetchPayload and
// Backend::Run.
absl::StatusOr<Result> RunCall(Call& call, Backend& backend, BufferPool& pool);

}  // namespace phasor::engine

#endif  // PHASOR_SERVER_ENGINE_RUN_CALL_H_
