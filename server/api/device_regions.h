// SPDX-License-Identifier: Apache-2.0
// Registers regions of device memory: from messages of SharedMemoryService to DeviceRegionStore.
#ifndef PHASOR_SERVER_API_DEVICE_REGIONS_H_
#define PHASOR_SERVER_API_DEVICE_REGIONS_H_

#include "absl/status/status.h"
#include "phasor/v1/shared_memory_service.pb.h"
#include "server/memory/device_region_store.h"

namespace phasor::rpc {

// Registers a region with `cuda_ipc`. INVALID_ARGUMENT: the handle has the wrong length, or the
// UUID is not set. Other errors: as DeviceRegionStore::Register.
absl::Status RegisterDeviceRegion(const v1::Region& region, const memory::RegionCaller& caller,
                                  const memory::RegionTerms& terms,
                                  memory::DeviceRegionStore& store);

v1::Region RegionToWire(const memory::NamedDeviceRegion& region);

}  // namespace phasor::rpc

#endif  // PHASOR_SERVER_API_DEVICE_REGIONS_H_
