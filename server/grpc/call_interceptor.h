// SPDX-License-Identifier: Apache-2.0
// Reports every call of a server, of any service, to its limits and observers, and tells contexts
// of CallCounter their method.
#ifndef PHASOR_SERVER_GRPC_CALL_INTERCEPTOR_H_
#define PHASOR_SERVER_GRPC_CALL_INTERCEPTOR_H_

#include <grpcpp/support/server_interceptor.h>

#include <memory>
#include <string>
#include <vector>

#include "server/grpc/call_observer.h"
#include "server/grpc/open_calls.h"

namespace phasor::rpc {

// For ServerBuilder::experimental().SetInterceptorCreators. `calls` and `observers` must outlive
// the server. `finished`: how the names of methods begin whose calls always end by FinishCall, and
// whose streams in both directions by FinishStream. They need no interceptor if CallCounter makes
// their contexts.
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> MakeCallInterceptors(
    OpenCalls* calls, std::vector<CallObserver*> observers, std::vector<std::string> finished = {});

}  // namespace phasor::rpc

#endif  // PHASOR_SERVER_GRPC_CALL_INTERCEPTOR_H_
