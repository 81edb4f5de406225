// SPDX-License-Identifier: Apache-2.0
// SpanExporter: sends the spans of calls to an OpenTelemetry collector, on a thread of its own.
#ifndef PHASOR_SERVER_TRACE_SPAN_EXPORTER_H_
#define PHASOR_SERVER_TRACE_SPAN_EXPORTER_H_

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "opentelemetry/trace_service.grpc.pb.h"
#include "server/trace/trace_options.h"

namespace phasor::trace {

using opentelemetry::proto::collector::trace::v1::ExportTraceServiceRequest;
using opentelemetry::proto::collector::trace::v1::Span;
using opentelemetry::proto::collector::trace::v1::TraceService;

// Counts since the start.
struct SpanCounts {
  int64_t exported = 0;  // that a collector took
  int64_t dropped = 0;   // the queue was full, or the collector did not take them
};

// Owns a bounded queue, a thread and a channel. A collector that is slow, restarts or is gone costs
// spans, which are counted, and never a caller's time. Threads: any may call Add and counts.
class SpanExporter {
 public:
  // `options.endpoint` must be set. `version` is the program's.
  SpanExporter(const TraceOptions& options, const std::string& version);
  // Exports what is queued, for at most 2 s.
  ~SpanExporter();
  SpanExporter(const SpanExporter&) = delete;
  SpanExporter& operator=(const SpanExporter&) = delete;

  // Queues the spans of one call, or counts them as dropped. Never waits for the collector.
  void Add(std::vector<Span> spans);
  SpanCounts counts() const { return {exported_.load(), dropped_.load()}; }

 private:
  void Work();
  // Waits for a batch. Empty: the exporter stops and nothing is left.
  std::vector<Span> NextBatch();
  void Export(std::vector<Span> spans);
  // One attempt. Sets `rejected` to the spans that the collector refused.
  grpc::Status Send(const ExportTraceServiceRequest& request, absl::Time deadline,
                    int64_t* rejected);
  // Returns false if the exporter stops meanwhile.
  bool Wait(absl::Duration time);
  void Note(const grpc::Status& status);

  const TraceOptions options_;
  const std::unique_ptr<TraceService::Stub> stub_;
  ExportTraceServiceRequest frame_;  // a request without spans
  std::atomic<int64_t> exported_ = 0;
  std::atomic<int64_t> dropped_ = 0;
  bool failing_ = false;  // used by the thread

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Span> queue_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Time last_deadline_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  grpc::ClientContext* sending_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::thread thread_;
};

}  // namespace phasor::trace

#endif  // PHASOR_SERVER_TRACE_SPAN_EXPORTER_H_
