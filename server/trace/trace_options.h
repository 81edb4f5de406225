// SPDX-License-Identifier: Apache-2.0
// What the variables of OpenTelemetry (OTEL_*) say about tracing: docs/tracing.md.
#ifndef PHASOR_SERVER_TRACE_TRACE_OPTIONS_H_
#define PHASOR_SERVER_TRACE_TRACE_OPTIONS_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace phasor::trace {

// OTEL_* variables by name.
using Environment = std::map<std::string, std::string>;

// Where spans go, and which. The defaults are those of OpenTelemetry, but for the endpoint.
struct TraceOptions {
  std::string endpoint;                                       // "host:port"; empty: no tracing
  bool tls = false;                                           // to the collector
  std::string ca_file;                                        // PEM; empty: the system's
  std::string authorities;                                    // what ca_file holds
  std::vector<std::pair<std::string, std::string>> headers;   // sent with every export
  absl::Duration export_timeout = absl::Seconds(10);          // of one export
  std::vector<std::pair<std::string, std::string>> resource;  // its attributes
  // Which calls are traced. A caller's decision counts if `parent_based`; otherwise, and for
  // callers that say nothing, this part of all traces is, by trace id.
  bool parent_based = true;
  double ratio = 1;
  int64_t max_queue_spans = 2048;  // further ones are dropped
  int64_t max_batch_spans = 512;
  absl::Duration schedule_delay = absl::Seconds(5);  // longest wait of a span for its export
};

// INVALID_ARGUMENT "<variable>: <what is wrong>; <what to do>".
absl::StatusOr<TraceOptions> ParseTraceOptions(const Environment& environment);

// Reads ca_file, if TLS needs it. NOT_FOUND, INVALID_ARGUMENT, UNAVAILABLE: it cannot be read.
absl::Status ReadAuthorities(TraceOptions* options);

}  // namespace phasor::trace

#endif  // PHASOR_SERVER_TRACE_TRACE_OPTIONS_H_
