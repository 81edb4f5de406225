// SPDX-License-Identifier: Apache-2.0
// Turns the reports about calls and messages into spans. Names of attributes are those of
// OpenTelemetry's conventions for RPC.
#include "server/trace/call_tracer.h"

#include <chrono>
#include <cstdint>
#include <utility>

#include "absl/time/clock.h"

namespace phasor::trace {
namespace {

using Tick = engine::Phases::Tick;
using opentelemetry::proto::collector::trace::v1::Status;

constexpr size_t kTraceIdBytes = 16, kSpanIdBytes = 8;
// Limits on text from callers.
constexpr size_t kMaxMethodBytes = 256, kMaxMessageBytes = 512;

// Text of a caller in ASCII. A collector cannot read a span whose text is not UTF-8, and drops all
// spans that were sent with it.
std::string Ascii(std::string_view text, size_t max_bytes) {
  std::string ascii(text.substr(0, max_bytes));
  for (char& c : ascii) {
    if (static_cast<unsigned char>(c) >= 0x80) c = '?';
  }
  return ascii;
}

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

Span CallSpan(const rpc::CallRecord& call, const CallIds& ids, const WallTime& time) {
  Span span;
  span.set_trace_id(ids.trace_id);
  span.set_span_id(ids.span_id);
  if (ids.parent.has_value()) span.set_parent_span_id(ids.parent->span_id);
  const std::string name = Ascii(call.method, kMaxMethodBytes);
  const std::string_view method = name;
  span.set_name(name);
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
  span.mutable_status()->set_message(Ascii(call.message, kMaxMessageBytes));
  return span;
}

Span Step(const char* name, const Span& parent, uint64_t from, uint64_t to) {
  Span span;
  span.set_trace_id(parent.trace_id());
  span.set_span_id(RandomId(kSpanIdBytes));
  span.set_parent_span_id(parent.span_id());
  span.set_name(name);
  span.set_kind(Span::SPAN_KIND_INTERNAL);
  span.set_start_time_unix_nano(from);
  span.set_end_time_unix_nano(to);
  return span;
}

// `whole`, then its steps.
std::vector<Span> WithSteps(Span whole, const engine::Phases& phases, const WallTime& time,
                            Tick ended) {
  std::vector<Span> spans = {std::move(whole)};
  const auto add = [&](const char* name, Tick from, Tick to) {
    if (from == Tick() || to == Tick()) return;
    spans.push_back(Step(name, spans[0], time.Of(from), time.Of(to)));
  };
  add("queue", phases.submitted, phases.started);
  add("gather", phases.started, phases.gathered);
  add("compute", phases.gathered, phases.computed);
  add("copy", phases.computed, phases.stored);
  add("answer", phases.stored == Tick() ? phases.computed : phases.stored, ended);
  return spans;
}

// Traces one stream.
class StreamTracer final : public rpc::StreamObserver {
 public:
  StreamTracer(CallIds ids, SpanExporter* exporter) : ids_(std::move(ids)), exporter_(*exporter) {}

  const CallIds& ids() const { return ids_; }
  void Answered(const rpc::MessageRecord& message) override {
    if (!ids_.sampled()) return;
    exporter_.Add(SpansOf(message, ids_, absl::Now(), std::chrono::steady_clock::now()));
  }

 private:
  const CallIds ids_;
  SpanExporter& exporter_;
};

}  // namespace

bool IsSampled(const TraceOptions& options, const TraceContext* parent, std::string_view trace_id) {
  if (options.parent_based && parent != nullptr) return parent->sampled;
  uint64_t number = 0;  // the last 8 bytes, which are random
  for (const char c : trace_id.substr(trace_id.size() - 8)) {
    number = number << 8 | static_cast<unsigned char>(c);
  }
  return static_cast<double>(number) < options.ratio * 0x1p64;
}

CallIds IdsOf(const TraceOptions& options, std::string_view traceparent) {
  CallIds ids{.parent = ParseTraceparent(traceparent)};
  const TraceContext* const parent = ids.parent.has_value() ? &*ids.parent : nullptr;
  ids.trace_id = parent == nullptr ? RandomId(kTraceIdBytes) : parent->trace_id;
  if (IsSampled(options, parent, ids.trace_id)) ids.span_id = RandomId(kSpanIdBytes);
  return ids;
}

std::vector<Span> SpansOf(const rpc::CallRecord& call, const CallIds& ids, absl::Time now,
                          Tick ended) {
  const WallTime time(now, ended);
  return WithSteps(CallSpan(call, ids, time), call.phases, time, ended);
}

std::vector<Span> SpansOf(const rpc::MessageRecord& message, const CallIds& stream, absl::Time now,
                          Tick ended) {
  const WallTime time(now, ended);
  Span parent;
  parent.set_trace_id(stream.trace_id);
  parent.set_span_id(stream.span_id);
  Span span = Step("message", parent, time.Of(message.received), time.now());
  AddNumber(&span, "rpc.grpc.status_code", message.code);
  AddNumber(&span, "phasor.received_bytes", message.received_bytes);
  AddNumber(&span, "phasor.sent_bytes", message.sent_bytes);
  if (IsFault(message.code)) span.mutable_status()->set_code(Status::STATUS_CODE_ERROR);
  return WithSteps(std::move(span), message.phases, time, ended);
}

std::shared_ptr<rpc::StreamObserver> CallTracer::StreamBegins(std::string_view traceparent) {
  return std::make_shared<StreamTracer>(IdsOf(options_, traceparent), &exporter_);
}

void CallTracer::Ended(const rpc::CallRecord& call) {
  if (call.method.starts_with("grpc.")) return;
  const auto* const stream = dynamic_cast<const StreamTracer*>(call.stream);
  const CallIds ids = stream != nullptr ? stream->ids() : IdsOf(options_, call.traceparent());
  if (!ids.sampled()) return;
  exporter_.Add(SpansOf(call, ids, absl::Now(), std::chrono::steady_clock::now()));
}

}  // namespace phasor::trace
