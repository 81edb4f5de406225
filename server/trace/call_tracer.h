// SPDX-License-Identifier: Apache-2.0
// CallTracer: makes the spans of a call when it ends, and of a stream's messages while it runs.
#ifndef PHASOR_SERVER_TRACE_CALL_TRACER_H_
#define PHASOR_SERVER_TRACE_CALL_TRACER_H_

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/base/trace_context.h"
#include "server/grpc/call_observer.h"
#include "server/trace/span_exporter.h"
#include "server/trace/trace_options.h"

namespace phasor::trace {

// Whether a call is traced. `parent`: what its caller says, nullptr: nothing. `trace_id` is the
// call's.
bool IsSampled(const TraceOptions& options, const TraceContext* parent, std::string_view trace_id);

// Where a call stands in a trace.
struct CallIds {
  std::optional<TraceContext> parent;  // what its caller says
  std::string trace_id;
  std::string span_id;  // empty if the call is not sampled
  bool sampled() const { return !span_id.empty(); }
};
CallIds IdsOf(const TraceOptions& options, std::string_view traceparent);

// The spans of a call: the call itself first, then those of its steps that it came to. `now` is the
// end of the call; `ended` is the same instant of the steady clock.
std::vector<Span> SpansOf(const rpc::CallRecord& call, const CallIds& ids, absl::Time now,
                          engine::Phases::Tick ended);
// The same for a message of the stream that has these ids.
std::vector<Span> SpansOf(const rpc::MessageRecord& message, const CallIds& stream, absl::Time now,
                          engine::Phases::Tick ended);

// Gives the spans of sampled calls to an exporter. gRPC's own services (health, reflection) are not
// traced. Threads: any.
class CallTracer final : public rpc::CallObserver {
 public:
  // `exporter` must outlive this.
  CallTracer(const TraceOptions& options, SpanExporter* exporter)
      : options_(options), exporter_(*exporter) {}

  void Started(std::string_view) override {}
  std::shared_ptr<rpc::StreamObserver> StreamBegins(std::string_view traceparent) override;
  void Ended(const rpc::CallRecord& call) override;

 private:
  const TraceOptions options_;
  SpanExporter& exporter_;
};

}  // namespace phasor::trace

#endif  // PHASOR_SERVER_TRACE_CALL_TRACER_H_
