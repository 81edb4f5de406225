// SPDX-License-Identifier: Apache-2.0
// Routes inferences and streams, and answers the methods without tensors: health, models,
// statistics, shared memory.
#include "server/oip/service.h"

#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"
#include "server/grpc/access.h"
#include "server/grpc/call_counter.h"
#include "server/grpc/caller.h"
#include "server/grpc/finish_call.h"
#include "server/memory/range.h"
#include "server/oip/model_info.h"
#include "server/oip/prepared_infer.h"

namespace phasor::oip {
namespace {

constexpr memory::DeviceRegion::Paths kCudaPaths{"raw_handle", "byte_size", "device_id"};
// Trailing metadata of CudaSharedMemoryStatus: the names of dirty regions. In those, a computation
// in place failed in the middle, so they hold neither its input nor its output.
constexpr char kDirtyMetadata[] = "phasor-dirty-region-bin";
constexpr size_t kMaxDirtyBytes = 4096;  // clients refuse a call with 8 KiB of metadata
constexpr char kBuiltIn[] =
    "models are the presets and the encoders of the configuration, always loaded";

grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context,
                                 const absl::Status& status = absl::OkStatus()) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  rpc::FinishCall(context, reactor, status);
  return reactor;
}

grpc::ServerUnaryReactor* Refuse(grpc::CallbackServerContext* context, std::string_view method,
                                 std::string_view why) {
  return Answer(context, absl::UnimplementedError(StrCat(method, ": not implemented; ", why)));
}

// Callers without an identity share their names, as clients of this protocol expect.
memory::RegionTerms TermsFor(const memory::RegionCaller& caller) {
  return {.for_everybody = caller.identity.empty()};
}

// A size or an offset of the wire as int64. INVALID_ARGUMENT: it does not fit.
absl::StatusOr<int64_t> SizeFromWire(uint64_t value, std::string_view path) {
  if (value <= uint64_t{std::numeric_limits<int64_t>::max()}) return static_cast<int64_t>(value);
  return InvalidAt(path, value, "; must be below 2^63");
}

}  // namespace

InferenceService::InferenceService(engine::Engine* engine, InferenceServiceOptions options)
    : options_(std::move(options)),
      regions_(*options_.memory.regions),
      infer_{engine,
             options_.tables,
             options_.memory,
             &models_,
             &statistics_,
             options_.max_message_bytes,
             options_.max_header_bytes,
             &table_reads_},
      streams_(infer_, options_.stream_idle_timeout) {}

grpc::ServerUnaryReactor* InferenceService::ServerLive(Context* context,
                                                       const inference::ServerLiveRequest*,
                                                       inference::ServerLiveResponse* response) {
  if (Reactor* const refused = rpc::RefusedReactor(context)) return refused;
  response->set_live(true);
  return Answer(context);
}

grpc::ServerUnaryReactor* InferenceService::ServerReady(Context* context,
                                                        const inference::ServerReadyRequest*,
                                                        inference::ServerReadyResponse* response) {
  if (Reactor* const refused = rpc::RefusedReactor(context)) return refused;
  response->set_ready(ready_.load(std::memory_order_relaxed));
  return Answer(context);
}

grpc::ServerUnaryReactor* InferenceService::ModelReady(Context* context,
                                                       const inference::ModelReadyRequest* request,
                                                       inference::ModelReadyResponse* response) {
  if (Reactor* const refused = rpc::RefusedReactor(context)) return refused;
  const auto model = FindVersion(*models_.Get(), request->name(), request->version());
  if (absl::IsInvalidArgument(model.status())) return Answer(context, model.status());
  response->set_ready(model.ok() && ready_.load(std::memory_order_relaxed));
  return Answer(context);
}

grpc::ServerUnaryReactor* InferenceService::ServerMetadata(
    Context* context, const inference::ServerMetadataRequest*,
    inference::ServerMetadataResponse* response) {
  if (Reactor* const refused = rpc::RefusedReactor(context)) return refused;
  response->set_name(kPlatform);
  response->set_version(options_.version);
  for (const char* extension : {"model_configuration", "model_repository_index", "parameters",
                                "statistics", "binary_tensor_data"}) {
    response->add_extensions(extension);
  }
  if (regions_.enabled()) response->add_extensions("system_shared_memory");
  if (options_.memory.devices->enabled()) response->add_extensions("cuda_shared_memory");
  return Answer(context);
}

grpc::ServerUnaryReactor* InferenceService::ModelMetadata(
    Context* context, const inference::ModelMetadataRequest* request,
    inference::ModelMetadataResponse* response) {
  if (Reactor* const refused = rpc::RefusedReactor(context)) return refused;
  const auto model = FindVersion(*models_.Get(), request->name(), request->version());
  if (!model.ok()) return Answer(context, model.status());
  *response = MetadataOf(**model);
  return Answer(context);
}

grpc::ServerUnaryReactor* InferenceService::ModelInfer(Context* context,
                                                       const grpc::ByteBuffer* request,
                                                       grpc::ByteBuffer* response) {
  rpc::CallCounter::NoteReceived(context, static_cast<int64_t>(request->Length()));
  if (Reactor* const refused = rpc::RefusedReactor(context)) return refused;
  Reactor* const reactor = context->DefaultReactor();
  // gRPC declares a raw request const, but it made the message itself and the object is not const.
  // Emptying it frees the received memory before the call ends.
  StartInfer(infer_, const_cast<grpc::ByteBuffer*>(request),
             {rpc::DeadlineOf(*context), rpc::ClientOf(*context),
              [context] { return context->IsCancelled(); }, /*stream=*/false,
              rpc::CallerQuota(*context), rpc::RegionCallerOf(*context)},
             [context, reactor, response](InferAnswer answer) {
               rpc::KeepUntilSent(context, std::move(answer.quota_permit));
               rpc::CallCounter::NotePhases(context, answer.phases);
               if (answer.status.ok()) *response = std::move(answer.response);
               rpc::FinishCall(context, reactor, answer.status, response->Length());
             });
  return reactor;
}

InferStreamReactor* InferenceService::ModelStreamInfer(Context* context) {
  return streams_.Start(context);
}

grpc::ServerUnaryReactor* InferenceService::ModelConfig(
    Context* context, const inference::ModelConfigRequest* request,
    inference::ModelConfigResponse* response) {
  if (Reactor* const refused = rpc::RefusedReactor(context)) return refused;
  const auto model = FindVersion(*models_.Get(), request->name(), request->version());
  if (!model.ok()) return Answer(context, model.status());
  *response->mutable_config() = ConfigOf(**model);
  return Answer(context);
}

grpc::ServerUnaryReactor* InferenceService::ModelStatistics(
    Context* context, const inference::ModelStatisticsRequest* request,
    inference::ModelStatisticsResponse* response) {
  if (Reactor* const refused = rpc::RefusedReactor(context)) return refused;
  if (request->name().empty()) {
    *response = statistics_.Report(models_.Get()->models());
    return Answer(context);
  }
  const auto model = FindVersion(*models_.Get(), request->name(), request->version());
  if (!model.ok()) return Answer(context, model.status());
  *response = statistics_.Report({*model});
  return Answer(context);
}

grpc::ServerUnaryReactor* InferenceService::RepositoryIndex(
    Context* context, const inference::RepositoryIndexRequest* request,
    inference::RepositoryIndexResponse* response) {
  if (Reactor* const refused = rpc::RefusedReactor(context)) return refused;
  if (!request->repository_name().empty()) {
    return Answer(context,
                  absl::UnimplementedError(
                      "repository_name: set; models are in no repository, so leave it out"));
  }
  *response = IndexOf(*models_.Get());
  return Answer(context);
}

grpc::ServerUnaryReactor* InferenceService::RepositoryModelLoad(
    Context* context, const inference::RepositoryModelLoadRequest*,
    inference::RepositoryModelLoadResponse*) {
  if (Reactor* const refused = rpc::RefusedReactor(context)) return refused;
  return Refuse(context, "RepositoryModelLoad", kBuiltIn);
}

grpc::ServerUnaryReactor* InferenceService::RepositoryModelUnload(
    Context* context, const inference::RepositoryModelUnloadRequest*,
    inference::RepositoryModelUnloadResponse*) {
  if (Reactor* const refused = rpc::RefusedReactor(context)) return refused;
  return Refuse(context, "RepositoryModelUnload", kBuiltIn);
}

grpc::ServerUnaryReactor* InferenceService::SystemSharedMemoryStatus(
    Context* context, const inference::SystemSharedMemoryStatusRequest* request,
    inference::SystemSharedMemoryStatusResponse* response) {
  if (Reactor* const refused = rpc::RefusedReactor(context)) return refused;
  for (const memory::NamedRegion& region : regions_.List(rpc::RegionCallerOf(*context))) {
    if (!request->name().empty() && request->name() != region.name) continue;
    auto& out = (*response->mutable_regions())[region.name];
    out.set_name(region.name);
    out.set_key(region.place.key);
    out.set_offset(static_cast<uint64_t>(region.place.offset));
    out.set_byte_size(static_cast<uint64_t>(region.place.bytes));
  }
  if (!request->name().empty() && response->regions().empty()) {
    return Answer(context, memory::NotRegistered(request->name(), "name"));
  }
  return Answer(context);
}

grpc::ServerUnaryReactor* InferenceService::SystemSharedMemoryRegister(
    Context* context, const inference::SystemSharedMemoryRegisterRequest* request,
    inference::SystemSharedMemoryRegisterResponse*) {
  if (Reactor* const refused = rpc::RefusedReactor(context)) return refused;
  const auto offset = SizeFromWire(request->offset(), "offset");
  if (!offset.ok()) return Answer(context, offset.status());
  const auto bytes = SizeFromWire(request->byte_size(), "byte_size");
  if (!bytes.ok()) return Answer(context, bytes.status());
  const memory::RegionCaller caller = rpc::RegionCallerOf(*context);
  return Answer(context, regions_.Register(request->name(), {request->key(), *offset, *bytes},
                                           caller, TermsFor(caller)));
}

grpc::ServerUnaryReactor* InferenceService::SystemSharedMemoryUnregister(
    Context* context, const inference::SystemSharedMemoryUnregisterRequest* request,
    inference::SystemSharedMemoryUnregisterResponse*) {
  if (Reactor* const refused = rpc::RefusedReactor(context)) return refused;
  const memory::RegionCaller caller = rpc::RegionCallerOf(*context);
  if (request->name().empty()) {
    regions_.UnregisterAll(caller);
  } else {
    regions_.Unregister(request->name(), caller).IgnoreError();  // an unknown name is no error
  }
  return Answer(context);
}

grpc::ServerUnaryReactor* InferenceService::CudaSharedMemoryStatus(
    Context* context, const inference::CudaSharedMemoryStatusRequest* request,
    inference::CudaSharedMemoryStatusResponse* response) {
  if (Reactor* const refused = rpc::RefusedReactor(context)) return refused;
  size_t dirty_bytes = 0;
  for (const memory::NamedDeviceRegion& region :
       options_.memory.devices->List(rpc::RegionCallerOf(*context))) {
    if (!request->name().empty() && request->name() != region.name) continue;
    auto& out = (*response->mutable_regions())[region.name];
    out.set_name(region.name);
    out.set_device_id(static_cast<uint64_t>(region.place.device_id));
    out.set_byte_size(static_cast<uint64_t>(region.place.bytes));
    // Dirty regions go into metadata because the protocol has no field for them.
    if (region.dirty && dirty_bytes + region.name.size() <= kMaxDirtyBytes) {
      dirty_bytes += region.name.size() + sizeof(kDirtyMetadata);
      context->AddTrailingMetadata(kDirtyMetadata, region.name);
    }
  }
  if (!request->name().empty() && response->regions().empty()) {
    return Answer(context, memory::NotRegistered(request->name(), "name"));
  }
  return Answer(context);
}

grpc::ServerUnaryReactor* InferenceService::CudaSharedMemoryRegister(
    Context* context, const inference::CudaSharedMemoryRegisterRequest* request,
    inference::CudaSharedMemoryRegisterResponse*) {
  if (Reactor* const refused = rpc::RefusedReactor(context)) return refused;
  const auto handle = memory::IpcHandleFrom(request->raw_handle(), kCudaPaths.handle);
  if (!handle.ok()) return Answer(context, handle.status());
  const auto bytes = SizeFromWire(request->byte_size(), kCudaPaths.bytes);
  if (!bytes.ok()) return Answer(context, bytes.status());
  if (request->device_id() < 0) {
    return Answer(context, Invalid("device_id: ", request->device_id(), "; must be at least 0"));
  }
  const memory::RegionCaller caller = rpc::RegionCallerOf(*context);
  return Answer(
      context,
      options_.memory.devices->Register(
          request->name(), {.handle = *handle, .bytes = *bytes, .device_id = request->device_id()},
          caller, TermsFor(caller), kCudaPaths));
}

grpc::ServerUnaryReactor* InferenceService::CudaSharedMemoryUnregister(
    Context* context, const inference::CudaSharedMemoryUnregisterRequest* request,
    inference::CudaSharedMemoryUnregisterResponse*) {
  if (Reactor* const refused = rpc::RefusedReactor(context)) return refused;
  const memory::RegionCaller caller = rpc::RegionCallerOf(*context);
  if (request->name().empty()) {
    options_.memory.devices->UnregisterAll(caller);
  } else {
    options_.memory.devices->Unregister(request->name(), caller)
        .IgnoreError();  // an unknown name is no error
  }
  return Answer(context);
}

grpc::ServerUnaryReactor* InferenceService::TraceSetting(
    Context* context, const inference::TraceSettingRequest* request,
    inference::TraceSettingResponse* response) {
  if (Reactor* const refused = rpc::RefusedReactor(context)) return refused;
  if (!request->settings().empty()) {
    return Refuse(context, "TraceSetting", "the server's OTEL_* variables decide what is traced");
  }
  const double ratio = options_.traced_ratio;
  const auto set = [&](const char* name, const std::string& value) {
    (*response->mutable_settings())[name].add_value(value);
  };
  set("trace_mode", "opentelemetry");
  set("trace_level", ratio > 0 ? "TIMESTAMPS" : "OFF");
  set("trace_rate", StrCat(ratio > 0 ? std::llround(1 / ratio) : 0));  // one of so many calls
  set("trace_count", "-1");                                            // no end
  return Answer(context);
}

grpc::ServerUnaryReactor* InferenceService::LogSettings(Context* context,
                                                        const inference::LogSettingsRequest*,
                                                        inference::LogSettingsResponse*) {
  if (Reactor* const refused = rpc::RefusedReactor(context)) return refused;
  return Refuse(context, "LogSettings", "logging is set by the server's options");
}

}  // namespace phasor::oip
