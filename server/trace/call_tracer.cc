// SPDX-License-Identifier: Apache-2.0
// Turns the report about a call into spans. Names of attributes are those of OpenTelemetry's
// conventions for RPC.
#include "server/trace/call_tracer.h"

#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/time/clock.h"

namespace phasor::trace {
namespace {

using Tick = engine::Phases::Tick;
using opentelemetry::proto::collector::trace::v1::Status;

constexpr size_t kTraceIdBytes = 16, kSpanIdBytes = 8;
// Limits on text from callers.
constexpr size_t kMaxMethodBytes = 256, kMaxMessageBytes = 512;

void AddText(Span* span, const char* key, std::string_view value) {
  auto* const attribute = span->add_attributes();
  attribute->set_key(key);
  attribute->mutable_value()->set_string_value(std::string(value));
}

void AddNumber(Span* span, const char* key, int64_t value) {
  auto* const attribute = span->add_attributes();
  attribute->set_key(key);
  attribute->mutable_value()->set_int_value(value);
}

// Whether the server is at fault, by OpenTelemetry's conventions for answering sides.
bool IsFault(int code) {
  switch (code) {
    case grpc::StatusCode::UNKNOWN:
    case grpc::StatusCode::DEADLINE_EXCEEDED:
    case grpc::StatusCode::UNIMPLEMENTED:
    case grpc::StatusCode::INTERNAL:
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::DATA_LOSS:
      return true;
    default:
      return false;
  }
}

// Steady times as nanoseconds since 1970.
class WallTime {
 public:
  WallTime(absl::Time now, Tick ended) : now_(absl::ToUnixNanos(now)), ended_(ended) {}
  uint64_t Of(Tick tick) const {
    return static_cast<uint64_t>(now_ - std::chrono::nanoseconds(ended_ - tick).count());
  }
  uint64_t now() const { return static_cast<uint64_t>(now_); }

 private:
  const int64_t now_;
  const Tick ended_;
};

Span CallSpan(const rpc::CallRecord& call, const TraceContext* parent, const std::string& trace_id,
              const WallTime& time) {
  Span span;
  span.set_trace_id(trace_id);
  span.set_span_id(RandomId(kSpanIdBytes));
  if (parent != nullptr) span.set_parent_span_id(parent->span_id);
  const std::string_view method = call.method.substr(0, kMaxMethodBytes);
  span.set_name(std::string(method));
  span.set_kind(Span::SPAN_KIND_SERVER);
  span.set_end_time_unix_nano(time.now());
  span.set_start_time_unix_nano(time.now() -
                                static_cast<uint64_t>(absl::ToInt64Nanoseconds(call.duration)));
  const size_t slash = method.rfind('/');
  AddText(&span, "rpc.system", "grpc");
  AddText(&span, "rpc.service", method.substr(0, slash == method.npos ? 0 : slash));
  AddText(&span, "rpc.method", slash == method.npos ? method : method.substr(slash + 1));
  AddNumber(&span, "rpc.grpc.status_code", call.code);
  AddText(&span, "client.address", call.peer());
  AddNumber(&span, "phasor.sent_bytes", call.sent_bytes);
  if (call.received_bytes.has_value()) {
    AddNumber(&span, "phasor.received_bytes", *call.received_bytes);
  }
  if (IsFault(call.code)) span.mutable_status()->set_code(Status::STATUS_CODE_ERROR);
  span.mutable_status()->set_message(std::string(call.message.substr(0, kMaxMessageBytes)));
  return span;
}

}  // namespace

bool IsSampled(const TraceOptions& options, const TraceContext* parent, std::string_view trace_id) {
  if (options.parent_based && parent != nullptr) return parent->sampled;
  uint64_t number = 0;  // the last 8 bytes, which are random
  for (const char c : trace_id.substr(trace_id.size() - 8)) {
    number = number << 8 | static_cast<unsigned char>(c);
  }
  return static_cast<double>(number) < options.ratio * 0x1p64;
}

std::vector<Span> SpansOf(const rpc::CallRecord& call, const TraceContext* parent,
                          const std::string& trace_id, absl::Time now, Tick ended) {
  const WallTime time(now, ended);
  std::vector<Span> spans = {CallSpan(call, parent, trace_id, time)};
  const std::string call_id = spans[0].span_id();
  const auto add = [&](const char* name, Tick from, Tick to) {
    if (from == Tick() || to == Tick()) return;
    Span& span = spans.emplace_back();
    span.set_trace_id(trace_id);
    span.set_span_id(RandomId(kSpanIdBytes));
    span.set_parent_span_id(call_id);
    span.set_name(name);
    span.set_kind(Span::SPAN_KIND_INTERNAL);
    span.set_start_time_unix_nano(time.Of(from));
    span.set_end_time_unix_nano(time.Of(to));
  };
  const engine::Phases& phases = call.phases;
  add("queue", phases.submitted, phases.started);
  add("gather", phases.started, phases.gathered);
  add("compute", phases.gathered, phases.computed);
  add("copy", phases.computed, phases.stored);
  add("answer", phases.stored == Tick() ? phases.computed : phases.stored, ended);
  return spans;
}

void CallTracer::Ended(const rpc::CallRecord& call) {
  if (call.method.starts_with("grpc.")) return;
  const std::optional<TraceContext> parent = ParseTraceparent(call.traceparent());
  const TraceContext* const told = parent.has_value() ? &*parent : nullptr;
  const std::string trace_id = told == nullptr ? RandomId(kTraceIdBytes) : told->trace_id;
  if (!IsSampled(options_, told, trace_id)) return;
  exporter_.Add(SpansOf(call, told, trace_id, absl::Now(), std::chrono::steady_clock::now()));
}

}  // namespace phasor::trace
