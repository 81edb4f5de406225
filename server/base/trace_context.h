// SPDX-License-Identifier: Apache-2.0
// The identity of a trace as callers send it: https://www.w3.org/TR/trace-context/.
#ifndef PHASOR_SERVER_BASE_TRACE_CONTEXT_H_
#define PHASOR_SERVER_BASE_TRACE_CONTEXT_H_

#include <optional>
#include <string>
#include <string_view>

namespace phasor {

// A span of a caller.
struct TraceContext {
  std::string trace_id;  // 16 bytes
  std::string span_id;   // 8 bytes
  bool sampled = false;  // whether the caller records its trace
};

// Parses the value of the metadata "traceparent". nullopt: not valid, or none.
std::optional<TraceContext> ParseTraceparent(std::string_view text);

// Random bytes, not all zero. Threads: any.
std::string RandomId(size_t bytes);

}  // namespace phasor

#endif  // PHASOR_SERVER_BASE_TRACE_CONTEXT_H_
