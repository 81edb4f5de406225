// SPDX-License-Identifier: Apache-2.0
// Remembers the process that connected first.
#include "client/grpc/forked.h"

#include <unistd.h>

namespace phasor::client_internal {

bool IsForked() {
  static const pid_t first = getpid();
  return getpid() != first;
}

absl::Status CheckNotForked() {
  if (!IsForked()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "client: this process connected to a server before fork(); connect only in the child, or "
      "exec a program there");
}

}  // namespace phasor::client_internal
