// SPDX-License-Identifier: Apache-2.0
// See unimplemented.h.
#include "server/rpc/unimplemented.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/rpc/device_regions.h"
#include "server/rpc/tensor_call.h"

namespace phasor::rpc {
namespace {}  // namespace

grpc::Status NotInThisVersion(const std::string& method, const std::string& instead) {
  return grpc::Status(grpc::StatusCode::UNIMPLEMENTED,
                      absl::StrCat(method, ": not implemented in this version, ", instead));
}

grpc::ServerUnaryReactor* SharedMemoryServiceImpl::Register(grpc::CallbackServerContext* context,
                                                            const v1::RegisterRequest* request,
                                                            v1::RegisterResponse* response) {
  if (auto* const refused = RefusedReactor(context)) return refused;
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  if (!request->region().has_cuda_ipc()) {
    reactor->Finish(
        NotInThisVersion("Register", "register cuda_ipc or send tensors inline, in raw"));
    return reactor;
  }
  auto registered = RegisterDeviceRegion(request->region(), DeviceCallerOf(*context), devices_);
  if (registered.ok()) *response->mutable_region() = *std::move(registered);
  FinishCall(context, reactor, registered.status());
  return reactor;
}

grpc::ServerUnaryReactor* SharedMemoryServiceImpl::Unregister(grpc::CallbackServerContext* context,
                                                              const v1::UnregisterRequest* request,
                                                              v1::UnregisterResponse*) {
  if (auto* const refused = RefusedReactor(context)) return refused;
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  // gRPC keeps both until the call is finished, a call that was given up too.
  const absl::Status status = devices_.Unregister(request->name(), DeviceCallerOf(*context), [=] {
    FinishCall(context, reactor, absl::OkStatus());
  });
  if (!status.ok()) FinishCall(context, reactor, status);
  return reactor;
}

grpc::ServerUnaryReactor* SharedMemoryServiceImpl::List(grpc::CallbackServerContext* context,
                                                        const v1::ListRequest*,
                                                        v1::ListResponse* response) {
  if (auto* const refused = RefusedReactor(context)) return refused;
  for (const auto& region : devices_.List(DeviceCallerOf(*context).owner)) {
    *response->add_regions() = ToWire(region);
  }
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  FinishCall(context, reactor, absl::OkStatus());
  return reactor;
}

}  // namespace phasor::rpc
