// SPDX-License-Identifier: Apache-2.0
// Converts messages of SharedMemoryService and sends each to the store of its kind of memory.
#include "server/api/shared_memory_service.h"

#include <utility>

#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"
#include "server/grpc/access.h"
#include "server/grpc/finish_call.h"

namespace phasor::rpc {
namespace {

constexpr memory::DeviceRegion::Paths kDevicePaths{"region.cuda_ipc.handle", "region.size_bytes",
                                                   "region.cuda_ipc.device_uuid", "region.name"};

absl::StatusOr<memory::RegionTerms> TermsOf(const v1::Region& region, absl::Duration longest) {
  memory::RegionTerms terms{.for_everybody = false, .ttl = longest};
  if (region.ttl_ms() == 0) return terms;
  const int64_t most = absl::ToInt64Milliseconds(longest);
  if (region.ttl_ms() < 0 || region.ttl_ms() > most) {
    return InvalidAt("region.ttl_ms", region.ttl_ms(), "; must be 1 to ", most,
                     ", or 0 for the most");
  }
  terms.ttl = absl::Milliseconds(region.ttl_ms());
  return terms;
}

absl::Status RegisterOnDevice(const v1::Region& region, const memory::RegionCaller& caller,
                              const memory::RegionTerms& terms, memory::DeviceRegionStore& store) {
  const v1::CudaIpcRegion& cuda = region.cuda_ipc();
  PHASOR_ASSIGN_OR_RETURN(const IpcHandle handle,
                          memory::IpcHandleFrom(cuda.handle(), kDevicePaths.handle));
  if (cuda.device_uuid().empty()) return InvalidAt(kDevicePaths.uuid, "not set; must be given");
  memory::DevicePlace place{.handle = handle,
                            .offset = cuda.offset_bytes(),
                            .bytes = region.size_bytes(),
                            .device_uuid = cuda.device_uuid(),
                            .read_only = region.read_only()};
  return store.Register(region.name(), std::move(place), caller, terms, kDevicePaths);
}

absl::Status Register(const v1::Region& region, const memory::RegionCaller& caller,
                      memory::RegionStore& regions, memory::DeviceRegionStore& devices) {
  PHASOR_ASSIGN_OR_RETURN(const memory::RegionTerms terms, TermsOf(region, regions.lease()));
  switch (region.backing_case()) {
    case v1::Region::kPosix:
      return regions.Register(region.name(),
                              {region.posix().key(), region.posix().offset_bytes(),
                               region.size_bytes(), region.read_only()},
                              caller, terms,
                              {"region.posix.key", "region.size_bytes", "region.name"});
    case v1::Region::kCudaIpc:
      return RegisterOnDevice(region, caller, terms, devices);
    case v1::Region::BACKING_NOT_SET:
      break;
  }
  return Invalid("region.posix: not set; it or region.cuda_ipc must be given");
}

// Lists a region of either kind, without its backing.
template <typename Named>
v1::Region& Add(const Named& region, v1::ListResponse* response) {
  v1::Region& out = *response->add_regions();
  out.set_name(region.name);
  out.set_size_bytes(region.place.bytes);
  out.set_read_only(region.place.read_only);
  out.set_ttl_ms(absl::ToInt64Milliseconds(region.ttl));
  return out;
}

}  // namespace

grpc::ServerUnaryReactor* SharedMemoryServiceImpl::Register(grpc::CallbackServerContext* context,
                                                            const v1::RegisterRequest* request,
                                                            v1::RegisterResponse* response) {
  if (auto* const refused = RefusedReactor(context)) return refused;
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const absl::Status status =
      request->has_region()
          ? rpc::Register(request->region(), RegionCallerOf(*context), regions_, devices_)
          : Invalid("region: not set; must be given");
  if (status.ok()) {
    *response->mutable_region() = request->region();
    response->mutable_region()->DiscardUnknownFields();
    if (request->region().ttl_ms() == 0) {
      response->mutable_region()->set_ttl_ms(absl::ToInt64Milliseconds(regions_.lease()));
    }
  }
  FinishCall(context, reactor, status);
  return reactor;
}

grpc::ServerUnaryReactor* SharedMemoryServiceImpl::Unregister(grpc::CallbackServerContext* context,
                                                              const v1::UnregisterRequest* request,
                                                              v1::UnregisterResponse*) {
  if (auto* const refused = RefusedReactor(context)) return refused;
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  // gRPC keeps `context` and `reactor` until the call is finished, even if the caller cancels it.
  const auto released = [=] { FinishCall(context, reactor, absl::OkStatus()); };
  const memory::RegionCaller caller = RegionCallerOf(*context);
  const absl::Status status = devices_.Has(request->name(), caller)
                                  ? devices_.Unregister(request->name(), caller, released)
                                  : regions_.Unregister(request->name(), caller, released);
  if (!status.ok()) FinishCall(context, reactor, status);
  return reactor;
}

grpc::ServerUnaryReactor* SharedMemoryServiceImpl::List(grpc::CallbackServerContext* context,
                                                        const v1::ListRequest*,
                                                        v1::ListResponse* response) {
  if (auto* const refused = RefusedReactor(context)) return refused;
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const memory::RegionCaller caller = RegionCallerOf(*context);
  for (const memory::NamedRegion& region : regions_.List(caller)) {
    v1::PosixRegion& posix = *Add(region, response).mutable_posix();
    posix.set_key(region.place.key);
    posix.set_offset_bytes(region.place.offset);
  }
  for (const memory::NamedDeviceRegion& region : devices_.List(caller)) {
    v1::Region& out = Add(region, response);
    out.set_dirty(region.dirty);
    const memory::DevicePlace& place = region.place;
    v1::CudaIpcRegion& cuda = *out.mutable_cuda_ipc();
    cuda.set_handle(reinterpret_cast<const char*>(place.handle.data()), place.handle.size());
    cuda.set_offset_bytes(place.offset);
    cuda.set_device_uuid(place.device_uuid);
  }
  FinishCall(context, reactor, absl::OkStatus());
  return reactor;
}

}  // namespace phasor::rpc
