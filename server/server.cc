// SPDX-License-Identifier: Apache-2.0
// Builds a server from its options, and starts, reloads and stops its parts.
#include "server/server.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/resource_quota.h>

#include <algorithm>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "kernels/backend/backend.h"
#include "kernels/backends.h"
#include "kernels/base/status_macros.h"
#include "kernels/self_test.h"
#include "server/admin_server.h"
#include "server/api/service.h"
#include "server/api/shared_memory_service.h"
#include "server/api/table_service.h"
#include "server/base/clock.h"
#include "server/base/log.h"
#include "server/engine/device_watch.h"
#include "server/engine/engine.h"
#include "server/engine/load.h"
#include "server/grpc/call_counter.h"
#include "server/grpc/callback_threads.h"
#include "server/grpc/grpc_log.h"
#include "server/grpc/grpc_server.h"
#include "server/grpc/health_service.h"
#include "server/grpc/service_methods.h"
#include "server/memory/device_region_store.h"
#include "server/memory/lease_socket.h"
#include "server/memory/lease_store.h"
#include "server/net/listen_socket.h"
#include "server/net/listener.h"
#include "server/net/listener_watch.h"
#include "server/oip/service.h"
#include "server/part_options.h"
#include "server/server_security.h"
#include "server/tables/table_store.h"
#include "server/telemetry/metrics.h"
#include "server/telemetry/request_log.h"
#include "server/trace/call_tracer.h"
#include "server/trace/span_exporter.h"
#include "server/trace/trace_options.h"

namespace phasor {
namespace {

// Memory that gRPC needs for connections, before the byte budget decides about calls.
constexpr int64_t kLeastQuota = int64_t{64} << 20;

// The service of gRPC's plug-in, whose generated code is not installed.
constexpr char kReflectionService[] = "grpc.reflection.v1alpha.ServerReflection";

size_t QuotaBytes(const ServerOptions& o) {
  return static_cast<size_t>(std::max(o.max_inflight_bytes, kLeastQuota));
}

// While no small calls come, calls of up to so many times --inline-bytes are computed where they
// were received.
constexpr int64_t kLargerInline = 16;

SocketAccess SocketAccessOf(const ServerOptions& o) { return {o.socket_mode, o.socket_group}; }

ListenerOptions ListenerOptionsOf(const ServerOptions& o) {
  return {.addresses = o.listen,
          .max_connections = o.max_connections,
          .max_connections_per_peer = o.max_connections_per_peer,
          .access = SocketAccessOf(o),
          .passed = o.passed_sockets,
          .notify_socket = o.notify_socket};
}

std::vector<std::string> ServiceNames() {
  return {v1::PositionEmbeddingService::service_full_name(), v1::TableService::service_full_name(),
          v1::SharedMemoryService::service_full_name(),
          inference::GRPCInferenceService::service_full_name()};
}

// With gRPC's own services, which it answers whether they are offered or not.
std::vector<std::string> AllServiceNames() {
  std::vector<std::string> services = ServiceNames();
  services.insert(services.end(),
                  {grpc::health::v1::Health::service_full_name(), kReflectionService});
  return services;
}

// The name of the GPUs together in health checks, and of each of them.
constexpr char kDevicesService[] = "phasor.device";
std::string DeviceServiceOf(const DevicePort& device) {
  return absl::StrCat(kDevicesService, ".", device.device_number());
}

bool Works(const DevicePort& device) {
  return device.device_state().kind == DeviceState::Kind::kWorking;
}

std::vector<std::string> HealthServices() {
  return {v1::PositionEmbeddingService::service_full_name(),
          inference::GRPCInferenceService::service_full_name()};
}

std::vector<std::string> MainHealthServices(Backend& backend) {
  std::vector<std::string> services = HealthServices();
  const DeviceList devices = backend.devices();
  if (!devices.empty()) services.push_back(kDevicesService);
  for (const DevicePort* const device : devices) services.push_back(DeviceServiceOf(*device));
  return services;
}

absl::StatusOr<std::vector<ListenSocket>> ListenForLeases(const ListenAddress& address,
                                                          const ServerOptions& o) {
  absl::StatusOr<std::vector<ListenSocket>> sockets = Listen(address, SocketAccessOf(o));
  if (sockets.ok()) return sockets;
  absl::string_view why = sockets.status().message();
  absl::ConsumePrefix(&why, "listen: ");
  return absl::Status(sockets.status().code(), absl::StrCat("lease-socket: ", why));
}

void LogLeftOut(const std::string& why) {
  Log(LogLevel::kWarn, "device left out", {{"error", why}});
}

class GrpcServer final : public Server {
 public:
  GrpcServer(const ServerOptions& options, std::unique_ptr<ServerSecurity> security,
             std::unique_ptr<Backend> backend, std::unique_ptr<tables::TableStore> tables,
             std::unique_ptr<Listener> listener, std::vector<ListenSocket> lease_listeners,
             const trace::TraceOptions& trace)
      : options_(options),
        security_(std::move(security)),
        backend_(std::move(backend)),
        tables_(std::move(tables)),
        leases_({options.max_lease_bytes, options.max_leases}),
        regions_(RegionStoreOptionsOf(options, region_names_, listener->connections())),
        devices_(backend_->devices(),
                 DeviceRegionOptionsOf(options, region_names_, listener->connections()),
                 Clock::Real()),
        metrics_(rpc::ServiceMethods(AllServiceNames())),
        request_log_({.every = options.log_every}),
        engine_(EngineOptionsOf(options, &metrics_.engine), backend_.get(), Clock::Real()),
        service_(&engine_, ServiceOptionsOf(options, tables_.get(), &encoders_,
                                            {&leases_, &regions_, &devices_})),
        table_service_(tables_.get(), options.stream_idle_timeout),
        shared_memory_service_(&regions_, &devices_),
        inference_service_(&engine_, InferenceOptionsOf(options, tables_.get(),
                                                        {nullptr, &regions_, &devices_}, trace)),
        health_(MainHealthServices(*backend_)),
        listener_(std::move(listener)),
        lease_listeners_(std::move(lease_listeners)),
        current_(options) {
    if (!trace.endpoint.empty()) {
      exporter_of_spans_ = std::make_unique<trace::SpanExporter>(trace, PHASOR_VERSION);
      tracer_ = std::make_unique<trace::CallTracer>(trace, exporter_of_spans_.get());
    }
    CountCopiesOfDevices();
    listener_->connections().WhenClosed([this](const std::string& connection) {
      regions_.ForgetConnection(connection);
      devices_.ForgetConnection(connection);
    });
  }
  ~GrpcServer() override {
    Shutdown();
    for (DevicePort* const device : backend_->devices()) device->SetCopyBudget(nullptr);
  }

  absl::Status Start() {
    PHASOR_ASSIGN_OR_RETURN(EncoderSet encoders, EncoderSet::Make(options_.encoders));
    UseEncoders(std::move(encoders));
    service_.SetListeners(listeners());
    for (const ListenSocket& socket : lease_listeners_) {
      lease_sockets_.push_back(std::make_unique<memory::LeaseSocket>(socket.fd(), &leases_));
    }
    if (security_->credentials() != nullptr) WatchTlsHandshakes();
    PHASOR_ASSIGN_OR_RETURN(limited_, StartGrpcServer(options_, Parts(), listener_.get()));
    PHASOR_RETURN_IF_ERROR(StartSideListeners());
    listener_watch_ = std::make_unique<ListenerWatch>(
        listener_.get(), [this](bool accepting) { SetAccepting(accepting); });
    if (const DeviceList devices = backend_->devices(); !devices.empty()) {
      device_watch_ = std::make_unique<DeviceWatch>(
          devices,
          DeviceWatchOptions{.restart = options_.device_fault == "restart",
                             .changed = [this](const DevicePort& device) { ReportHealth(device); },
                             .stop_serving = [this] { StopServing(); }});
    }
    return absl::OkStatus();
  }

  GrpcServerParts Parts() {
    quota_.Resize(QuotaBytes(options_));
    auto contexts =
        std::make_unique<rpc::CallCounter>(security_->access(), &listener_->connections());
    calls_ = contexts.get();
    GrpcServerParts parts;
    parts.services = {&service_, &table_service_, &shared_memory_service_, &inference_service_,
                      &health_};
    // gRPC's own service does not ask who calls, so it is off if callers are checked.
    if (options_.reflection && options_.tokens_file.empty() && options_.policy_file.empty()) {
      parts.plugin = kReflectionPlugin;
    }
    parts.max_request_bytes = parts.max_response_bytes = options_.max_message_bytes;
    parts.quota = &quota_;
    parts.observers = {&metrics_.calls, &request_log_};
    if (tracer_ != nullptr) parts.observers.push_back(tracer_.get());
    parts.finished = {
        absl::StrCat(v1::PositionEmbeddingService::service_full_name(), "/"),
        absl::StrCat(inference::GRPCInferenceService::service_full_name(), "/ModelInfer"),
        absl::StrCat(inference::GRPCInferenceService::service_full_name(), "/ModelStreamInfer")};
    parts.contexts = std::move(contexts);
    parts.tls = security_->credentials();
    return parts;
  }

  // Starts health, channelz and metrics on their own addresses.
  absl::Status StartSideListeners() {
    if (!options_.admin_listen.empty()) {
      PHASOR_ASSIGN_OR_RETURN(admin_, AdminServer::Start(options_, HealthServices()));
    }
    if (!options_.metrics_listen.empty()) {
      PHASOR_ASSIGN_OR_RETURN(exporter_, telemetry::ServeMetrics(options_.metrics_listen, &metrics_,
                                                                 [this] { return Snap(); }));
    }
    return absl::OkStatus();
  }

  std::vector<std::string> listeners() const override { return listener_->addresses(); }
  std::vector<std::string> admin_listeners() const override {
    return admin_ == nullptr ? std::vector<std::string>() : admin_->listeners();
  }
  std::vector<std::string> metrics_listeners() const override {
    return exporter_ == nullptr ? std::vector<std::string>() : exporter_->addresses();
  }
  std::string backend() const override { return std::string(backend_->name()); }
  std::vector<std::string> devices() const override {
    std::vector<std::string> names;
    for (const DevicePort* const device : backend_->devices()) names.push_back(NameOf(*device));
    return names;
  }
  absl::Status ReloadCredentials() override { return security_->Reload(); }
  telemetry::Refusals security_stats() const override {
    const rpc::AccessStats refused =
        security_->access() == nullptr ? rpc::AccessStats() : security_->access()->stats();
    return {refused.unauthenticated, refused.permission_denied, TlsHandshakesFailed()};
  }

  absl::StatusOr<ReloadReport> Reload(const ServerOptions& next) override {
    PHASOR_RETURN_IF_ERROR(next.Validate());
    PHASOR_ASSIGN_OR_RETURN(EncoderSet encoders, EncoderSet::Make(next.encoders));
    absl::MutexLock lock(&current_mu_);
    ReloadReport report = TakeOver(next, &current_);
    engine_.SetMaxInflightBytes(current_.max_inflight_bytes);
    quota_.Resize(QuotaBytes(current_));
    service_.SetLimits(current_.max_inflight_bytes, current_.max_batch_items);
    listener_->SetCaps(current_.max_connections, current_.max_connections_per_peer);
    UseEncoders(std::move(encoders));
    return report;
  }

  void ReceiveOnFewThreads(int cores) override {
    // A small call to a GPU occupies its thread while it waits for it.
    const int wanted = backend_->devices().empty() ? ReceivingThreads(cores) : kMostCallbackThreads;
    const int64_t usual = CurrentOptions().inline_bytes;
    const int64_t larger = wanted == 1 ? kLargerInline * usual : 0;
    // Whether calls of late were mixed. If there were none, all stays as it was.
    auto mixed_calls = [this, usual, larger, seen = engine::EngineStats(),
                        mixed = false]() mutable {
      const engine::EngineStats before = std::exchange(seen, engine_.stats());
      const engine::Load load = engine::LoadBetween(before, seen, larger);
      if (load == engine::Load::kNone) return mixed;
      // Nobody waits for a small call while larger ones run where they were received.
      engine_.SetInlineBytes(load == engine::Load::kLarge ? larger : usual);
      return mixed = load == engine::Load::kMixed;
    };
    threads_ = std::make_unique<CallbackThreads>(wanted, std::move(mixed_calls));
  }

  void WhenRestartIsDue(std::function<void()> restart) override {
    if (device_watch_ != nullptr) device_watch_->WhenRestartIsDue(std::move(restart));
  }

  bool Shutdown() override {
    absl::MutexLock lock(&shutdown_mu_);
    if (stopped_) return drained_;
    stopped_ = drained_ = true;
    listener_watch_.reset();
    device_watch_.reset();  // the server ends already: no restart is due
    StopServing();
    if (limited_.server != nullptr) absl::SleepFor(CurrentOptions().drain_delay);
    listener_->Stop();
    health_.EndWatches();
    inference_service_.EndStreams();
    if (limited_.server != nullptr) DrainCalls();
    engine_.Drain(absl::InfiniteFuture());
    return drained_;
  }

 private:
  // Counts memory that the CPU copies when it replaces a GPU against the byte budget.
  void CountCopiesOfDevices() {
    for (DevicePort* const device : backend_->devices()) {
      device->SetCopyBudget([this](int64_t bytes) -> absl::StatusOr<HostMemoryShare> {
        PHASOR_ASSIGN_OR_RETURN(Permit permit, engine_.Reserve(bytes));
        return std::make_shared<const Permit>(std::move(permit));
      });
    }
  }

  // A change of one GPU. As long as one works, the GPUs together do.
  void ReportHealth(const DevicePort& device) {
    health_.SetServing(DeviceServiceOf(device), Works(device));
    const DeviceList all = backend_->devices();
    const bool any = std::any_of(all.begin(), all.end(), [](auto* each) { return Works(*each); });
    health_.SetServing(kDevicesService, any);
  }

  void UseEncoders(EncoderSet encoders) {
    inference_service_.SetEncoders(encoders);
    encoders_.Replace(std::move(encoders));
  }

  ServerOptions CurrentOptions() {
    absl::MutexLock lock(&current_mu_);
    return current_;
  }

  // Sets health to NOT_SERVING; calls are still answered.
  void StopServing() {
    absl::MutexLock lock(&readiness_mu_);
    serving_ = false;
    health_.StopServing();
    if (admin_ != nullptr) admin_->StopServing();
    inference_service_.SetReady(false);
  }

  // If the listener stops accepting, reports NOT_SERVING, also on open connections.
  void SetAccepting(bool accepting) {
    Log(accepting ? LogLevel::kInfo : LogLevel::kError,
        accepting ? "listening again" : "the listener takes no connections",
        {{"listeners", listeners()}});
    absl::MutexLock lock(&readiness_mu_);
    accepting_ = accepting;
    health_.SetAccepting(accepting);
    if (admin_ != nullptr) admin_->SetAccepting(accepting);
    inference_service_.SetReady(accepting_ && serving_);
  }

  telemetry::Snapshot Snap() {
    telemetry::Snapshot snap;
    snap.build = {PHASOR_VERSION, kNumericsVersion, grpc::Version(), backend(),
                  std::string(backend_->target())};
    {
      absl::MutexLock lock(&readiness_mu_);
      snap.serving = serving_ && accepting_;
    }
    snap.inflight_limit_bytes = CurrentOptions().max_inflight_bytes;
    snap.engine = engine_.stats();
    snap.devices = telemetry::SnapshotsOf(backend_->devices());
    snap.refusals = security_stats();
    snap.connections = listener_->stats();
    snap.leases = leases_.stats();
    snap.regions = regions_.stats();
    snap.device_regions = devices_.stats();
    snap.tables = {tables_->count(), tables_->taken_bytes()};
    if (exporter_of_spans_ != nullptr) {
      const trace::SpanCounts spans = exporter_of_spans_->counts();
      snap.spans_exported = spans.exported;
      snap.spans_dropped = spans.dropped;
    }
    snap.models = inference_service_.statistics();
    return snap;
  }

  // Answers calls that have begun and refuses those that begin now. When the answers have arrived,
  // closes the connections, which late callers see as UNAVAILABLE. gRPC cancels what is left after
  // drain_timeout.
  void DrainCalls() ABSL_EXCLUSIVE_LOCKS_REQUIRED(shutdown_mu_) {
    const absl::Time deadline = SteadyNow() + CurrentOptions().drain_timeout;
    calls_->StartDraining();
    service_.DrainStreams();
    drained_ = calls_->WaitForEarlyCalls(deadline - SteadyNow());
    if (!listener_->HangUp(deadline - SteadyNow())) drained_ = false;
    limited_.server->Shutdown(WallTimeAfter(deadline - SteadyNow()));
  }

  const ServerOptions options_;  // at the start
  const std::unique_ptr<ServerSecurity> security_;
  const std::unique_ptr<Backend> backend_;
  const std::unique_ptr<tables::TableStore> tables_;
  memory::LeaseStore leases_;
  const std::shared_ptr<memory::RegionNames> region_names_ =
      std::make_shared<memory::RegionNames>();
  memory::RegionStore regions_;
  memory::DeviceRegionStore devices_;
  rpc::EncoderCatalogue encoders_;
  telemetry::Metrics metrics_;
  telemetry::RequestLog request_log_;
  std::unique_ptr<trace::SpanExporter> exporter_of_spans_;  // may be nullptr, as the next
  std::unique_ptr<trace::CallTracer> tracer_;
  engine::Engine engine_;
  rpc::PositionEmbeddingServiceImpl service_;
  rpc::TableServiceImpl table_service_;
  rpc::SharedMemoryServiceImpl shared_memory_service_;
  oip::InferenceService inference_service_;
  rpc::HealthService health_;
  const std::unique_ptr<Listener> listener_;
  const std::vector<ListenSocket> lease_listeners_;                  // one or none
  std::vector<std::unique_ptr<memory::LeaseSocket>> lease_sockets_;  // one or none
  rpc::CallCounter* calls_ = nullptr;                                // owned by gRPC
  grpc::ResourceQuota quota_{"phasor"};
  LimitedServer limited_;
  absl::Mutex current_mu_;
  ServerOptions current_ ABSL_GUARDED_BY(current_mu_);  // with reloaded values
  absl::Mutex readiness_mu_;  // also held to report, so that the last report is the current state
  bool serving_ ABSL_GUARDED_BY(readiness_mu_) = true;
  bool accepting_ ABSL_GUARDED_BY(readiness_mu_) = true;
  std::unique_ptr<AdminServer> admin_;               // may be nullptr
  std::unique_ptr<telemetry::PageServer> exporter_;  // may be nullptr; reads all of the above
  std::unique_ptr<ListenerWatch> listener_watch_;
  std::unique_ptr<DeviceWatch> device_watch_;  // may be nullptr
  std::unique_ptr<CallbackThreads> threads_;   // may be nullptr

  absl::Mutex shutdown_mu_;
  bool stopped_ ABSL_GUARDED_BY(shutdown_mu_) = false;
  bool drained_ ABSL_GUARDED_BY(shutdown_mu_) = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const ServerOptions& options) {
  PHASOR_RETURN_IF_ERROR(options.Validate());
  const absl::Time began = SteadyNow();
  PHASOR_ASSIGN_OR_RETURN(std::unique_ptr<Backend> backend,
                          MakeBackend({.name = options.backend,
                                       .threads = options.threads,
                                       .retry_device = options.device_fault == "retry",
                                       .devices = options.devices,
                                       .left_out = LogLeftOut}));
  for (const DevicePort* const device : backend->devices()) {
    Log(LogLevel::kInfo, "device ready",
        {{"device", NameOf(*device)}, {"seconds", absl::ToDoubleSeconds(SteadyNow() - began)}});
  }
  PHASOR_RETURN_IF_ERROR(SelfTest(*backend));
  return Start(options, std::move(backend));
}

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const ServerOptions& options,
                                                      std::unique_ptr<Backend> backend) {
  PHASOR_RETURN_IF_ERROR(options.Validate());
  PHASOR_ASSIGN_OR_RETURN(trace::TraceOptions trace,
                          trace::ParseTraceOptions(options.otel_variables));
  PHASOR_RETURN_IF_ERROR(trace::ReadAuthorities(&trace));
  PHASOR_ASSIGN_OR_RETURN(std::unique_ptr<ServerSecurity> security,
                          ServerSecurity::Load(options, ServiceNames()));
  PHASOR_ASSIGN_OR_RETURN(std::unique_ptr<Listener> listener,
                          Listener::Bind(ListenerOptionsOf(options)));
  PHASOR_ASSIGN_OR_RETURN(std::unique_ptr<tables::TableStore> tables,
                          tables::TableStore::Open(TableStoreOptionsOf(options)));
  std::vector<ListenSocket> lease_listeners;
  if (!options.lease_socket.empty()) {
    PHASOR_ASSIGN_OR_RETURN(const ListenAddress address,
                            ParseListenAddress("unix:" + options.lease_socket));
    PHASOR_ASSIGN_OR_RETURN(lease_listeners, ListenForLeases(address, options));
  }
  auto server = std::make_unique<GrpcServer>(options, std::move(security), std::move(backend),
                                             std::move(tables), std::move(listener),
                                             std::move(lease_listeners), trace);
  PHASOR_RETURN_IF_ERROR(server->Start());
  return server;
}

}  // namespace phasor
