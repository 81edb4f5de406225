// SPDX-License-Identifier: Apache-2.0
// Converts between absl::Status and grpc::Status, in one place. Threads: pure functions.
#ifndef PHASOR_PROTO_GRPC_STATUS_H_
#define PHASOR_PROTO_GRPC_STATUS_H_

#include <grpcpp/support/status.h>

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace phasor {

// Longest status message on the wire, in bytes. It travels in HTTP/2 trailers, where a byte may
// take three, and peers accept 8 KiB by default.
inline constexpr size_t kMaxStatusMessageBytes = 1024;

// `message`, cut to kMaxStatusMessageBytes at a UTF-8 boundary.
std::string BoundedStatusMessage(absl::string_view message);

// The same code; the message is bounded.
grpc::Status ToGrpcStatus(const absl::Status& status);

// The same code and message. A code that gRPC does not define becomes UNKNOWN. Where gRPC itself
// has refused a call or a connection, the message says what to do, if that is known.
absl::Status FromGrpcStatus(const grpc::Status& status);

// The status of a batch item. `code` is a google.rpc.Code; undefined codes become UNKNOWN.
absl::Status StatusFromWire(int code, absl::string_view message);

}  // namespace phasor

#endif  // PHASOR_PROTO_GRPC_STATUS_H_
