// SPDX-License-Identifier: Apache-2.0
// TableService: the gRPC service that uploads, lists and deletes learned tables.
#ifndef PHASOR_SERVER_API_TABLE_SERVICE_H_
#define PHASOR_SERVER_API_TABLE_SERVICE_H_

#include <grpcpp/grpcpp.h>

#include "absl/time/time.h"
#include "phasor/v1/table_service.grpc.pb.h"
#include "server/base/task_thread.h"
#include "server/tables/table_store.h"

namespace phasor::rpc {

// Implements the gRPC service of tables. Threads: gRPC calls the methods from its own threads, many
// at once.
class TableServiceImpl final : public v1::TableService::CallbackService {
 public:
  // `store` must outlive the service. An upload ends if it sends nothing for `idle_timeout`, or
  // takes longer than that and 1 s for each MiB it has sent; 0 means no limit.
  TableServiceImpl(tables::TableStore* store, absl::Duration idle_timeout)
      : store_(*store), idle_timeout_(idle_timeout) {}

  grpc::ServerReadReactor<v1::CreateTableRequest>* CreateTable(
      grpc::CallbackServerContext* context, v1::CreateTableResponse* response) override;
  grpc::ServerUnaryReactor* GetTable(grpc::CallbackServerContext* context,
                                     const v1::GetTableRequest* request,
                                     v1::GetTableResponse* response) override;
  grpc::ServerUnaryReactor* ListTables(grpc::CallbackServerContext* context,
                                       const v1::ListTablesRequest* request,
                                       v1::ListTablesResponse* response) override;
  grpc::ServerUnaryReactor* DeleteTable(grpc::CallbackServerContext* context,
                                        const v1::DeleteTableRequest* request,
                                        v1::DeleteTableResponse* response) override;

 private:
  tables::TableStore& store_;
  const absl::Duration idle_timeout_;
  TaskThread files_;  // reads and writes them
};

}  // namespace phasor::rpc

#endif  // PHASOR_SERVER_API_TABLE_SERVICE_H_
