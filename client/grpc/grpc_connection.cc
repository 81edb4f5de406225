// SPDX-License-Identifier: Apache-2.0
// The connection to a server over gRPC: sends calls as messages, stages large tensors in shared
// memory, and registers GPU memory.
#include "client/grpc/grpc_connection.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/common/calls.h"
#include "client/grpc/byte_buffer.h"
#include "client/grpc/channel_security.h"
#include "client/grpc/chunked_rope.h"
#include "client/grpc/forked.h"
#include "client/grpc/grpc_channel.h"
#include "client/grpc/item_stream.h"
#include "client/grpc/responses.h"
#include "client/grpc/upload.h"
#include "client/grpc/wire_items.h"
#include "client/shared/lease_client.h"
#include "client/shared/staging.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/steady_time.h"
#include "kernels/base/text.h"
#include "kernels/spec/spec_base.h"
#include "phasor/v1/position_embedding_service.pb.h"
#include "phasor/v1/shared_memory_service.pb.h"
#include "phasor/v1/table_service.pb.h"
#include "proto/convert.h"

namespace phasor::client_internal {
namespace {

constexpr std::string_view kService = "/phasor.v1.PositionEmbeddingService/";
constexpr absl::Duration kAskServerFor = absl::Seconds(5);
constexpr std::string_view kTableService = "/phasor.v1.TableService/";
constexpr std::string_view kMemoryService = "/phasor.v1.SharedMemoryService/";

// Whether `target` can only be one server of this host.
bool IsOneHost(std::string_view target) {
  for (const std::string_view prefix : {"dns:///", "ipv4:", "ipv6:"}) {
    if (target.starts_with(prefix)) target.remove_prefix(prefix.size());
  }
  if (target.find(',') != target.npos) return false;  // several addresses
  for (const std::string_view prefix : {"unix:", "localhost:", "127.0.0.1:", "[::1]:"}) {
    if (target.starts_with(prefix)) return true;
  }
  return false;
}

// A name that no other client uses or can guess. On a Unix socket, every caller may use every
// region.
std::string RandomName() {
  std::random_device random;
  std::string name = "client";
  for (int i = 0; i < 4; ++i) absl::StrAppend(&name, "-", absl::Hex(random(), absl::kZeroPad8));
  return name;
}

v1::Region ToRegion(const CudaIpcAllocation& allocation, const std::string& name) {
  v1::Region region;
  region.set_name(name);
  region.set_size_bytes(allocation.size_bytes);
  region.set_read_only(allocation.read_only);
  v1::CudaIpcRegion& cuda = *region.mutable_cuda_ipc();
  cuda.set_handle(allocation.handle);
  cuda.set_offset_bytes(allocation.offset_bytes);
  cuda.set_device_uuid(allocation.device_uuid);
  return region;
}

// Whether the server may have begun a call that failed with this status. Otherwise it has answered.
bool MayHaveBegun(const absl::Status& status) {
  return absl::IsDeadlineExceeded(status) || absl::IsCancelled(status) ||
         absl::IsUnavailable(status);
}

// A call in flight: its request, the memory that it lends, and its answer so far.
template <typename Call, typename Result>
struct InFlight {
  Call call;
  Payload payload;
  Done<Result> done;
  std::optional<Result> result;
  bool* refused = nullptr;  // as in RawCall

  void Finish(absl::Status status) {
    if (!status.ok()) return done(std::move(status));
    done(*std::move(result));
  }
};

// Owns the channel. Threads: any.
class GrpcConnection final : public Connection,
                             public std::enable_shared_from_this<GrpcConnection> {
 public:
  // `one_host`: all calls reach one server, on this host.
  GrpcConnection(const std::string& target, const ClientOptions& options,
                 const ChannelSecurity& security, bool one_host, Timer* timer)
      : channel_(target, options, timer, security), one_host_(one_host) {
    if (one_host && options.staging_bytes > 0) {
      staging_ = std::make_shared<StagingPool>(leases_, options.staging_bytes);
    }
  }

  bool can_connect() const { return channel_.CanConnect(); }

  void Encode(EncodeCall call, CallContext context, Done<EncodeResult> done) override {
    StartStaged<v1::EncodeRequest>("Encode", std::move(call), context, std::move(done));
  }
  void ApplyRoPE(RopeCall call, CallContext context, Done<RunInfo> done) override {
    StartStaged<v1::ApplyRoPERequest>("ApplyRoPE", std::move(call), context, std::move(done));
  }
  void BatchEncode(std::vector<EncodeCall> calls, CallContext context,
                   Done<std::vector<absl::StatusOr<EncodeResult>>> done) override {
    StartBatch<v1::BatchEncodeRequest>("BatchEncode", std::move(calls), context, std::move(done));
  }
  void BatchApplyRoPE(std::vector<RopeCall> calls, CallContext context,
                      Done<std::vector<absl::StatusOr<RunInfo>>> done) override {
    StartBatch<v1::BatchApplyRoPERequest>("BatchApplyRoPE", std::move(calls), context,
                                          std::move(done));
  }
  void AttentionBias(BiasCall call, CallContext context, Done<EncodeResult> done) override {
    StartUnary<v1::AttentionBiasRequest>("AttentionBias", std::move(call), context,
                                         std::move(done));
  }
  void MoveKeys(MoveCall call, CallContext context, Done<MoveResult> done) override {
    StartUnary<v1::MoveKeysRequest>("MoveKeys", std::move(call), context, std::move(done));
  }
  void BatchMoveKeys(std::vector<MoveCall> calls, CallContext context,
                     Done<std::vector<absl::StatusOr<MoveResult>>> done) override {
    StartBatch<v1::BatchMoveKeysRequest>("BatchMoveKeys", std::move(calls), context,
                                         std::move(done));
  }
  std::unique_ptr<EncodeStream> StreamEncode(CallContext context) override {
    return MakeEncodeStream(channel_.channel(), leases_, context);
  }
  std::unique_ptr<RopeStream> StreamApplyRoPE(CallContext context) override {
    return MakeRopeStream(channel_.channel(), leases_, context);
  }
  std::unique_ptr<MoveStream> StreamMoveKeys(CallContext context) override {
    return MakeMoveStream(channel_.channel(), leases_, context);
  }
  void ApplyRoPEInChunks(std::vector<RopeCall> entries, ChunkOptions options, CallContext context,
                         Done<RunInfo> done) override {
    done(RopeInChunks(channel_.channel(), entries, options, context));
  }
  void ListTables(std::string page_token, CallContext context, Done<TablePage> done) override {
    v1::ListTablesRequest request;
    request.set_page_token(page_token);
    StartPlain(StrCat(kTableService, "ListTables"), request.SerializeAsString(), context,
               &ReadListTablesResponse, std::move(done));
  }
  void GetTable(std::string name, CallContext context, Done<TableInfo> done) override {
    v1::GetTableRequest request;
    request.set_name(name);
    StartPlain(StrCat(kTableService, "GetTable"), request.SerializeAsString(), context,
               &ReadGetTableResponse, std::move(done));
  }
  void CreateTable(std::string name, TensorView values, CallContext context,
                   Done<TableInfo> done) override {
    done(UploadTable(channel_.channel(), name, values, context));
  }
  void DeleteTable(std::string name, CallContext context,
                   absl::AnyInvocable<void(absl::Status)> done) override {
    v1::DeleteTableRequest request;
    request.set_name(name);
    RawCall call{.method = StrCat(kTableService, "DeleteTable"),
                 .header = request.SerializeAsString()};
    call.on_response = [](const WalkedMessage&) { return absl::OkStatus(); };
    call.done = std::move(done);
    channel_.Start(std::move(call), context);
  }
  void ResolveSpec(Spec spec, std::optional<parity::Comparison> comparison, CallContext context,
                   Done<SpecDetails> done) override {
    if (absl::Status status = CheckBase(spec, "spec"); !status.ok()) return done(status);
    v1::ResolveSpecRequest request;
    *request.mutable_spec() = ToWire(spec);
    if (comparison.has_value()) *request.mutable_parity_comparison() = ToWire(*comparison);
    StartPlain(StrCat(kService, "ResolveSpec"), request.SerializeAsString(), context,
               &ReadResolveSpecResponse, std::move(done));
  }
  void ResolveModel(Spec spec, CallContext context, Done<ModelDetails> done) override {
    if (absl::Status status = CheckBase(spec, "spec"); !status.ok()) return done(status);
    v1::ResolveModelRequest request;
    *request.mutable_spec() = ToWire(spec);
    StartPlain(StrCat(kService, "ResolveModel"), request.SerializeAsString(), context,
               &ReadResolveModelResponse, std::move(done));
  }
  void AllocateShared(int64_t bytes, CallContext context, Done<SharedMemory> done) override {
    if (!one_host_ || bytes <= 0) return done(SharedMemory::Ordinary(bytes));
    if (const auto leases = leases_->Get(); leases != nullptr && leases->alive()) {
      return done(Allocate(leases, bytes, context.deadline));
    }
    // The server may have been restarted with another lease socket, so ask it again. The caller
    // holds the connection until this is done.
    GetServerInfo(context, [this, bytes, deadline = context.deadline,
                            done = std::move(done)](absl::StatusOr<ServerInfo> info) mutable {
      if (!info.ok()) return done(info.status());
      if (info->lease_socket.empty()) return done(SharedMemory::Ordinary(bytes));
      auto leases = LeaseClient::Connect(info->lease_socket, info->lease_instance, deadline);
      if (!leases.ok())
        return done(SharedMemory::Ordinary(bytes));  // on another host, as behind a tunnel
      done(Allocate(leases_->Keep(*std::move(leases)), bytes, deadline));
    });
  }
  void RegisterDeviceMemory(CudaIpcAllocation allocation, CallContext context,
                            Done<DeviceMemory> done) override {
    if (!one_host_) {
      return done(absl::FailedPreconditionError(
          "target: not one server of this host; must be unix:/path or a port of 127.0.0.1 for "
          "memory of a GPU"));
    }
    const std::string name = RandomName();
    v1::RegisterRequest request;
    *request.mutable_region() = ToRegion(allocation, name);
    const auto self = shared_from_this();
    auto registration = std::make_shared<DeviceRegistration>(
        name, allocation.size_bytes, leases_,
        [self, name](absl::Duration timeout) { return self->Unregister(name, timeout); });
    StartOnFirst("Register", request.SerializeAsString(), context,
                 [self, registration, done = std::move(done)](absl::Status status) mutable {
                   if (status.ok()) return done(DeviceMemory(std::move(registration)));
                   if (MayHaveBegun(status)) self->Forget(registration->name());
                   done(std::move(status));
                 });
  }
  void ListPresets(CallContext context, Done<std::vector<Preset>> done) override {
    StartPlain(StrCat(kService, "ListPresets"), "", context, &ReadListPresetsResponse,
               std::move(done));
  }
  void GetServerInfo(CallContext context, Done<ServerInfo> done) override {
    StartPlain(StrCat(kService, "GetServerInfo"), "", context, &ReadServerInfoResponse,
               std::move(done));
  }
  void CheckHealth(std::string service, CallContext context, Done<Health> done) override {
    StartPlain("/grpc.health.v1.Health/Check", WriteHealthRequest(service), context,
               &ReadHealthResponse, std::move(done));
  }

 private:
  // Like StartUnary, but with large tensors in memory that the server maps, if possible.
  template <typename Request, typename Call, typename Result>
  void StartStaged(std::string_view method, Call call, const CallContext& context,
                   Done<Result> done) {
    Done<ServerInfo> asks;  // for the server's info
    const auto ask = [&](Done<ServerInfo> answer) { asks = std::move(answer); };
    std::shared_ptr<StagedCall<Call>> staged;
    if (staging_ != nullptr) staged = Stage(call, *staging_, ask, context.deadline);
    if (staged == nullptr) {
      return StartAndAsk<Request>(method, std::move(call), context, std::move(done),
                                  std::move(asks));
    }
    const auto refused = std::make_shared<bool>(false);
    Call shared_call = staged->call;
    Done<Result> finish = [self = shared_from_this(), method, call = std::move(call), context,
                           staged, refused,
                           done = std::move(done)](absl::StatusOr<Result> result) mutable {
      if (result.ok()) staged->Finish();
      staged.reset();
      if (result.ok() || *refused || !MayTravel(result.status())) return done(std::move(result));
      self->template StartUnary<Request>(method, std::move(call), context, std::move(done));
    };
    StartUnary<Request>(method, std::move(shared_call), context, std::move(finish), refused.get());
  }

  // StartUnary, and GetServerInfo for `asks` unless that is empty. A caller that waits asks by
  // itself, after its call: the server answers then, and no thread of gRPC is needed.
  template <typename Request, typename Call, typename Result>
  void StartAndAsk(std::string_view method, Call call, const CallContext& context,
                   Done<Result> done, Done<ServerInfo> asks) {
    if (asks != nullptr && !context.caller_waits) {
      GetServerInfo({.deadline = SteadyNow() + kAskServerFor}, std::move(asks));
    } else if (asks != nullptr) {
      done = [self = shared_from_this(), context = CallContext(context), asks = std::move(asks),
              done = std::move(done)](absl::StatusOr<Result> result) mutable {
        const bool answered = !MayHaveBegun(result.status());
        done(std::move(result));
        if (!answered) return;
        context.deadline = std::min(context.deadline, SteadyNow() + kAskServerFor);
        self->GetServerInfo(std::move(context), std::move(asks));
      };
    }
    StartUnary<Request>(method, std::move(call), context, std::move(done));
  }

  // Request is the message of a unary RPC on tensors. `refused` is as in RawCall.
  template <typename Request, typename Call, typename Result>
  void StartUnary(std::string_view method, Call call, const CallContext& context, Done<Result> done,
                  bool* refused = nullptr) {
    auto flight = std::make_shared<InFlight<Call, Result>>();
    flight->call = std::move(call);
    flight->done = std::move(done);
    flight->refused = refused;
    const std::shared_ptr<LeaseClient> leases =
        leases_->Get();  // lives as long as memory that is leased
    flight->payload.leases = leases.get();
    flight->payload.connection = leases_.get();
    auto item = MakeItem(flight->call, kItemPath, flight->payload);
    if (!item.ok()) return flight->Finish(item.status());
    Request request;
    *request.mutable_item() = *std::move(item);
    Start(method, request.SerializeAsString(), context, std::move(flight));
  }

  // An item that cannot be sent keeps its error and is sent empty, so that the indexes of the other
  // items stay the same.
  template <typename Request, typename Call, typename Result>
  void StartBatch(std::string_view method, std::vector<Call> calls, const CallContext& context,
                  Done<std::vector<absl::StatusOr<Result>>> done) {
    auto flight =
        std::make_shared<InFlight<BatchCall<Call>, std::vector<absl::StatusOr<Result>>>>();
    flight->done = std::move(done);
    flight->call.calls = std::move(calls);
    const std::shared_ptr<LeaseClient> leases = leases_->Get();
    flight->payload.leases = leases.get();
    flight->payload.connection = leases_.get();
    Request request;
    for (size_t i = 0; i < flight->call.calls.size(); ++i) {
      const size_t sent = flight->payload.raw.size();
      const int destinations = flight->payload.destinations;
      auto item = MakeItem(flight->call.calls[i], BatchItemPath(i), flight->payload);
      if (!item.ok()) {
        flight->payload.raw.resize(sent);
        flight->payload.destinations = destinations;
      }
      flight->call.local.push_back(item.status());
      flight->call.destinations.push_back(flight->payload.destinations - destinations);
      auto* wire = request.add_items();
      if (item.ok()) *wire = *std::move(item);
    }
    Start(method, request.SerializeAsString(), context, std::move(flight));
  }

  template <typename Flight>
  void Start(std::string_view method, std::string header, const CallContext& context,
             std::shared_ptr<Flight> flight) {
    RawCall raw_call{.method = StrCat(kService, method),
                     .header = std::move(header),
                     .raw = flight->payload.raw,
                     .once = flight->payload.destinations > 0,
                     .on_first = flight->payload.names_device,
                     .refused = flight->refused};
    raw_call.on_response = [flight](const WalkedMessage& message) {
      return ReadResponse(message, flight->call, flight->payload.destinations,
                          flight->result.emplace());
    };
    raw_call.done = [flight](absl::Status status) { flight->Finish(std::move(status)); };
    channel_.Start(std::move(raw_call), context);
  }

  template <typename Result>
  void StartPlain(std::string method, std::string request, const CallContext& context,
                  absl::StatusOr<Result> (*read)(const std::string&), Done<Result> done) {
    auto answer = std::make_shared<std::optional<Result>>();
    auto shared_done = std::make_shared<Done<Result>>(std::move(done));
    RawCall call{.method = std::move(method), .header = std::move(request)};
    call.on_response = [answer, read](const WalkedMessage& message) -> absl::Status {
      PHASOR_ASSIGN_OR_RETURN(*answer, read(message.header));
      return absl::OkStatus();
    };
    call.done = [answer, shared_done](absl::Status status) {
      if (!status.ok()) return (*shared_done)(std::move(status));
      (*shared_done)(**std::move(answer));
    };
    channel_.Start(std::move(call), context);
  }

  // Starts a call of SharedMemoryService that is not retried, over the connection to which regions
  // belong.
  void StartOnFirst(std::string_view method, std::string request, const CallContext& context,
                    absl::AnyInvocable<void(absl::Status)> done) {
    RawCall call{.method = StrCat(kMemoryService, method),
                 .header = std::move(request),
                 .once = true,
                 .on_first = true};
    call.on_response = [](const WalkedMessage&) { return absl::OkStatus(); };
    call.done = std::move(done);
    channel_.Start(std::move(call), context);
  }

  void StartUnregister(const std::string& name, const CallContext& context,
                       absl::AnyInvocable<void(absl::Status)> done) {
    v1::UnregisterRequest request;
    request.set_name(name);
    StartOnFirst("Unregister", request.SerializeAsString(), context, std::move(done));
  }
  // Unregisters a region and waits for the answer.
  absl::Status Unregister(const std::string& name, absl::Duration timeout) {
    absl::Status answer;
    StartUnregister(name, {.deadline = SteadyNow() + timeout, .caller_waits = true},
                    [&](absl::Status status) { answer = std::move(status); });
    return answer;
  }
  // Unregisters a region without waiting, so that memory which the server opened after all can be
  // freed.
  void Forget(const std::string& name) {
    StartUnregister(name, {.deadline = SteadyNow() + kAskServerFor}, [](const absl::Status&) {});
  }

  // Allocates leased memory, or ordinary memory if there is no lease.
  static absl::StatusOr<SharedMemory> Allocate(const std::shared_ptr<LeaseClient>& leases,
                                               int64_t bytes, absl::Time deadline) {
    absl::StatusOr<SharedMemory> memory = leases->Allocate(bytes, deadline);
    if (memory.ok() || absl::IsInvalidArgument(memory.status())) return memory;
    return SharedMemory::Ordinary(bytes);
  }

  GrpcChannel channel_;
  const bool one_host_;
  const std::shared_ptr<LeaseHolder> leases_ = std::make_shared<LeaseHolder>();
  std::shared_ptr<StagingPool> staging_;  // nullptr: staging is off
};

}  // namespace

absl::StatusOr<std::shared_ptr<Connection>> MakeGrpcConnection(std::string_view target,
                                                               const ClientOptions& options,
                                                               Timer* timer) {
  PHASOR_RETURN_IF_ERROR(CheckNotForked());
  PHASOR_ASSIGN_OR_RETURN(const std::string grpc_target, GrpcTarget(target));
  const bool one_host = IsOneHost(target);
  const bool unix_socket = target.starts_with("unix");
  PHASOR_ASSIGN_OR_RETURN(const ChannelSecurity security,
                          ChannelSecurity::Make(options, one_host || unix_socket, unix_socket));
  auto connection =
      std::make_shared<GrpcConnection>(grpc_target, options, security, one_host, timer);
  if (!connection->can_connect()) return UnknownTarget(target);
  return connection;
}

}  // namespace phasor::client_internal
