// SPDX-License-Identifier: Apache-2.0
// Formats a snapshot as metric families.
#include "absl/strings/str_cat.h"
#include "server/telemetry/families.h"
#include "server/telemetry/snapshot.h"

namespace phasor::telemetry {
namespace {

void AddServer(const Snapshot& s, FamilyList* list) {
  FamilyList::AddTo(&list->Gauges("phasor_build_info", "1, with what this server is as labels"),
                    {{"version", s.build.version},
                     {"numerics_version", absl::StrCat(s.build.numerics_version)},
                     {"grpc_version", s.build.grpc_version},
                     {"backend", s.build.backend},
                     {"cpu_target", s.build.cpu_target}},
                    1);
  list->Gauge("phasor_serving", "1 while health says SERVING, else 0", s.serving);
}

void AddEngine(const engine::EngineStats& e, int64_t limit_bytes, FamilyList* list) {
  auto& calls =
      list->Counters("phasor_calls_total",
                     "Calls taken for computation, by where: the receiving thread or a queue");
  FamilyList::AddTo(&calls, {{"path", "inline"}}, e.calls_inline);
  FamilyList::AddTo(&calls, {{"path", "queued"}}, e.calls_queued);
  auto& batches = list->Counters("phasor_batches_total",
                                 "Runs of calls that had gathered, by why no more were taken");
  const int64_t limited = e.batches_full + e.batches_most_calls;
  FamilyList::AddTo(&batches, {{"closed", "bytes"}}, e.batches_full);
  FamilyList::AddTo(&batches, {{"closed", "calls"}}, e.batches_most_calls);
  FamilyList::AddTo(&batches, {{"closed", "queue_empty"}}, e.batches - limited);
  list->Counter("phasor_batched_calls_total", "Calls run in them", e.batched_calls);
  list->Counter("phasor_calls_refused_total", "Calls refused: over the byte budget, or draining",
                e.calls_refused);
  list->Counter("phasor_calls_expired_total",
                "Calls whose deadline passed in the queue or before they were read",
                e.calls_expired);
  list->Counter("phasor_calls_cancelled_total",
                "Calls whose caller went away in the queue or before they were read",
                e.calls_cancelled);
  list->Gauge("phasor_inflight_bytes", "Requests and answers in memory", e.inflight_bytes);
  list->Gauge("phasor_inflight_limit_bytes", "The byte budget, --max-inflight-bytes", limit_bytes);
  list->Gauge("phasor_queued_calls", "Calls that wait for a worker", e.queued_calls);
  list->Gauge("phasor_waiting_calls", "Items of streams that wait for room in the byte budget",
              e.waiting_calls);
  list->Gauge("phasor_waiting_readers", "Streams that are not read from until there is room",
              e.waiting_readers);
  list->Counter("phasor_plan_cache_hits_total", "Specs that were compiled before",
                e.plan_cache_hits);
  list->Counter("phasor_plan_cache_misses_total", "Specs that had to be compiled",
                e.plan_cache_misses);
  list->Gauge("phasor_plan_cache_bytes", "Memory of the compiled specs that are kept",
              e.plan_cache_bytes);
}

void AddDevices(const std::vector<DeviceSnapshot>& devices, FamilyList* list) {
  const auto add = [&](prometheus::MetricFamily& family, auto value_of) {
    for (const DeviceSnapshot& d : devices) {
      FamilyList::AddTo(&family, {{"device", absl::StrCat(d.number)}}, value_of(d));
    }
  };
  add(list->Counters("phasor_device_items_total", "Items of calls that the device computed"),
      [](const DeviceSnapshot& d) { return d.counts.jobs; });
  auto& fallbacks = list->Counters("phasor_device_fallbacks_total",
                                   "Items that the CPU computed instead of the device, by why");
  for (const DeviceSnapshot& d : devices) {
    const auto add_reason = [&](const char* reason, int64_t items) {
      FamilyList::AddTo(&fallbacks, {{"device", absl::StrCat(d.number)}, {"reason", reason}},
                        items);
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

void AddBackend(const Snapshot& s, FamilyList* list) {
  auto& jobs =
      list->Counters("phasor_items_computed_total", "Items of calls, by what computed them");
  if (s.devices.empty()) {
    FamilyList::AddTo(&jobs, {{"backend", s.build.backend}}, s.engine.jobs);
    return;
  }
  int64_t on_devices = 0, on_cpu = 0;
  for (const DeviceSnapshot& device : s.devices) {
    const DeviceCounts& d = device.counts;
    on_devices += d.jobs;
    on_cpu += d.jobs_not_for_it + d.jobs_that_it_failed + d.jobs_sooner_on_cpu;
  }
  FamilyList::AddTo(&jobs, {{"backend", s.build.backend}}, on_devices);
  FamilyList::AddTo(&jobs, {{"backend", "cpu"}}, on_cpu);
  AddDevices(s.devices, list);
}

void AddConnections(const ListenerStats& c, FamilyList* list) {
  list->Gauge("phasor_connections", "Open connections", c.connections);
  list->Counter("phasor_connections_accepted_total", "Connections taken", c.accepted);
  list->Counter("phasor_connections_refused_total", "Connections closed at once: over a limit",
                c.refused);
  list->Counter("phasor_connections_starved_total",
                "Connections that failed for lack of file descriptors or memory", c.starved);
}

void AddRefusals(const Refusals& r, FamilyList* list) {
  auto& calls =
      list->Counters("phasor_auth_refused_total",
                     "Calls refused for who made them, by code: not known, or not allowed");
  FamilyList::AddTo(&calls, {{"code", "UNAUTHENTICATED"}}, r.unauthenticated);
  FamilyList::AddTo(&calls, {{"code", "PERMISSION_DENIED"}}, r.permission_denied);
  list->Counter("phasor_tls_handshakes_failed_total", "Connections that ended in the TLS handshake",
                r.tls_handshakes_failed);
}

void AddHoldings(const Snapshot& s, FamilyList* list) {
  list->Gauge("phasor_leases", "Pieces of client memory that are leased", s.leases.pieces);
  list->Gauge("phasor_lease_bytes", "Their bytes", s.leases.bytes);
  list->Gauge("phasor_regions", "Regions of shared memory that clients named", s.regions.pieces);
  list->Gauge("phasor_region_bytes", "Their bytes", s.regions.bytes);
  if (!s.devices.empty()) {
    list->Gauge("phasor_device_regions", "Regions of the devices' memory that clients named",
                s.device_regions.pieces);
    list->Gauge("phasor_device_region_bytes", "Their bytes", s.device_regions.bytes);
  }
  list->Counter("phasor_spans_exported_total", "Spans that a collector took", s.spans_exported);
  list->Counter("phasor_spans_dropped_total",
                "Spans that were lost: the queue was full, or no collector took them",
                s.spans_dropped);
  list->Gauge("phasor_tables", "Learned tables", s.tables.pieces);
  list->Gauge("phasor_table_bytes", "Their bytes, also of deleted ones that are still in use",
              s.tables.bytes);
}

// The names are those of Triton Inference Server, which its tools expect. A model that was never
// used has none.
void AddModels(const google::protobuf::RepeatedPtrField<inference::ModelStatistics>& models,
               FamilyList* list) {
  using Stats = inference::InferStatistics;
  const auto add = [&](const char* name, const char* help, auto value_of) {
    auto& family = list->Counters(name, help);
    for (const inference::ModelStatistics& m : models) {
      const Stats& stats = m.inference_stats();
      if (stats.success().count() + stats.fail().count() == 0) continue;
      FamilyList::AddTo(&family, {{"model", m.name()}, {"version", m.version()}}, value_of(stats));
    }
  };
  const auto add_time = [&](const char* name, const char* help, auto step) {
    add(name, help, [step](const Stats& s) { return static_cast<double>((s.*step)().ns()) / 1e3; });
  };
  const auto succeeded = [](const Stats& s) { return s.success().count(); };
  add("nv_inference_request_success", "Inferences that succeeded", succeeded);
  add("nv_inference_request_failure", "Inferences that failed",
      [](const Stats& s) { return s.fail().count(); });
  add("nv_inference_count", "Inferences, a batch as its items", succeeded);
  add("nv_inference_exec_count", "Inferences run by themselves", succeeded);
  add_time("nv_inference_request_duration_us", "Time of successful inferences", &Stats::success);
  add_time("nv_inference_queue_duration_us", "Of it, in the queue", &Stats::queue);
  add_time("nv_inference_compute_input_duration_us",
           "Of it, to parse, check and read shared memory", &Stats::compute_input);
  add_time("nv_inference_compute_infer_duration_us", "Of it, to gather and compute",
           &Stats::compute_infer);
  add_time("nv_inference_compute_output_duration_us", "Of it, to answer and write shared memory",
           &Stats::compute_output);
}

}  // namespace

std::vector<prometheus::MetricFamily> FamiliesOf(const Snapshot& snapshot) {
  FamilyList list;
  AddServer(snapshot, &list);
  AddEngine(snapshot.engine, snapshot.inflight_limit_bytes, &list);
  AddBackend(snapshot, &list);
  AddConnections(snapshot.connections, &list);
  AddRefusals(snapshot.refusals, &list);
  AddHoldings(snapshot, &list);
  AddModels(snapshot.models, &list);
  return list.Take();
}

}  // namespace phasor::telemetry
