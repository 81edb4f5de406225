// SPDX-License-Identifier: Apache-2.0
// Streams of items over gRPC.
#ifndef PHASOR_CLIENT_GRPC_ITEM_STREAM_H_
#define PHASOR_CLIENT_GRPC_ITEM_STREAM_H_

#include <grpcpp/channel.h>

#include <memory>

#include "client/connection.h"
#include "client/shared/lease_client.h"

namespace phasor::client_internal {

// Answers that nothing asked for end the stream: INTERNAL.
// Tensors in leased memory are named.
std::unique_ptr<EncodeStream> MakeEncodeStream(const std::shared_ptr<grpc::Channel>& channel,
                                               std::shared_ptr<const LeaseHolder> leases,
                                               const CallContext& context);
std::unique_ptr<RopeStream> MakeRopeStream(const std::shared_ptr<grpc::Channel>& channel,
                                           std::shared_ptr<const LeaseHolder> leases,
                                           const CallContext& context);

}  // namespace phasor::client_internal

#endif  // PHASOR_CLIENT_GRPC_ITEM_STREAM_H_
