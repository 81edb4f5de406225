// SPDX-License-Identifier: Apache-2.0
// The one place where absl::Status and grpc::Status meet. Threads: pure functions.
#ifndef PHASOR_PROTO_GRPC_STATUS_H_
#define PHASOR_PROTO_GRPC_STATUS_H_

#include <grpcpp/support/status.h>

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace phasor {

// Longest status message on the wire, in bytes: it travels in HTTP/2 trailers, of which peers
// accept 8 KiB by default and in which a byte may take three.
inline constexpr size_t kMaxStatusMessageBytes = 1024;

// `message`, cut at a UTF-8 boundary to kMaxStatusMessageBytes.
std::string BoundedStatusMessage(absl::string_view message);

// Same code; message bounded.
grpc::Status ToGrpcStatus(const absl::Status& status);

// Same code and message. A code that gRPC does not define becomes UNKNOWN.
absl::Status FromGrpcStatus(const grpc::Status& status);

// The status of a batch item: `code` is a google.rpc.Code from the wire; undefined ones become
// UNKNOWN.
absl::Status StatusFromWire(int code, absl::string_view message);

}  // namespace phasor

#endif  // PHASOR_PROTO_GRPC_STATUS_H_
