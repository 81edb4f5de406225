// SPDX-License-Identifier: Apache-2.0
// Rotations of any size over gRPC, as a stream of chunks.
#ifndef PHASOR_CLIENT_GRPC_CHUNKED_ROPE_H_
#define PHASOR_CLIENT_GRPC_CHUNKED_ROPE_H_

#include <grpcpp/channel.h>

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "client/connection.h"

namespace phasor::client_internal {

// Sends `entries` one after another in runs of tokens, and writes each answer to its place while
// more is sent. Blocks until all are done. Returns the error of the first item that failed, or else
// of the stream. INTERNAL: an answer does not match its chunk.
absl::StatusOr<RunInfo> RopeInChunks(const std::shared_ptr<grpc::Channel>& channel,
                                     const std::vector<RopeCall>& entries,
                                     const ChunkOptions& options, const CallContext& context);

}  // namespace phasor::client_internal

#endif  // PHASOR_CLIENT_GRPC_CHUNKED_ROPE_H_
