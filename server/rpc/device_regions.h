// SPDX-License-Identifier: Apache-2.0
// Regions of device memory in SharedMemoryService: its messages in front of DeviceRegionStore.
#ifndef PHASOR_SERVER_RPC_DEVICE_REGIONS_H_
#define PHASOR_SERVER_RPC_DEVICE_REGIONS_H_

#include <grpcpp/server_context.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "phasor/v1/shared_memory_service.pb.h"
#include "server/regions/device_region_store.h"

namespace phasor::rpc {

// Who calls: the owner is the identity, where the server asks for one, else the connection.
regions::DeviceCaller DeviceCallerOf(const grpc::CallbackServerContext& context);

// The device memory that a call's tensors may name; none if the store, which may be nullptr, is not
// enabled.
regions::CallerDevices DevicesOf(regions::DeviceRegionStore* store,
                                 const grpc::CallbackServerContext& context);

// Registers a region with `cuda_ipc` for its caller alone, and returns it as it is kept.
// INVALID_ARGUMENT: ttl_ms, and as DeviceRegionStore::Register.
absl::StatusOr<v1::Region> RegisterDeviceRegion(const v1::Region& region,
                                                const regions::DeviceCaller& caller,
                                                regions::DeviceRegionStore& store);

v1::Region ToWire(const regions::NamedDeviceRegion& region);

}  // namespace phasor::rpc

#endif  // PHASOR_SERVER_RPC_DEVICE_REGIONS_H_
