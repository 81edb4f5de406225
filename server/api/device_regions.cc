// SPDX-License-Identifier: Apache-2.0
// Checks the CUDA IPC handle and the device UUID of a message, then registers the region.
#include "server/api/device_regions.h"

#include <utility>

#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"

namespace phasor::rpc {
namespace {

constexpr memory::DeviceRegion::Paths kPaths{"region.cuda_ipc.handle", "region.size_bytes",
                                             "region.cuda_ipc.device_uuid", "region.name"};

}  // namespace

absl::Status RegisterDeviceRegion(const v1::Region& region, const memory::RegionCaller& caller,
                                  const memory::RegionTerms& terms,
                                  memory::DeviceRegionStore& store) {
  const v1::CudaIpcRegion& cuda = region.cuda_ipc();
  PHASOR_ASSIGN_OR_RETURN(const IpcHandle handle,
                          memory::IpcHandleFrom(cuda.handle(), kPaths.handle));
  if (cuda.device_uuid().empty()) return Invalid(kPaths.uuid, ": not set; must be given");
  memory::DevicePlace place{.handle = handle,
                            .offset = cuda.offset_bytes(),
                            .bytes = region.size_bytes(),
                            .device_uuid = cuda.device_uuid(),
                            .read_only = region.read_only()};
  return store.Register(region.name(), std::move(place), caller, terms, kPaths);
}

v1::Region RegionToWire(const memory::NamedDeviceRegion& region) {
  v1::Region out;
  out.set_name(region.name);
  out.set_size_bytes(region.place.bytes);
  out.set_read_only(region.place.read_only);
  out.set_ttl_ms(absl::ToInt64Milliseconds(region.ttl));
  out.set_dirty(region.dirty);
  v1::CudaIpcRegion& cuda = *out.mutable_cuda_ipc();
  cuda.set_handle(reinterpret_cast<const char*>(region.place.handle.data()),
                  region.place.handle.size());
  cuda.set_offset_bytes(region.place.offset);
  cuda.set_device_uuid(region.place.device_uuid);
  return out;
}

}  // namespace phasor::rpc
