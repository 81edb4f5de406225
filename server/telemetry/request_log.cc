// SPDX-License-Identifier: Apache-2.0
// Writes a log line for failed calls and for a sample of successful ones.
#include "server/telemetry/request_log.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "kernels/base/text.h"
#include "server/base/log.h"
#include "server/base/trace_context.h"

namespace phasor::telemetry {
namespace {

constexpr int kOk = 0;
constexpr int kPermissionDenied = 7;
constexpr int kUnauthenticated = 16;

// Limits on text from callers in a line. A pipe accepts a line of up to 4 KiB at once, and JSON may
// write one byte as six.
constexpr size_t kMaxMethodBytes = 256;
constexpr size_t kMaxMessageBytes = 512;

std::string Shortened(std::string_view text, size_t max_bytes) {
  if (text.size() <= max_bytes) return std::string(text);
  return StrCat(text.substr(0, max_bytes), "...");
}

// Empty: the call's caller names no trace.
std::string TraceIdOf(const rpc::CallRecord& call) {
  const std::optional<TraceContext> caller = ParseTraceparent(call.traceparent());
  return caller.has_value() ? absl::BytesToHexString(caller->trace_id) : "";
}

}  // namespace

RequestLog::RequestLog(RequestLogOptions options)
    : options_(std::move(options)),
      failures_(options_.max_failures_per_second),
      refusals_(options_.max_refusals_per_second) {}

void RequestLog::Ended(const rpc::CallRecord& call) {
  std::optional<int64_t> left_out = 0;
  if (call.code == kOk) {
    if (options_.every == 0) return;
    if (succeeded_.fetch_add(1, std::memory_order_relaxed) % options_.every != 0) return;
  } else {
    const bool refused = call.code == kPermissionDenied || call.code == kUnauthenticated;
    left_out = (refused ? refusals_ : failures_).Admit(options_.now());
    if (!left_out.has_value()) return;
  }
  Log(call.code == kOk ? LogLevel::kInfo : LogLevel::kWarn, "call",
      {{"method", Shortened(call.method, kMaxMethodBytes)},
       {"code", rpc::CodeName(call.code)},
       {"message", Shortened(call.message, kMaxMessageBytes)},
       {"seconds", absl::ToDoubleSeconds(call.duration)},
       {"received_bytes", call.received_bytes.value_or(0)},
       {"sent_bytes", call.sent_bytes},
       {"peer", call.peer()},
       {"trace_id", TraceIdOf(call)},
       {"left_out", *left_out}});
}

}  // namespace phasor::telemetry
