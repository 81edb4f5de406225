// SPDX-License-Identifier: Apache-2.0
// SharedMemoryService: the gRPC service of named regions, for host and device memory.
#ifndef PHASOR_SERVER_API_SHARED_MEMORY_SERVICE_H_
#define PHASOR_SERVER_API_SHARED_MEMORY_SERVICE_H_

#include <grpcpp/grpcpp.h>

#include "phasor/v1/shared_memory_service.grpc.pb.h"
#include "server/memory/device_region_store.h"
#include "server/memory/region_store.h"

namespace phasor::rpc {

// Registers, unregisters and lists regions in the stores. Threads: gRPC calls the methods from its
// own threads. No method blocks; Unregister answers after the last call that uses the region ends.
class SharedMemoryServiceImpl final : public v1::SharedMemoryService::CallbackService {
 public:
  // Both stores must outlive the service and its calls, and share one set of names.
  SharedMemoryServiceImpl(memory::RegionStore* regions, memory::DeviceRegionStore* devices)
      : regions_(*regions), devices_(*devices) {}

 private:
  grpc::ServerUnaryReactor* Register(grpc::CallbackServerContext* context,
                                     const v1::RegisterRequest* request,
                                     v1::RegisterResponse* response) override;
  grpc::ServerUnaryReactor* Unregister(grpc::CallbackServerContext* context,
                                       const v1::UnregisterRequest* request,
                                       v1::UnregisterResponse* response) override;
  grpc::ServerUnaryReactor* List(grpc::CallbackServerContext* context,
                                 const v1::ListRequest* request,
                                 v1::ListResponse* response) override;

  memory::RegionStore& regions_;
  memory::DeviceRegionStore& devices_;
};

}  // namespace phasor::rpc

#endif  // PHASOR_SERVER_API_SHARED_MEMORY_SERVICE_H_
