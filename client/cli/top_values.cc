// SPDX-License-Identifier: Apache-2.0
// Computes rates, percentiles and other values of `phasor top` from two metrics pages.
#include "client/cli/top_values.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "absl/strings/numbers.h"
#include "kernels/base/text.h"

namespace phasor::cli {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

constexpr char kDurations[] = "grpc_server_call_duration_seconds";
constexpr char kReceived[] = "grpc_server_call_rcvd_total_compressed_message_size_bytes";
constexpr char kSent[] = "grpc_server_call_sent_total_compressed_message_size_bytes";

std::string LabelOf(const Labels& labels, const std::string& name) {
  const auto found = labels.find(name);
  return found == labels.end() ? "" : found->second;
}

bool Matches(const Labels& labels, const Labels& wanted) {
  return std::all_of(wanted.begin(), wanted.end(), [&](const auto& label) {
    return LabelOf(labels, label.first) == label.second;
  });
}

// Whether a counter fell or disappeared, which cannot happen within one process.
bool IsOfAnotherProcess(const MetricsPage& before, const MetricsPage& now) {
  for (const auto& [name, series] : before.all()) {
    const std::string_view view = name;
    if (!view.ends_with("_total") && !view.ends_with("_count") && !view.ends_with("_bucket")) {
      continue;
    }
    const Series& later = now.Of(name);
    for (const auto& [labels, value] : series) {
      const auto found = later.find(labels);
      if (found == later.end() || found->second < value) return true;
    }
  }
  return false;
}

// Two pages of one process. A counter that the earlier page lacks was 0 then.
class Comparison {
 public:
  Comparison(const MetricsPage& before, const MetricsPage& now, double elapsed_s)
      : before_(before), now_(now), elapsed_s_(elapsed_s) {}

  // The increase of `name`, over all series that have these labels. Unknown if there are none.
  double Increase(const std::string& name, const Labels& wanted = {}) const {
    const Series& earlier = before_.Of(name);
    double sum = 0;
    bool any = false;
    for (const auto& [labels, value] : now_.Of(name)) {
      if (!Matches(labels, wanted)) continue;
      any = true;
      const auto found = earlier.find(labels);
      sum += value - (found == earlier.end() ? 0 : found->second);
    }
    return any ? sum : kUnknown;
  }

  double Rate(const std::string& name, const Labels& wanted = {}) const {
    return Increase(name, wanted) / elapsed_s_;
  }

  double Gauge(const std::string& name) const {
    const Series& series = now_.Of(name);
    return series.empty() ? kUnknown : series.begin()->second;
  }

  Percentiles PercentilesOf(const std::string& histogram, const Labels& wanted = {}) const {
    const std::string name = histogram + "_bucket";
    const Series& earlier = before_.Of(name);
    Buckets buckets;
    for (const auto& [labels, value] : now_.Of(name)) {
      double bound = 0;
      if (!Matches(labels, wanted) || !absl::SimpleAtod(LabelOf(labels, "le"), &bound)) continue;
      const auto found = earlier.find(labels);
      buckets[bound] += value - (found == earlier.end() ? 0 : found->second);
    }
    return {HistogramQuantile(0.5, buckets), HistogramQuantile(0.99, buckets)};
  }

  MethodValues MethodOf(const std::string& method) const {
    const Labels labels = {{"grpc_method", method}};
    MethodValues values = {.name = method.substr(method.rfind('/') + 1),
                           .calls_per_s = Rate(StrCat(kDurations, "_count"), labels),
                           .duration = PercentilesOf(kDurations, labels),
                           .received_bytes_per_s = Rate(StrCat(kReceived, "_sum"), labels),
                           .sent_bytes_per_s = Rate(StrCat(kSent, "_sum"), labels)};
    double most = 0;
    for (const auto& [series, value] : now_.Of(StrCat(kDurations, "_count"))) {
      const std::string code = LabelOf(series, "grpc_status");
      if (!Matches(series, labels) || code == "OK") continue;
      const double rate = Rate(StrCat(kDurations, "_count"), series);
      values.errors_per_s += rate;
      if (rate <= most) continue;
      most = rate;
      values.most_frequent_error = code;
    }
    return values;
  }

  std::vector<MethodValues> Methods() const {
    std::vector<std::string> names;
    for (const auto& [labels, value] : now_.Of("grpc_server_call_started_total")) {
      names.push_back(LabelOf(labels, "grpc_method"));
    }
    std::vector<MethodValues> methods;
    for (const std::string& name : names) methods.push_back(MethodOf(name));
    // A method whose first call has not ended yet has no rates: only its name is shown.
    for (MethodValues& method : methods) {
      for (double* rate :
           {&method.calls_per_s, &method.received_bytes_per_s, &method.sent_bytes_per_s}) {
        if (std::isnan(*rate)) *rate = 0;
      }
    }
    std::stable_sort(methods.begin(), methods.end(),
                     [](const auto& a, const auto& b) { return a.calls_per_s > b.calls_per_s; });
    return methods;
  }

 private:
  const MetricsPage& before_;
  const MetricsPage& now_;
  const double elapsed_s_;
};

// The share of `part` in percent; unknown if both are 0.
double Share(double part, double rest) {
  return part + rest > 0 ? 100 * part / (part + rest) : kUnknown;
}

void FillEngine(const Comparison& pages, TopValues* values) {
  values->inflight_bytes = pages.Gauge("phasor_inflight_bytes");
  values->inflight_limit_bytes = pages.Gauge("phasor_inflight_limit_bytes");
  values->queued_calls = pages.Gauge("phasor_queued_calls");
  values->waiting_calls = pages.Gauge("phasor_waiting_calls");
  values->queue = pages.PercentilesOf("phasor_queue_seconds");
  values->gather = pages.PercentilesOf("phasor_gather_seconds");
  values->compute = pages.PercentilesOf("phasor_compute_seconds");
  const double runs = pages.Increase("phasor_batch_calls_count");
  values->calls_per_batch = runs > 0 ? pages.Increase("phasor_batch_calls_sum") / runs : kUnknown;
  const double inline_calls = pages.Increase("phasor_calls_total", {{"path", "inline"}});
  const double queued_calls = pages.Increase("phasor_calls_total", {{"path", "queued"}});
  values->inline_percent = Share(inline_calls, queued_calls);
  values->queued_percent = Share(queued_calls, inline_calls);
  values->plan_cache_hit_percent = Share(pages.Increase("phasor_plan_cache_hits_total"),
                                         pages.Increase("phasor_plan_cache_misses_total"));
}

void FillProcess(const Comparison& pages, double now_s, TopValues* values) {
  values->uptime_s = now_s - pages.Gauge("process_start_time_seconds");
  values->cpu_percent = 100 * pages.Rate("process_cpu_seconds_total");
  values->resident_bytes = pages.Gauge("process_resident_memory_bytes");
  values->open_fds = pages.Gauge("process_open_fds");
  values->max_fds = pages.Gauge("process_max_fds");
  values->connections = pages.Gauge("phasor_connections");
  values->connections_refused_per_s = pages.Rate("phasor_connections_refused_total");
  values->leases = {pages.Gauge("phasor_leases"), pages.Gauge("phasor_lease_bytes")};
  values->regions = {pages.Gauge("phasor_regions"), pages.Gauge("phasor_region_bytes")};
  values->tables = {pages.Gauge("phasor_tables"), pages.Gauge("phasor_table_bytes")};
}

void FillMethods(const Comparison& pages, TopValues* values) {
  values->methods = pages.Methods();
  for (const MethodValues& method : values->methods) {
    values->calls_per_s += method.calls_per_s;
    values->errors_per_s += method.errors_per_s;
    values->received_bytes_per_s += method.received_bytes_per_s;
    values->sent_bytes_per_s += method.sent_bytes_per_s;
  }
}

nlohmann::ordered_json MillisecondsOf(const Percentiles& percentiles) {
  return {{"p50_ms", percentiles.p50_s * 1e3}, {"p99_ms", percentiles.p99_s * 1e3}};
}

nlohmann::ordered_json HoldingJson(const HoldingValues& holding) {
  return {{"count", holding.count}, {"bytes", holding.bytes}};
}

nlohmann::ordered_json MethodsJson(const std::vector<MethodValues>& methods) {
  auto json = nlohmann::ordered_json::array();
  for (const MethodValues& m : methods) {
    json.push_back({{"method", m.name},
                    {"calls_per_second", m.calls_per_s},
                    {"errors_per_second", m.errors_per_s},
                    {"most_frequent_error", m.most_frequent_error},
                    {"p50_ms", m.duration.p50_s * 1e3},
                    {"p99_ms", m.duration.p99_s * 1e3},
                    {"received_bytes_per_second", m.received_bytes_per_s},
                    {"sent_bytes_per_second", m.sent_bytes_per_s}});
  }
  return json;
}

}  // namespace

double HistogramQuantile(double q, const Buckets& buckets) {
  if (buckets.size() < 2 || buckets.rbegin()->first != kInfinity) return kUnknown;
  const double observations = buckets.rbegin()->second;
  if (!(observations > 0)) return kUnknown;
  const double rank = q * observations;
  const auto last = std::prev(buckets.end());
  const auto bucket =
      std::find_if(buckets.begin(), last, [&](const auto& b) { return b.second >= rank; });
  if (bucket == last) return std::prev(last)->first;
  if (bucket == buckets.begin()) {
    // The first bucket has no known lower bound if it ends at 0 or below.
    return bucket->first <= 0 ? bucket->first : bucket->first * (rank / bucket->second);
  }
  const auto [begin, below] = *std::prev(bucket);
  return begin + (bucket->first - begin) * ((rank - below) / (bucket->second - below));
}

bool IsServersPage(const MetricsPage& page) { return !page.Of("phasor_build_info").empty(); }

TopValues CompareMetrics(const MetricsPage& before, const MetricsPage& now, double elapsed_s,
                         double now_s) {
  TopValues values = {.elapsed_s = elapsed_s, .restarted = IsOfAnotherProcess(before, now)};
  const MetricsPage nothing;
  const Comparison pages(values.restarted ? nothing : before, now, elapsed_s);
  for (const auto& [labels, one] : now.Of("phasor_build_info")) {
    values.version = LabelOf(labels, "version");
    values.backend = LabelOf(labels, "backend");
    values.cpu_target = LabelOf(labels, "cpu_target");
  }
  values.serving = pages.Gauge("phasor_serving") == 1;
  FillProcess(pages, now_s, &values);
  FillEngine(pages, &values);
  FillMethods(pages, &values);
  return values;
}

nlohmann::ordered_json ToJson(const TopValues& v, const std::string& address) {
  return {{"metrics", address},
          {"seconds", v.elapsed_s},
          {"restarted", v.restarted},
          {"version", v.version},
          {"backend", v.backend},
          {"cpu_target", v.cpu_target},
          {"serving", v.serving},
          {"uptime_seconds", v.uptime_s},
          {"cpu_percent", v.cpu_percent},
          {"resident_bytes", v.resident_bytes},
          {"open_fds", v.open_fds},
          {"max_fds", v.max_fds},
          {"calls_per_second", v.calls_per_s},
          {"errors_per_second", v.errors_per_s},
          {"received_bytes_per_second", v.received_bytes_per_s},
          {"sent_bytes_per_second", v.sent_bytes_per_s},
          {"inflight_bytes", v.inflight_bytes},
          {"inflight_limit_bytes", v.inflight_limit_bytes},
          {"queued_calls", v.queued_calls},
          {"waiting_calls", v.waiting_calls},
          {"connections", v.connections},
          {"connections_refused_per_second", v.connections_refused_per_s},
          {"methods", MethodsJson(v.methods)},
          {"queue", MillisecondsOf(v.queue)},
          {"gather", MillisecondsOf(v.gather)},
          {"compute", MillisecondsOf(v.compute)},
          {"calls_per_batch", v.calls_per_batch},
          {"inline_percent", v.inline_percent},
          {"queued_percent", v.queued_percent},
          {"leases", HoldingJson(v.leases)},
          {"regions", HoldingJson(v.regions)},
          {"tables", HoldingJson(v.tables)},
          {"plan_cache_hit_percent", v.plan_cache_hit_percent}};
}

}  // namespace phasor::cli
