// SPDX-License-Identifier: Apache-2.0
// Receives gRPC's log lines, writes them to the server's log, and counts failed handshakes.
#include "server/grpc/grpc_log.h"

#include <atomic>
#include <string>
#include <string_view>

#include "kernels/base/steady_time.h"
#include "proto/grpc_version.h"
#include "proto/protobuf_log.h"
#include "server/base/log.h"
#include "server/base/log_limit.h"

#if PHASOR_GRPC_LOGS_WITH_ABSEIL
#include <grpc/grpc.h>

#include "absl/log/log_sink.h"
#include "absl/log/log_sink_registry.h"
#include "absl/strings/match.h"
#else
#include <grpc/support/log.h>
#endif

namespace phasor {
namespace {

constexpr int64_t kHandshakeLinesPerSecond = 10;
constexpr int64_t kErrorLinesPerSecond = 10;
// Logged once per connection, whichever side ended it. Before an error; or, by gRPC's trace of
// handshakes, before each step of one, with OK or an error.
#if PHASOR_GRPC_LOGS_WITH_ABSEIL
constexpr std::string_view kHandshakeFailed = "CallNextHandshakerLocked: error=";
#else
constexpr std::string_view kHandshakeFailed = "Security handshake failed: ";
#endif
// Logged if a client asks for another name. It will not accept the certificate.
constexpr std::string_view kNoSuchName = "No match found for server name: ";

std::atomic<int64_t> handshakes_failed = 0;

// The text between `before` and `after`, or from `before` to the end. Empty if `before` is missing.
std::string Between(std::string_view text, std::string_view before, std::string_view after) {
  const size_t found = text.find(before);
  if (found == text.npos) return "";
  text.remove_prefix(found + before.size());
  return std::string(text.substr(0, text.find(after)));
}

void LogHandshake(LogLevel level, const std::string& reason, const std::string& peer) {
  static auto* const limit = new LogLimit(kHandshakeLinesPerSecond);
  handshakes_failed.fetch_add(1, std::memory_order_relaxed);
  if (const auto left_out = limit->Admit(SteadyNow()); left_out.has_value()) {
    Log(level, "TLS handshake failed",
        {{"reason", reason}, {"peer", peer}, {"left_out", *left_out}});
  }
}

#if PHASOR_GRPC_LOGS_WITH_ABSEIL
// `error` is "OK shutdown=...", "UNAVAILABLE: Handshake read failed (why)" or "UNKNOWN: why", which
// may go on in another line. It does not name the peer.
void LogHandshakeError(std::string_view error) {
  if (error.starts_with("OK ")) return;
  error = error.substr(0, error.find('\n'));
  const std::string reason(error.substr(0, error.find(" shutdown=")));
  // A probe of the port, or a client that rejects the certificate; the error does not tell which.
  const std::string why = Between(reason, "Handshake read failed (", ")");
  if (!why.empty()) return LogHandshake(LogLevel::kInfo, "the peer hung up: " + why, "");
  LogHandshake(LogLevel::kWarn, reason, "");
}
#else
// `error` is "UNKNOWN:what {key:value, ..., children:[INTERNAL:why {target_address:"peer"}]}".
void LogHandshakeError(std::string_view error) {
  const std::string why = Between(error, "children:[", " {");
  const std::string peer = Between(error, "target_address:\"", "\"");
  // A probe of the port, or a client that rejects the certificate; the error does not tell which.
  if (!why.empty()) return LogHandshake(LogLevel::kInfo, "the peer hung up: " + why, peer);
  LogHandshake(LogLevel::kWarn, std::string(error.substr(0, error.find(" {"))), peer);
}
#endif

void Forward(bool error, std::string_view message) {
  if (message.starts_with(kHandshakeFailed)) {
    return LogHandshakeError(message.substr(kHandshakeFailed.size()));
  }
  if (message.starts_with(kNoSuchName)) {
    return LogHandshake(LogLevel::kWarn,
                        "the certificate is not for the name that the client asked for", "");
  }
  // gRPC logs this in addition to the line above, for each connection of a stranger.
  const bool repeated = message.starts_with("Handshake failed with fatal error ");
  if (!error || repeated) return Log(LogLevel::kDebug, "grpc", {{"message", std::string(message)}});
  // Callers cause some of these: one line for each compressed message, for example.
  static auto* const limit = new LogLimit(kErrorLinesPerSecond);
  if (const auto left_out = limit->Admit(SteadyNow()); left_out.has_value()) {
    Log(LogLevel::kWarn, "grpc", {{"message", std::string(message)}, {"left_out", *left_out}});
  }
}

#if PHASOR_GRPC_LOGS_WITH_ABSEIL
class ForwardingSink final : public absl::LogSink {
 public:
  // Whether it is another line of the trace of handshakes: a dozen for each connection.
  static bool IsOfTrace(std::string_view message) {
    return message.starts_with("handshake manager ") || message.starts_with("handshake_manager ") ||
           message.starts_with("HandshakeManager:");
  }
  void Send(const absl::LogEntry& entry) override {
    if (absl::StrContains(entry.source_filename(), "google/protobuf/")) return;
    if (IsOfTrace(entry.text_message())) return;
    Forward(entry.log_severity() >= absl::LogSeverity::kError, entry.text_message());
  }
};
#endif

}  // namespace

#if PHASOR_GRPC_LOGS_WITH_ABSEIL
void ForwardGrpcLog() {
  static const bool once = [] {
    SilenceProtobufLog();  // and gRPC's lines on standard error
    absl::AddLogSink(new ForwardingSink);
    return true;
  }();
  static_cast<void>(once);
}

// Of the handshakes that the other side ends, gRPC tells nobody else since it logs with Abseil.
void WatchTlsHandshakes() { grpc_tracer_set_enabled("handshaker", 1); }
#else
void ForwardGrpcLog() {
  gpr_set_log_function([](gpr_log_func_args* args) {
    Forward(args->severity == GPR_LOG_SEVERITY_ERROR, args->message);
  });
}

void WatchTlsHandshakes() { gpr_set_log_verbosity(GPR_LOG_SEVERITY_DEBUG); }
#endif

int64_t TlsHandshakesFailed() { return handshakes_failed.load(std::memory_order_relaxed); }

}  // namespace phasor
