// SPDX-License-Identifier: Apache-2.0
// Counts calls. Series are cached here, because the library finds a series by its labels with an
// allocation and a hash of strings. Once a series is made, counting takes no lock.
#include "server/telemetry/call_metrics.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "server/base/trace_context.h"
#include "server/telemetry/buckets.h"

namespace phasor::telemetry {
namespace {

constexpr char kDuration[] = "grpc_server_call_duration_seconds";

template <typename Builder>
auto& Register(Builder builder, const char* name, const char* help,
               prometheus::Registry* registry) {
  return builder.Name(name).Help(help).Register(*registry);
}

}  // namespace

CallMetrics::Series::Series(prometheus::Histogram* seconds, prometheus::Histogram* sent,
                            prometheus::Histogram* received)
    : duration(seconds, SecondsBuckets()),
      sent_bytes(sent, BytesBuckets()),
      received_bytes(received, BytesBuckets()) {}

CallMetrics::CallMetrics(prometheus::Registry* registry, absl::Span<const std::string> methods)
    : started_(Register(prometheus::BuildCounter(), "grpc_server_call_started_total",
                        "Calls that have begun", registry)),
      duration_(Register(prometheus::BuildHistogram(), kDuration,
                         "From a call's arrival to its status", registry)),
      sent_bytes_(Register(prometheus::BuildHistogram(),
                           "grpc_server_call_sent_total_compressed_message_size_bytes",
                           "Bytes of a call's answers", registry)),
      received_bytes_(Register(
          prometheus::BuildHistogram(), "grpc_server_call_rcvd_total_compressed_message_size_bytes",
          "Bytes of a call's requests; of methods that carry tensors", registry)) {
  for (const std::string& name : methods) methods_[name].label = name;
}

void CallMetrics::Started(std::string_view method) { StartedOf(MethodOf(method)).Increment(); }

void CallMetrics::Ended(const rpc::CallRecord& call) {
  Series& series = SeriesOf(MethodOf(call.method), call.code);
  series.duration.Observe(absl::ToDoubleSeconds(call.duration));
  series.sent_bytes.Observe(static_cast<double>(call.sent_bytes));
  if (call.received_bytes.has_value()) {
    series.received_bytes.Observe(static_cast<double>(*call.received_bytes));
  }
  // Only then, because reading the metadata costs every call.
  if (exemplars_wanted_.load(std::memory_order_relaxed)) Remember(call);
}

void CallMetrics::Remember(const rpc::CallRecord& call) {
  const std::optional<TraceContext> caller = ParseTraceparent(call.traceparent());
  if (!caller.has_value() || !caller->sampled) return;
  const prometheus::Histogram::BucketBoundaries bounds = SecondsBuckets();
  const double seconds = absl::ToDoubleSeconds(call.duration);
  const size_t bucket = std::lower_bound(bounds.begin(), bounds.end(), seconds) - bounds.begin();
  const std::string& label = MethodOf(call.method).label;
  absl::MutexLock lock(&mu_);
  std::vector<Exemplar>& of_series = exemplars_[{label, rpc::CodeName(call.code)}];
  of_series.resize(bounds.size() + 1);
  of_series[bucket] = {absl::BytesToHexString(caller->trace_id), seconds, absl::Now()};
}

Exemplar CallMetrics::ExemplarOf(const prometheus::MetricFamily& family,
                                 const prometheus::ClientMetric& metric, size_t bucket) {
  exemplars_wanted_.store(true, std::memory_order_relaxed);
  if (family.name != kDuration) return {};
  std::pair<std::string, std::string> key;
  for (const prometheus::ClientMetric::Label& label : metric.label) {
    if (label.name == "grpc_method") key.first = label.value;
    if (label.name == "grpc_status") key.second = label.value;
  }
  absl::MutexLock lock(&mu_);
  const auto found = exemplars_.find(key);
  return found == exemplars_.end() || bucket >= found->second.size() ? Exemplar{}
                                                                     : found->second[bucket];
}

void CallMetrics::Flush() {
  absl::MutexLock lock(&mu_);
  for (ShardedCounter& counter : counters_) counter.Flush();
  for (Series& series : series_) {
    series.duration.Flush();
    series.sent_bytes.Flush();
    series.received_bytes.Flush();
  }
}

CallMetrics::Method& CallMetrics::MethodOf(std::string_view name) {
  const auto known = methods_.find(absl::string_view(name.data(), name.size()));
  return known == methods_.end() ? other_ : known->second;
}

ShardedCounter& CallMetrics::StartedOf(Method& method) {
  if (auto* const made = method.started.load(std::memory_order_acquire)) return *made;
  absl::MutexLock lock(&mu_);
  if (auto* const made = method.started.load(std::memory_order_relaxed)) return *made;
  ShardedCounter& counter = counters_.emplace_back(&started_.Add({{"grpc_method", method.label}}));
  method.started.store(&counter, std::memory_order_release);
  return counter;
}

CallMetrics::Series& CallMetrics::SeriesOf(Method& method, int code) {
  const size_t index = static_cast<size_t>(code) < kCodes ? static_cast<size_t>(code) : 2;
  std::atomic<Series*>& known = method.series[index];
  if (Series* const made = known.load(std::memory_order_acquire)) return *made;
  absl::MutexLock lock(&mu_);
  if (Series* const made = known.load(std::memory_order_relaxed)) return *made;
  const prometheus::Labels labels = {{"grpc_method", method.label},
                                     {"grpc_status", rpc::CodeName(static_cast<int>(index))}};
  Series& series = series_.emplace_back(&duration_.Add(labels, SecondsBuckets()),
                                        &sent_bytes_.Add(labels, BytesBuckets()),
                                        &received_bytes_.Add(labels, BytesBuckets()));
  known.store(&series, std::memory_order_release);
  return series;
}

}  // namespace phasor::telemetry
