// SPDX-License-Identifier: Apache-2.0
// The target "inproc:": the kernels of the service, run in the caller's process on the caller's
// memory.
#ifndef PHASOR_CLIENT_INPROC_INPROC_CONNECTION_H_
#define PHASOR_CLIENT_INPROC_INPROC_CONNECTION_H_

#include <memory>

#include "absl/status/statusor.h"
#include "client/connection.h"
#include "client/options.h"

namespace phasor::client_internal {

// A connection that computes on the calling thread, and on other threads only if
// options.inproc_threads > 1. It calls `done` before it returns. NOT_FOUND and FAILED_PRECONDITION
// come from MakeBackend for options.inproc_backend.
absl::StatusOr<std::shared_ptr<Connection>> MakeInprocConnection(const ClientOptions& options);

}  // namespace phasor::client_internal

#endif  // PHASOR_CLIENT_INPROC_INPROC_CONNECTION_H_
