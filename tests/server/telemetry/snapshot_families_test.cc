// SPDX-License-Identifier: Apache-2.0
// Tests the metric families of a snapshot.
#include <gtest/gtest.h>
#include <prometheus/check_names.h>

#include <map>
#include <set>
#include <string>

#include "server/telemetry/families.h"
#include "server/telemetry/snapshot.h"

namespace phasor::telemetry {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

// "name{label=value,...}" -> value.
std::map<std::string, double> ValuesOf(const Snapshot& snapshot) {
  std::map<std::string, double> values;
  for (const MetricFamily& family : FamiliesOf(snapshot)) {
    for (const ClientMetric& metric : family.metric) {
      std::string key = family.name;
      for (const ClientMetric::Label& label : metric.label) {
        key += "," + label.name + "=" + label.value;
      }
      values[key] = family.type == MetricType::Counter ? metric.counter.value : metric.gauge.value;
    }
  }
  return values;
}

TEST(SnapshotFamiliesTest, EveryFieldHasItsOwnValue) {
  Snapshot s;
  s.build = {"1.2.3", 4, "5.6", "cpu", "AVX2"};
  s.serving = true;
  s.inflight_limit_bytes = 1;
  s.engine.calls_inline = 2;
  s.engine.calls_queued = 3;
  s.engine.calls_refused = 4;
  s.engine.calls_expired = 5;
  s.engine.calls_cancelled = 6;
  s.engine.inflight_bytes = 7;
  s.engine.queued_calls = 8;
  s.engine.waiting_calls = 9;
  s.engine.waiting_readers = 37;
  s.engine.plan_cache_hits = 10;
  s.engine.plan_cache_misses = 11;
  s.engine.plan_cache_bytes = 1211;
  s.engine.batches = 100;
  s.engine.batches_full = 34;
  s.engine.batches_most_calls = 35;
  s.engine.batched_calls = 13;
  s.engine.jobs = 36;
  s.connections = {.accepted = 15, .refused = 16, .starved = 17, .connections = 14};
  s.leases = {18, 19};
  s.regions = {20, 21};
  s.tables = {22, 23};
  s.spans_exported = 38;
  s.spans_dropped = 39;
  s.refusals = {24, 25, 26};
  inference::ModelStatistics& used = *s.models.Add();
  used.set_name("m");
  used.set_version("1");
  inference::InferStatistics& times = *used.mutable_inference_stats();
  times.mutable_success()->set_count(27);
  times.mutable_fail()->set_count(28);
  times.mutable_success()->set_ns(29'000);
  times.mutable_queue()->set_ns(30'000);
  times.mutable_compute_input()->set_ns(31'000);
  times.mutable_compute_infer()->set_ns(32'000);
  times.mutable_compute_output()->set_ns(33'000);
  s.models.Add();  // never used
  const std::string model = ",model=m,version=1";
  const std::map<std::string, double> expected = {
      {"phasor_build_info,version=1.2.3,numerics_version=4,grpc_version=5.6,backend=cpu,"
       "cpu_target=AVX2",
       1},
      {"phasor_serving", 1},
      {"phasor_inflight_limit_bytes", 1},
      {"phasor_calls_total,path=inline", 2},
      {"phasor_calls_total,path=queued", 3},
      {"phasor_calls_refused_total", 4},
      {"phasor_calls_expired_total", 5},
      {"phasor_calls_cancelled_total", 6},
      {"phasor_inflight_bytes", 7},
      {"phasor_queued_calls", 8},
      {"phasor_waiting_calls", 9},
      {"phasor_waiting_readers", 37},
      {"phasor_plan_cache_hits_total", 10},
      {"phasor_plan_cache_misses_total", 11},
      {"phasor_plan_cache_bytes", 1211},
      {"phasor_batches_total,closed=bytes", 34},
      {"phasor_batches_total,closed=calls", 35},
      {"phasor_batches_total,closed=queue_empty", 31},
      {"phasor_items_computed_total,backend=cpu", 36},
      {"phasor_batched_calls_total", 13},
      {"phasor_connections", 14},
      {"phasor_connections_accepted_total", 15},
      {"phasor_connections_refused_total", 16},
      {"phasor_connections_starved_total", 17},
      {"phasor_leases", 18},
      {"phasor_lease_bytes", 19},
      {"phasor_regions", 20},
      {"phasor_region_bytes", 21},
      {"phasor_spans_exported_total", 38},
      {"phasor_spans_dropped_total", 39},
      {"phasor_tables", 22},
      {"phasor_table_bytes", 23},
      {"phasor_auth_refused_total,code=UNAUTHENTICATED", 24},
      {"phasor_auth_refused_total,code=PERMISSION_DENIED", 25},
      {"phasor_tls_handshakes_failed_total", 26},
      {"nv_inference_request_success" + model, 27},
      {"nv_inference_count" + model, 27},
      {"nv_inference_exec_count" + model, 27},
      {"nv_inference_request_failure" + model, 28},
      {"nv_inference_request_duration_us" + model, 29},
      {"nv_inference_queue_duration_us" + model, 30},
      {"nv_inference_compute_input_duration_us" + model, 31},
      {"nv_inference_compute_infer_duration_us" + model, 32},
      {"nv_inference_compute_output_duration_us" + model, 33},
  };
  EXPECT_EQ(ValuesOf(s), expected);
}

TEST(SnapshotFamiliesTest, DevicesAreToldApartFromTheCpuThatStandsIn) {
  Snapshot s;
  s.build.backend = "cuda";
  s.engine.jobs = 100;
  s.devices = {{.number = 0, .counts = {false, 1, 2, 3, 4}, .losses = 5, .revivals = 6},
               {.number = 2, .counts = {true, 10, 20, 30, 40}}};
  s.device_regions = {7, 8};
  const std::map<std::string, double> values = ValuesOf(s);
  EXPECT_EQ(values.at("phasor_items_computed_total,backend=cuda"), 11);
  EXPECT_EQ(values.at("phasor_items_computed_total,backend=cpu"), 99);
  EXPECT_EQ(values.at("phasor_device_items_total,device=0"), 1);
  EXPECT_EQ(values.at("phasor_device_items_total,device=2"), 10);
  EXPECT_EQ(values.at("phasor_device_fallbacks_total,device=0,reason=not_for_device"), 2);
  EXPECT_EQ(values.at("phasor_device_fallbacks_total,device=0,reason=device_failed"), 3);
  EXPECT_EQ(values.at("phasor_device_fallbacks_total,device=0,reason=sooner_on_cpu"), 4);
  EXPECT_EQ(values.at("phasor_device_fallbacks_total,device=2,reason=sooner_on_cpu"), 40);
  EXPECT_EQ(values.at("phasor_device_usable,device=0"), 0);
  EXPECT_EQ(values.at("phasor_device_usable,device=2"), 1);
  EXPECT_EQ(values.at("phasor_device_losses_total,device=0"), 5);
  EXPECT_EQ(values.at("phasor_device_losses_total,device=2"), 0);
  EXPECT_EQ(values.at("phasor_device_revivals_total,device=0"), 6);
  EXPECT_EQ(values.at("phasor_device_regions"), 7);
  EXPECT_EQ(values.at("phasor_device_region_bytes"), 8);
}

TEST(SnapshotFamiliesTest, NamesAreUniqueAndPrometheusTakesThem) {
  std::set<std::string> names;
  Snapshot snapshot;
  snapshot.devices.emplace_back();
  for (const MetricFamily& family : FamiliesOf(snapshot)) {
    EXPECT_TRUE(prometheus::CheckMetricName(family.name)) << family.name;
    EXPECT_FALSE(family.help.empty()) << family.name;
    EXPECT_TRUE(names.insert(family.name).second) << family.name;
  }
}

}  // namespace
}  // namespace phasor::telemetry
