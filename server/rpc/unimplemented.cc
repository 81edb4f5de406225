// SPDX-License-Identifier: Apache-2.0
// See unimplemented.h.
#include "server/rpc/unimplemented.h"

#include "absl/strings/str_cat.h"
#include "server/rpc/tensor_call.h"

namespace phasor::rpc {
namespace {

constexpr char kInsteadOfRegions[] = "send tensors inline, in raw";

grpc::ServerUnaryReactor* Refuse(grpc::CallbackServerContext* context, const std::string& method,
                                 const std::string& instead) {
  if (auto* const refused = RefusedReactor(context)) return refused;
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(NotInThisVersion(method, instead));
  return reactor;
}

}  // namespace

grpc::Status NotInThisVersion(const std::string& method, const std::string& instead) {
  return grpc::Status(grpc::StatusCode::UNIMPLEMENTED,
                      absl::StrCat(method, ": not implemented in this version, ", instead));
}

grpc::ServerUnaryReactor* SharedMemoryServiceImpl::Register(grpc::CallbackServerContext* context,
                                                            const v1::RegisterRequest*,
                                                            v1::RegisterResponse*) {
  return Refuse(context, "Register", kInsteadOfRegions);
}

grpc::ServerUnaryReactor* SharedMemoryServiceImpl::Unregister(grpc::CallbackServerContext* context,
                                                              const v1::UnregisterRequest*,
                                                              v1::UnregisterResponse*) {
  return Refuse(context, "Unregister", kInsteadOfRegions);
}

grpc::ServerUnaryReactor* SharedMemoryServiceImpl::List(grpc::CallbackServerContext* context,
                                                        const v1::ListRequest*, v1::ListResponse*) {
  return Refuse(context, "List", kInsteadOfRegions);
}

}  // namespace phasor::rpc
