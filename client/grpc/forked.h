// SPDX-License-Identifier: Apache-2.0
// Whether this process may use gRPC. After fork(), gRPC's threads run only in the parent, and the
// child's copies of its connections are the parent's: a call there would mix both processes' bytes.
#ifndef PHASOR_CLIENT_GRPC_FORKED_H_
#define PHASOR_CLIENT_GRPC_FORKED_H_

#include <utility>

#include "absl/status/status.h"

namespace phasor::client_internal {

// Whether this process is a child of the one that asked first, which connects before it calls.
// Objects of gRPC must then be left alone, and not even be destroyed: that waits for its threads.
bool IsForked();

// FAILED_PRECONDITION: IsForked.
absl::Status CheckNotForked();

// Keeps `value` for ever if IsForked, so that it is not destroyed.
template <typename T>
void LeakIfForked(T& value) {
  if (IsForked()) new T(std::move(value));
}

}  // namespace phasor::client_internal

#endif  // PHASOR_CLIENT_GRPC_FORKED_H_
