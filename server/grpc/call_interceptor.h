// SPDX-License-Identifier: Apache-2.0
// Reports every call of a server, of any service, to its limits and observers.
#ifndef PHASOR_SERVER_GRPC_CALL_INTERCEPTOR_H_
#define PHASOR_SERVER_GRPC_CALL_INTERCEPTOR_H_

#include <grpcpp/support/server_interceptor.h>

#include <memory>
#include <vector>

#include "server/grpc/call_observer.h"
#include "server/grpc/open_calls.h"

namespace phasor::rpc {

// For ServerBuilder::experimental().SetInterceptorCreators. `calls` and `observers` must outlive
// the server.
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> MakeCallInterceptors(
    OpenCalls* calls, std::vector<CallObserver*> observers);

}  // namespace phasor::rpc

#endif  // PHASOR_SERVER_GRPC_CALL_INTERCEPTOR_H_
