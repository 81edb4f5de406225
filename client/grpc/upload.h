// SPDX-License-Identifier: Apache-2.0
// Uploads a table as a stream of messages. Threads: a pure function that blocks.
#ifndef PHASOR_CLIENT_GRPC_UPLOAD_H_
#define PHASOR_CLIENT_GRPC_UPLOAD_H_

#include <grpcpp/channel.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/connection.h"

namespace phasor::client_internal {

// Bytes of values in one message of the stream.
inline constexpr int64_t kUploadPieceBytes = 1 << 20;

// INVALID_ARGUMENT: `values` is not dense, or its memory is too small. Other errors are the
// service's.
absl::StatusOr<TableInfo> UploadTable(const std::shared_ptr<grpc::Channel>& channel,
                                      const std::string& name, const TensorView& values,
                                      const CallContext& context);

}  // namespace phasor::client_internal

#endif  // PHASOR_CLIENT_GRPC_UPLOAD_H_
