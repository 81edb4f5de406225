// SPDX-License-Identifier: Apache-2.0
// Methods that the wire has and this version has not: UNIMPLEMENTED, saying what to use instead. Of
// shared memory it has regions of the device.
#ifndef PHASOR_SERVER_RPC_UNIMPLEMENTED_H_
#define PHASOR_SERVER_RPC_UNIMPLEMENTED_H_

#include <grpcpp/grpcpp.h>

#include <string>

#include "phasor/v1/shared_memory_service.grpc.pb.h"
#include "server/regions/device_region_store.h"

namespace phasor::rpc {

// UNIMPLEMENTED "<method>: not implemented in this version, <instead>".
grpc::Status NotInThisVersion(const std::string& method, const std::string& instead);

// Threads: any. No method blocks; Unregister answers when the region's users are done.
class SharedMemoryServiceImpl final : public v1::SharedMemoryService::CallbackService {
 public:
  // `devices` must outlive the service and its calls.
  explicit SharedMemoryServiceImpl(regions::DeviceRegionStore* devices) : devices_(*devices) {}

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

  regions::DeviceRegionStore& devices_;
};

}  // namespace phasor::rpc

#endif  // PHASOR_SERVER_RPC_UNIMPLEMENTED_H_
