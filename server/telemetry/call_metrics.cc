// SPDX-License-Identifier: Apache-2.0
// Counts calls. Series are cached here, because the library finds a series by its labels with an
// allocation and a hash of strings. The lock is held for one look-up.
#include "server/telemetry/call_metrics.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "server/telemetry/buckets.h"
#include "server/telemetry/request_log.h"

namespace phasor::telemetry {
namespace {

constexpr char kDuration[] = "grpc_server_call_duration_seconds";
// Whether a traceparent, which must be valid, says that its caller samples the trace.
bool IsSampled(std::string_view traceparent) {
  const char last = traceparent[54];  // of the flags, in lower-case hexadecimal
  return ((last <= '9' ? last - '0' : last - 'a' + 10) & 1) != 0;
}

template <typename Builder>
auto& Register(Builder builder, const char* name, const char* help,
               prometheus::Registry* registry) {
  return builder.Name(name).Help(help).Register(*registry);
}

}  // namespace

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
  absl::MutexLock lock(&mu_);
  for (const std::string& name : methods) methods_[name].label = name;
}

void CallMetrics::Started(std::string_view method) {
  prometheus::Counter* started;
  {
    absl::MutexLock lock(&mu_);
    started = MethodOf(method).started;
  }
  started->Increment();
}

void CallMetrics::Ended(const rpc::CallRecord& call) {
  const Series series = SeriesOf(call.method, call.code);
  series.duration->Observe(absl::ToDoubleSeconds(call.duration));
  series.sent_bytes->Observe(static_cast<double>(call.sent_bytes));
  if (call.received_bytes.has_value()) {
    series.received_bytes->Observe(static_cast<double>(*call.received_bytes));
  }
  // Only then, because reading the metadata costs every call.
  if (exemplars_wanted_.load(std::memory_order_relaxed)) Remember(call);
}

void CallMetrics::Remember(const rpc::CallRecord& call) {
  const std::string parent = call.traceparent();
  std::string id = TraceIdOf(parent);
  if (id.empty() || !IsSampled(parent)) return;
  const prometheus::Histogram::BucketBoundaries bounds = SecondsBuckets();
  const double seconds = absl::ToDoubleSeconds(call.duration);
  const size_t bucket = std::lower_bound(bounds.begin(), bounds.end(), seconds) - bounds.begin();
  absl::MutexLock lock(&mu_);
  std::vector<Exemplar>& of_series =
      exemplars_[{MethodOf(call.method).label, rpc::CodeName(call.code)}];
  of_series.resize(bounds.size() + 1);
  of_series[bucket] = {std::move(id), seconds, absl::Now()};
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

CallMetrics::Method& CallMetrics::MethodOf(std::string_view name) {
  const auto known = methods_.find(absl::string_view(name.data(), name.size()));
  Method& method = known == methods_.end() ? other_ : known->second;
  if (method.started == nullptr) method.started = &started_.Add({{"grpc_method", method.label}});
  return method;
}

CallMetrics::Series CallMetrics::SeriesOf(std::string_view name, int code) {
  const size_t index = static_cast<size_t>(code) < kCodes ? static_cast<size_t>(code) : 2;
  absl::MutexLock lock(&mu_);
  Method& method = MethodOf(name);
  std::unique_ptr<Series>& series = method.series[index];
  if (series == nullptr) {
    const prometheus::Labels labels = {{"grpc_method", method.label},
                                       {"grpc_status", rpc::CodeName(static_cast<int>(index))}};
    series = std::make_unique<Series>(Series{&duration_.Add(labels, SecondsBuckets()),
                                             &sent_bytes_.Add(labels, BytesBuckets()),
                                             &received_bytes_.Add(labels, BytesBuckets())});
  }
  return *series;
}

}  // namespace phasor::telemetry
