// SPDX-License-Identifier: Apache-2.0
// See unimplemented.h.
#include "server/rpc/unimplemented.h"

#include "absl/strings/str_cat.h"

namespace phasor::rpc {
namespace {

constexpr char kInsteadOfTables[] = "use a computed encoding, see ListPresets";
constexpr char kInsteadOfRegions[] = "send tensors inline, in raw";

grpc::ServerUnaryReactor* Refuse(grpc::CallbackServerContext* context, const std::string& method,
                                 const std::string& instead) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(NotInThisVersion(method, instead));
  return reactor;
}

}  // namespace

grpc::Status NotInThisVersion(const std::string& method, const std::string& instead) {
  return grpc::Status(grpc::StatusCode::UNIMPLEMENTED,
                      absl::StrCat(method, ": not implemented in this version, ", instead));
}

grpc::ServerReadReactor<v1::CreateTableRequest>* TableServiceImpl::CreateTable(
    grpc::CallbackServerContext*, v1::CreateTableResponse*) {
  return new RefusingReactor<grpc::ServerReadReactor<v1::CreateTableRequest>>(
      NotInThisVersion("CreateTable", kInsteadOfTables));
}

grpc::ServerUnaryReactor* TableServiceImpl::GetTable(grpc::CallbackServerContext* context,
                                                     const v1::GetTableRequest*,
                                                     v1::GetTableResponse*) {
  return Refuse(context, "GetTable", kInsteadOfTables);
}

grpc::ServerUnaryReactor* TableServiceImpl::ListTables(grpc::CallbackServerContext* context,
                                                       const v1::ListTablesRequest*,
                                                       v1::ListTablesResponse*) {
  return Refuse(context, "ListTables", kInsteadOfTables);
}

grpc::ServerUnaryReactor* TableServiceImpl::DeleteTable(grpc::CallbackServerContext* context,
                                                        const v1::DeleteTableRequest*,
                                                        v1::DeleteTableResponse*) {
  return Refuse(context, "DeleteTable", kInsteadOfTables);
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
