// SPDX-License-Identifier: Apache-2.0
// Streams of calls over gRPC.
#ifndef PHASOR_CLIENT_GRPC_ITEM_STREAM_H_
#define PHASOR_CLIENT_GRPC_ITEM_STREAM_H_

#include <grpcpp/channel.h>

#include <memory>

#include "client/connection.h"
#include "client/shared/lease_client.h"

namespace phasor::client_internal {

// Opens a stream. Tensors in memory of `leases` are named instead of sent. An answer to an unknown
// id ends the stream with INTERNAL.
std::unique_ptr<EncodeStream> MakeEncodeStream(const std::shared_ptr<grpc::Channel>& channel,
                                               std::shared_ptr<const LeaseHolder> leases,
                                               const CallContext& context);
std::unique_ptr<RopeStream> MakeRopeStream(const std::shared_ptr<grpc::Channel>& channel,
                                           std::shared_ptr<const LeaseHolder> leases,
                                           const CallContext& context);
std::unique_ptr<MoveStream> MakeMoveStream(const std::shared_ptr<grpc::Channel>& channel,
                                           std::shared_ptr<const LeaseHolder> leases,
                                           const CallContext& context);

}  // namespace phasor::client_internal

#endif  // PHASOR_CLIENT_GRPC_ITEM_STREAM_H_
