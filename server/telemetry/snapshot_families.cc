// SPDX-License-Identifier: Apache-2.0
// Formats a snapshot as metric families.
#include "server/telemetry/snapshot_families.h"

#include "absl/strings/str_cat.h"
#include "server/telemetry/families.h"

namespace phasor::telemetry {
namespace {

double Microseconds(absl::Duration time) { return absl::ToDoubleMicroseconds(time); }

void AddServer(const Snapshot& s, FamilyList* list) {
  FamilyList::AddTo(&list->Gauges("phasor_build_info", "1, with what this server is as labels"),
                    {{"version", s.build.version},
                     {"numerics_version", absl::StrCat(s.build.numerics_version)},
                     {"grpc_version", s.build.grpc_version},
                     {"backend", s.build.backend},
                     {"cpu_target", s.build.cpu_target}},
                    1);
  list->Gauge("phasor_serving", "1 while health says SERVING, else 0", s.serving ? 1 : 0);
}

void AddEngine(const engine::EngineStats& e, int64_t limit_bytes, FamilyList* list) {
  auto& calls =
      list->Counters("phasor_calls_total",
                     "Calls taken for computation, by where: the receiving thread or a queue");
  FamilyList::AddTo(&calls, {{"path", "inline"}}, static_cast<double>(e.calls_inline));
  FamilyList::AddTo(&calls, {{"path", "queued"}}, static_cast<double>(e.calls_queued));
  auto& batches = list->Counters("phasor_batches_total",
                                 "Runs of calls that had gathered, by why no more were taken");
  const int64_t limited = e.batches_full + e.batches_most_calls;
  FamilyList::AddTo(&batches, {{"closed", "bytes"}}, static_cast<double>(e.batches_full));
  FamilyList::AddTo(&batches, {{"closed", "calls"}}, static_cast<double>(e.batches_most_calls));
  FamilyList::AddTo(&batches, {{"closed", "queue_empty"}},
                    static_cast<double>(e.batches - limited));
  list->Counter("phasor_batched_calls_total", "Calls run in them",
                static_cast<double>(e.batched_calls));
  list->Counter("phasor_calls_refused_total", "Calls refused: over the byte budget, or draining",
                static_cast<double>(e.calls_refused));
  list->Counter("phasor_calls_expired_total",
                "Calls whose deadline passed in the queue or before they were read",
                static_cast<double>(e.calls_expired));
  list->Counter("phasor_calls_cancelled_total",
                "Calls whose caller went away in the queue or before they were read",
                static_cast<double>(e.calls_cancelled));
  list->Gauge("phasor_inflight_bytes", "Requests and answers in memory",
              static_cast<double>(e.inflight_bytes));
  list->Gauge("phasor_inflight_limit_bytes", "The byte budget, --max-inflight-bytes",
              static_cast<double>(limit_bytes));
  list->Gauge("phasor_queued_calls", "Calls that wait for a worker",
              static_cast<double>(e.queued_calls));
  list->Gauge("phasor_waiting_calls", "Items of streams that wait for room in the byte budget",
              static_cast<double>(e.waiting_calls));
  list->Gauge("phasor_waiting_readers", "Streams that are not read from until there is room",
              static_cast<double>(e.waiting_readers));
  list->Counter("phasor_plan_cache_hits_total", "Specs that were compiled before",
                static_cast<double>(e.plan_cache_hits));
  list->Counter("phasor_plan_cache_misses_total", "Specs that had to be compiled",
                static_cast<double>(e.plan_cache_misses));
}

void AddDevices(const std::vector<DeviceSnapshot>& devices, FamilyList* list) {
  const auto add = [&](prometheus::MetricFamily& family, auto value_of) {
    for (const DeviceSnapshot& d : devices) {
      FamilyList::AddTo(&family, {{"device", absl::StrCat(d.number)}},
                        static_cast<double>(value_of(d)));
    }
  };
  add(list->Counters("phasor_device_items_total", "Items of calls that the device computed"),
      [](const DeviceSnapshot& d) { return d.counts.jobs; });
  auto& fallbacks = list->Counters("phasor_device_fallbacks_total",
                                   "Items that the CPU computed instead of the device, by why");
  for (const DeviceSnapshot& d : devices) {
    const auto add_reason = [&](const char* reason, int64_t items) {
      FamilyList::AddTo(&fallbacks, {{"device", absl::StrCat(d.number)}, {"reason", reason}},
                        static_cast<double>(items));
    };
    add_reason("not_for_device", d.counts.jobs_not_for_it);
    add_reason("device_failed", d.counts.jobs_that_it_failed);
    add_reason("sooner_on_cpu", d.counts.jobs_sooner_on_cpu);
  }
  add(list->Gauges("phasor_device_usable", "1 while the device computes, 0 while it is lost"),
      [](const DeviceSnapshot& d) { return d.counts.usable ? 1 : 0; });
  add(list->Counters("phasor_device_losses_total", "How often the device was lost"),
      [](const DeviceSnapshot& d) { return d.losses; });
  add(list->Counters("phasor_device_revivals_total",
                     "How often it worked again, in a fresh context"),
      [](const DeviceSnapshot& d) { return d.revivals; });
}

void AddBackend(const BackendCounts& b, FamilyList* list) {
  auto& jobs =
      list->Counters("phasor_items_computed_total", "Items of calls, by what computed them");
  if (b.devices.empty()) {
    FamilyList::AddTo(&jobs, {{"backend", b.name}}, static_cast<double>(b.jobs));
    return;
  }
  int64_t on_devices = 0, on_cpu = 0;
  for (const DeviceSnapshot& device : b.devices) {
    const DeviceCounts& d = device.counts;
    on_devices += d.jobs;
    on_cpu += d.jobs_not_for_it + d.jobs_that_it_failed + d.jobs_sooner_on_cpu;
  }
  FamilyList::AddTo(&jobs, {{"backend", b.name}}, static_cast<double>(on_devices));
  FamilyList::AddTo(&jobs, {{"backend", "cpu"}}, static_cast<double>(on_cpu));
  AddDevices(b.devices, list);
}

void AddConnections(const ConnectionCounts& c, FamilyList* list) {
  list->Gauge("phasor_connections", "Open connections", static_cast<double>(c.open));
  list->Counter("phasor_connections_accepted_total", "Connections taken",
                static_cast<double>(c.accepted));
  list->Counter("phasor_connections_refused_total", "Connections closed at once: over a limit",
                static_cast<double>(c.refused));
  list->Counter("phasor_connections_starved_total",
                "Connections that failed for lack of file descriptors or memory",
                static_cast<double>(c.starved));
}

void AddRefusals(const Refusals& r, FamilyList* list) {
  auto& calls =
      list->Counters("phasor_auth_refused_total",
                     "Calls refused for who made them, by code: not known, or not allowed");
  FamilyList::AddTo(&calls, {{"code", "UNAUTHENTICATED"}}, static_cast<double>(r.unauthenticated));
  FamilyList::AddTo(&calls, {{"code", "PERMISSION_DENIED"}},
                    static_cast<double>(r.permission_denied));
  list->Counter("phasor_tls_handshakes_failed_total", "Connections that ended in the TLS handshake",
                static_cast<double>(r.tls_handshakes));
}

void AddHoldings(const Snapshot& s, FamilyList* list) {
  list->Gauge("phasor_leases", "Pieces of client memory that are leased",
              static_cast<double>(s.leases.count));
  list->Gauge("phasor_lease_bytes", "Their bytes", static_cast<double>(s.leases.bytes));
  list->Gauge("phasor_regions", "Regions of shared memory that clients named",
              static_cast<double>(s.regions.count));
  list->Gauge("phasor_region_bytes", "Their bytes", static_cast<double>(s.regions.bytes));
  if (!s.backend.devices.empty()) {
    list->Gauge("phasor_device_regions", "Regions of the devices' memory that clients named",
                static_cast<double>(s.device_regions.count));
    list->Gauge("phasor_device_region_bytes", "Their bytes",
                static_cast<double>(s.device_regions.bytes));
  }
  list->Gauge("phasor_tables", "Learned tables", static_cast<double>(s.tables.count));
  list->Gauge("phasor_table_bytes", "Their bytes, also of deleted ones that are still in use",
              static_cast<double>(s.tables.bytes));
}

// The names are those of Triton Inference Server, which its tools expect.
void AddModels(const std::vector<ModelCounts>& models, FamilyList* list) {
  const auto add = [&](const char* name, const char* help, auto value_of) {
    auto& family = list->Counters(name, help);
    for (const ModelCounts& m : models) {
      FamilyList::AddTo(&family, {{"model", m.model}, {"version", m.version}}, value_of(m));
    }
  };
  const auto succeeded = [](const ModelCounts& m) { return static_cast<double>(m.succeeded); };
  add("nv_inference_request_success", "Inferences that succeeded", succeeded);
  add("nv_inference_request_failure", "Inferences that failed",
      [](const ModelCounts& m) { return static_cast<double>(m.failed); });
  add("nv_inference_count", "Inferences, a batch as its items", succeeded);
  add("nv_inference_exec_count", "Inferences run by themselves", succeeded);
  add("nv_inference_request_duration_us", "Time of successful inferences",
      [](const ModelCounts& m) { return Microseconds(m.request); });
  add("nv_inference_queue_duration_us", "Of it, in the queue",
      [](const ModelCounts& m) { return Microseconds(m.queue); });
  add("nv_inference_compute_input_duration_us", "Of it, to parse, check and read shared memory",
      [](const ModelCounts& m) { return Microseconds(m.compute_input); });
  add("nv_inference_compute_infer_duration_us", "Of it, to gather and compute",
      [](const ModelCounts& m) { return Microseconds(m.compute_infer); });
  add("nv_inference_compute_output_duration_us", "Of it, to answer and write shared memory",
      [](const ModelCounts& m) { return Microseconds(m.compute_output); });
}

}  // namespace

std::vector<prometheus::MetricFamily> FamiliesOf(const Snapshot& snapshot) {
  FamilyList list;
  AddServer(snapshot, &list);
  AddEngine(snapshot.engine, snapshot.inflight_limit_bytes, &list);
  AddBackend(snapshot.backend, &list);
  AddConnections(snapshot.connections, &list);
  AddRefusals(snapshot.refusals, &list);
  AddHoldings(snapshot, &list);
  AddModels(snapshot.models, &list);
  return list.Take();
}

}  // namespace phasor::telemetry
