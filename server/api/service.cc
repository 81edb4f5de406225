// SPDX-License-Identifier: Apache-2.0
// Routes the methods of PositionEmbeddingService to tensor calls and streams, and answers the
// methods without tensors itself.
#include "server/api/service.h"

#include <algorithm>
#include <utility>

#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"
#include "kernels/spec/presets.h"
#include "proto/convert.h"
#include "proto/convert_bias.h"
#include "proto/convert_model.h"
#include "proto/protobuf_log.h"
#include "server/api/response.h"
#include "server/grpc/access.h"
#include "server/grpc/call_counter.h"
#include "server/grpc/caller.h"
#include "server/grpc/finish_call.h"
#include "server/grpc/wire.h"

namespace phasor::rpc {
namespace {

constexpr TensorMethod kEncode{ParseEncode, MakeTensorResponse};
constexpr TensorMethod kApplyRoPE{ParseApplyRoPE, MakeTensorResponse};
constexpr TensorMethod kAttentionBias{ParseAttentionBias, MakeAttentionBiasResponse};
constexpr TensorMethod kMoveKeys{ParseMoveKeys, MakeMoveKeysResponse, /*batch=*/false,
                                 kRawEntriesOfOneMove};
constexpr TensorMethod kBatchEncode{ParseBatchEncode, MakeBatchTensorResponse, /*batch=*/true};
constexpr TensorMethod kBatchApplyRoPE{ParseBatchApplyRoPE, MakeBatchTensorResponse,
                                       /*batch=*/true};
constexpr TensorMethod kBatchMoveKeys{ParseBatchMoveKeys, MakeBatchMoveKeysResponse,
                                      /*batch=*/true, kRawEntriesOfOneMove};
constexpr StreamMethod kStreamEncode{ParseStreamEncode, MakeStreamTensorResponse};
constexpr StreamMethod kStreamApplyRoPE{ParseStreamApplyRoPE, MakeStreamTensorResponse};
constexpr StreamMethod kStreamMoveKeys{ParseStreamMoveKeys, MakeStreamMoveKeysResponse,
                                       kRawEntriesOfOneMove};

// gRPC declares a raw request const, but it made the message itself and the object is not const.
// Emptying it frees the received memory before the call ends.
grpc::ByteBuffer* Mutable(const grpc::ByteBuffer* request) {
  return const_cast<grpc::ByteBuffer*>(request);
}

// Parses a message without `raw`. INVALID_ARGUMENT: it does not parse. RESOURCE_EXHAUSTED: it is
// too large.
template <typename Message>
absl::StatusOr<Message> ReadMessage(const grpc::ByteBuffer& request, int64_t max_bytes) {
  PHASOR_ASSIGN_OR_RETURN(const std::string bytes, CopyMessage(request, max_bytes));
  Message message;
  if (message.ParseFromString(bytes)) return message;
  return Invalid("request: does not parse; must be a ", message.GetTypeName());
}

grpc::ByteBuffer WriteMessage(const google::protobuf::MessageLite& message) {
  const grpc::Slice slice(message.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

// Has the answer, if it is large, count in the byte budget and in the caller's quota until it is
// sent. Errors: as MayParse and CallerQuota::Take.
absl::Status Admit(engine::Engine& engine, grpc::CallbackServerContext* context,
                   const grpc::ByteBuffer& answer) {
  PHASOR_ASSIGN_OR_RETURN(
      Permit permit, engine.MayParse(static_cast<int64_t>(answer.Length()), DeadlineOf(*context),
                                     [context] { return context->IsCancelled(); }));
  PHASOR_ASSIGN_OR_RETURN(Permit quota, CallerQuota(*context).Take(permit.bytes()));
  KeepUntilSent(context, std::move(quota), std::move(permit));
  return absl::OkStatus();
}

// Ends a call with a message or error.
template <typename Message>
void Finish(engine::Engine& engine, grpc::CallbackServerContext* context,
            grpc::ServerUnaryReactor* reactor, grpc::ByteBuffer* response,
            const absl::StatusOr<Message>& message) {
  absl::Status status = message.status();
  if (status.ok()) {
    *response = WriteMessage(*message);
    status = Admit(engine, context, *response);
    if (!status.ok()) response->Clear();
  }
  FinishCall(context, reactor, status, response->Length());
}

// If the caller has access, answers at once with the message or error that `make` returns.
template <typename Make>
grpc::ServerUnaryReactor* Answer(engine::Engine& engine, grpc::CallbackServerContext* context,
                                 grpc::ByteBuffer* response, Make make) {
  if (auto* const refused = RefusedReactor(context)) return refused;
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  Finish(engine, context, reactor, response, make());
  return reactor;
}

// A request that has a spec. The permits are held until it is answered.
template <typename Request>
struct SpecCall {
  Permit while_read;
  Permit quota;
  Request message;
  Spec spec;
};

template <typename Request>
absl::StatusOr<SpecCall<Request>> ReadSpec(engine::Engine& engine, const ServiceOptions& options,
                                           const grpc::CallbackServerContext& context,
                                           const grpc::ByteBuffer& request) {
  SpecCall<Request> call;
  PHASOR_ASSIGN_OR_RETURN(
      call.while_read, engine.MayParse(static_cast<int64_t>(request.Length()), DeadlineOf(context),
                                       [&context] { return context.IsCancelled(); }));
  PHASOR_ASSIGN_OR_RETURN(call.quota, CallerQuota(context).Take(call.while_read.bytes()));
  PHASOR_ASSIGN_OR_RETURN(call.message, ReadMessage<Request>(request, options.max_header_bytes));
  if (!call.message.has_spec()) return Invalid("spec: not set; must be given");
  PHASOR_ASSIGN_OR_RETURN(call.spec, SpecFromWire(call.message.spec(), "spec"));
  if (options.encoders != nullptr) {
    PHASOR_ASSIGN_OR_RETURN(call.spec, options.encoders->Apply(call.spec, "spec"));
  }
  return call;
}

// Describing 65536 lanes takes a tenth of a second.
constexpr int64_t kMostLanesAtOnce = 4096;

int64_t LanesOf(const ResolvedSpec& spec) {
  return std::max(spec.dim, spec.rotary_dim) * spec.frequency_heads;
}

v1::DeviceState StateToWire(DeviceState::Kind kind) {
  switch (kind) {
    case DeviceState::Kind::kWorking:
      return v1::DEVICE_STATE_WORKING;
    case DeviceState::Kind::kWaiting:
      return v1::DEVICE_STATE_WAITING;
    case DeviceState::Kind::kLost:
      return v1::DEVICE_STATE_LOST;
  }
  return v1::DEVICE_STATE_UNSPECIFIED;
}

v1::Device Describe(const DevicePort& port) {
  const DeviceState state = port.device_state();
  v1::Device device;
  device.set_number(port.device_number());
  device.set_name(port.device_name());
  device.set_uuid(port.device_uuid());
  device.set_state(StateToWire(state.kind));
  device.set_error(state.error);
  device.set_losses(state.losses);
  device.set_revivals(state.revivals);
  return device;
}

v1::ListPresetsResponse AllPresets() {
  v1::ListPresetsResponse response;
  for (const Preset& preset : Presets()) {
    v1::Preset* out = response.add_presets();
    out->set_name(preset.name);
    out->set_summary(preset.summary);
    out->set_source(preset.source);
    for (const std::string& field : preset.required_fields) out->add_required_fields(field);
    *out->mutable_spec() = ToWire(preset.spec);
    if (preset.context_length.has_value()) out->set_context_length(*preset.context_length);
    out->set_verified(preset.verified);
    out->set_note(preset.note);
  }
  for (const BiasPreset& preset : BiasPresets()) *response.add_bias_presets() = ToWire(preset);
  return response;
}

}  // namespace

PositionEmbeddingServiceImpl::PositionEmbeddingServiceImpl(engine::Engine* engine,
                                                           ServiceOptions options)
    : engine_(*engine),
      options_(std::move(options)),
      backend_(engine->backend()->name()),
      max_inflight_bytes_(options_.max_inflight_bytes),
      max_batch_items_(options_.max_batch_items) {
  SilenceProtobufLog();
}

void PositionEmbeddingServiceImpl::SetListeners(std::vector<std::string> listeners) {
  absl::MutexLock lock(&mu_);
  listeners_ = std::move(listeners);
}

void PositionEmbeddingServiceImpl::SetLimits(int64_t max_inflight_bytes, int64_t max_batch_items) {
  max_inflight_bytes_.store(max_inflight_bytes, std::memory_order_relaxed);
  max_batch_items_.store(max_batch_items, std::memory_order_relaxed);
}

TensorCallLimits PositionEmbeddingServiceImpl::Limits() {
  return {options_.max_message_bytes,
          options_.max_header_bytes,
          max_batch_items_.load(std::memory_order_relaxed),
          options_.tables,
          &table_reads_,
          options_.encoders,
          options_.memory,
          &memo_};
}

grpc::ServerUnaryReactor* PositionEmbeddingServiceImpl::Start(const TensorMethod& method,
                                                              grpc::CallbackServerContext* context,
                                                              const grpc::ByteBuffer* request,
                                                              grpc::ByteBuffer* response) {
  return StartTensorCall(method, Limits(), engine_, context, Mutable(request), response);
}

grpc::ServerUnaryReactor* PositionEmbeddingServiceImpl::Encode(grpc::CallbackServerContext* context,
                                                               const grpc::ByteBuffer* request,
                                                               grpc::ByteBuffer* response) {
  return Start(kEncode, context, request, response);
}

grpc::ServerUnaryReactor* PositionEmbeddingServiceImpl::ApplyRoPE(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
    grpc::ByteBuffer* response) {
  return Start(kApplyRoPE, context, request, response);
}

grpc::ServerUnaryReactor* PositionEmbeddingServiceImpl::BatchEncode(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
    grpc::ByteBuffer* response) {
  return Start(kBatchEncode, context, request, response);
}

grpc::ServerUnaryReactor* PositionEmbeddingServiceImpl::BatchApplyRoPE(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
    grpc::ByteBuffer* response) {
  return Start(kBatchApplyRoPE, context, request, response);
}

grpc::ServerUnaryReactor* PositionEmbeddingServiceImpl::AttentionBias(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
    grpc::ByteBuffer* response) {
  return Start(kAttentionBias, context, request, response);
}

grpc::ServerUnaryReactor* PositionEmbeddingServiceImpl::MoveKeys(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
    grpc::ByteBuffer* response) {
  return Start(kMoveKeys, context, request, response);
}

grpc::ServerUnaryReactor* PositionEmbeddingServiceImpl::BatchMoveKeys(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
    grpc::ByteBuffer* response) {
  return Start(kBatchMoveKeys, context, request, response);
}

grpc::ServerUnaryReactor* PositionEmbeddingServiceImpl::ResolveSpec(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
    grpc::ByteBuffer* response) {
  CallCounter::NoteReceived(context, static_cast<int64_t>(request->Length()));
  if (auto* const refused = RefusedReactor(context)) return refused;
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  auto call = ReadSpec<v1::ResolveSpecRequest>(engine_, options_, *context, *request);
  absl::StatusOr<ResolvedSpec> spec =
      call.ok() ? phasor::ResolveSpec(call->spec, "spec") : call.status();
  if (!spec.ok()) {
    FinishCall(context, reactor, spec.status());
  } else if (!call->message.has_parity_comparison() && LanesOf(*spec) <= kMostLanesAtOnce) {
    Finish(engine_, context, reactor, response, DescribeSpec(*spec));
  } else {
    long_answers_.Post(ClientOf(*context),
                       [=, this, call = *std::move(call), spec = *std::move(spec)] {
                         Finish(engine_, context, reactor, response,
                                DescribeLater(*context, call.message, call.spec, spec));
                       });
  }
  return reactor;
}

grpc::ServerUnaryReactor* PositionEmbeddingServiceImpl::ResolveModel(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
    grpc::ByteBuffer* response) {
  CallCounter::NoteReceived(context, static_cast<int64_t>(request->Length()));
  return Answer(engine_, context, response, [&]() -> absl::StatusOr<v1::ResolveModelResponse> {
    PHASOR_ASSIGN_OR_RETURN(
        const auto read, ReadSpec<v1::ResolveModelRequest>(engine_, options_, *context, *request));
    PHASOR_ASSIGN_OR_RETURN(const ModelDetails details, DetailsOfModel(read.spec));
    return ToWire(details);
  });
}

grpc::ServerUnaryReactor* PositionEmbeddingServiceImpl::ListPresets(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
    grpc::ByteBuffer* response) {
  return Answer(engine_, context, response, [&]() -> absl::StatusOr<v1::ListPresetsResponse> {
    PHASOR_RETURN_IF_ERROR(
        ReadMessage<v1::ListPresetsRequest>(*request, options_.max_header_bytes).status());
    return AllPresets();
  });
}

grpc::ServerUnaryReactor* PositionEmbeddingServiceImpl::GetServerInfo(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
    grpc::ByteBuffer* response) {
  return Answer(engine_, context, response, [&]() -> absl::StatusOr<v1::GetServerInfoResponse> {
    PHASOR_RETURN_IF_ERROR(
        ReadMessage<v1::GetServerInfoRequest>(*request, options_.max_header_bytes).status());
    return Info();
  });
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* PositionEmbeddingServiceImpl::Start(
    const StreamMethod& method, grpc::CallbackServerContext* context) {
  return streams_.Start(method, {Limits(), options_.stream_idle_timeout}, engine_, context);
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>*
PositionEmbeddingServiceImpl::StreamEncode(grpc::CallbackServerContext* context) {
  return Start(kStreamEncode, context);
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>*
PositionEmbeddingServiceImpl::StreamApplyRoPE(grpc::CallbackServerContext* context) {
  return Start(kStreamApplyRoPE, context);
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>*
PositionEmbeddingServiceImpl::StreamMoveKeys(grpc::CallbackServerContext* context) {
  return Start(kStreamMoveKeys, context);
}

absl::StatusOr<v1::ResolveSpecResponse> PositionEmbeddingServiceImpl::DescribeSpec(
    const ResolvedSpec& spec) {
  PHASOR_ASSIGN_OR_RETURN(const auto plan, engine_.GetPlan(spec));
  return MakeResolveSpecResponse(*plan, backend_);
}

absl::StatusOr<v1::ResolveSpecResponse> PositionEmbeddingServiceImpl::DescribeLater(
    const grpc::CallbackServerContext& context, const v1::ResolveSpecRequest& request,
    const Spec& spec, const ResolvedSpec& resolved) {
  if (context.IsCancelled()) return absl::CancelledError("spec: nobody waits for it");
  PHASOR_ASSIGN_OR_RETURN(v1::ResolveSpecResponse response, DescribeSpec(resolved));
  if (!request.has_parity_comparison()) return response;
  PHASOR_ASSIGN_OR_RETURN(const auto wanted, ComparisonFromWire(request.parity_comparison()));
  PHASOR_ASSIGN_OR_RETURN(const auto report, parity::Compare(spec, wanted));
  if (report.has_value()) *response.mutable_parity_difference() = ToWire(*report);
  return response;
}

v1::GetServerInfoResponse PositionEmbeddingServiceImpl::Info() {
  v1::GetServerInfoResponse info;
  info.set_version(options_.version);
  info.set_numerics_version(kNumericsVersion);
  info.add_backends(backend_);
  info.set_cpu_target(engine_.backend()->target());
  info.set_cpu_threads(engine_.backend()->threads());
  v1::ServerLimits* limits = info.mutable_limits();
  limits->set_max_message_bytes(options_.max_message_bytes);
  limits->set_max_header_bytes(options_.max_header_bytes);
  limits->set_max_inflight_bytes(max_inflight_bytes_.load(std::memory_order_relaxed));
  limits->set_inline_bytes(options_.inline_bytes);
  limits->set_max_batch_items(max_batch_items_.load(std::memory_order_relaxed));
  info.set_lease_socket(options_.lease_socket);
  if (options_.memory.leases != nullptr)
    info.set_lease_instance(options_.memory.leases->instance());
  if (options_.encoders != nullptr) {
    for (const auto& [name, encoder] : options_.encoders->Get()->encoders()) {
      v1::NamedEncoder* const out = info.add_encoders();
      out->set_name(name);
      out->set_spec_fingerprint(encoder.fingerprint);
    }
  }
  for (const DevicePort* const device : engine_.backend()->devices()) {
    *info.add_devices() = Describe(*device);
  }
  if (info.devices_size() > 0) *info.mutable_device() = info.devices(0);
  absl::MutexLock lock(&mu_);
  for (const std::string& listener : listeners_) info.add_listeners(listener);
  return info;
}

}  // namespace phasor::rpc
