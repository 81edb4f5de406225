// SPDX-License-Identifier: Apache-2.0
// Notes in a child of fork() that it is one.
#include "client/grpc/forked.h"

#include <pthread.h>

#include <atomic>

namespace phasor::client_internal {
namespace {

std::atomic<bool> forked = false;

}  // namespace

bool IsForked() {
  [[maybe_unused]] static const int watched =
      pthread_atfork(nullptr, nullptr, [] { forked = true; });
  return forked.load(std::memory_order_relaxed);
}

absl::Status CheckNotForked() {
  if (!IsForked()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "client: this process connected to a server before fork(); connect only in the child, or "
      "exec a program there");
}

}  // namespace phasor::client_internal
