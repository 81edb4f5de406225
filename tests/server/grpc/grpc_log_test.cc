// SPDX-License-Identifier: Apache-2.0
// Tests what happens to gRPC's log lines.
#include "server/grpc/grpc_log.h"

#include <gmock/gmock.h>
#include <grpc/grpc.h>
#include <grpc/support/log.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "proto/grpc_version.h"
#include "server/base/log.h"

#if PHASOR_GRPC_LOGS_WITH_ABSEIL
#include "absl/log/log.h"
#endif

namespace phasor {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// Logs as gRPC does. Its lines for debugging have Abseil's level INFO.
void LogAsGrpc(gpr_log_severity severity, const char* message) {
#if PHASOR_GRPC_LOGS_WITH_ABSEIL
  const bool error = severity == GPR_LOG_SEVERITY_ERROR;
  LOG(LEVEL(error ? absl::LogSeverity::kError : absl::LogSeverity::kInfo)) << message;
#else
  gpr_log_message("file.cc", 1, severity, message);
#endif
}

#if PHASOR_GRPC_LOGS_WITH_ABSEIL
constexpr char kExpired[] =
    "CallNextHandshakerLocked: error=UNKNOWN: Tls handshake failed: SSL_ERROR_SSL: expired\n"
    "=== Source Location Trace: ===\n./src/core/x.cc:142\n shutdown=false index=2, args={}";
constexpr char kExpiredReason[] = "UNKNOWN: Tls handshake failed: SSL_ERROR_SSL: expired\"";
constexpr char kClosed[] =
    "CallNextHandshakerLocked: error=UNAVAILABLE: Handshake read failed (Socket closed) "
    "shutdown=false index=2, args={}";
constexpr char kClosedReason[] = "the peer hung up: Socket closed\"";
constexpr char kClosedPeer[] = "\"peer\":\"\"";
constexpr char kFailed[] = "CallNextHandshakerLocked: error=x shutdown=false";
#else
constexpr char kExpired[] =
    "Security handshake failed: UNKNOWN:Tls handshake failed: SSL_ERROR_SSL: expired "
    "{file:\"x.cc\", file_line:1}";
constexpr char kExpiredReason[] = "UNKNOWN:Tls handshake failed: SSL_ERROR_SSL: expired\"";
constexpr char kClosed[] =
    "Security handshake failed: UNKNOWN:Handshake read failed {file_line:487, "
    "children:[INTERNAL:Socket closed {fd:13, target_address:\"ipv4:127.0.0.1:5\"}]}";
constexpr char kClosedReason[] = "the peer hung up: INTERNAL:Socket closed\"";
constexpr char kClosedPeer[] = "\"peer\":\"ipv4:127.0.0.1:5\"";
constexpr char kFailed[] = "Security handshake failed: x";
#endif

std::string LinesOf(gpr_log_severity severity, const char* message,
                    LogLevel level = LogLevel::kWarn) {
  grpc_init();  // which reads what gRPC is to log
  ForwardGrpcLog();
  SetLogLevel(level);
  ::testing::internal::CaptureStderr();
  LogAsGrpc(severity, message);
  grpc_shutdown();
  return ::testing::internal::GetCapturedStderr();
}

TEST(ServerGrpcLogTest, ErrorsAreWarningsAndTheRestIsForDebugging) {
  EXPECT_THAT(LinesOf(GPR_LOG_SEVERITY_ERROR, "broken"),
              AllOf(HasSubstr("\"level\":\"warn\""), HasSubstr("\"message\":\"broken\"")));
  EXPECT_THAT(LinesOf(GPR_LOG_SEVERITY_INFO, "fine"), IsEmpty());
}

TEST(ServerGrpcLogTest, FailedHandshakesAreCountedAndLogged) {
  WatchTlsHandshakes();
  const int64_t before = TlsHandshakesFailed();
  EXPECT_THAT(LinesOf(GPR_LOG_SEVERITY_DEBUG, kExpired),
              HasSubstr(std::string("\"level\":\"warn\",\"event\":\"TLS handshake failed\",") +
                        "\"reason\":\"" + kExpiredReason));
  EXPECT_THAT(
      LinesOf(GPR_LOG_SEVERITY_DEBUG, kClosed, LogLevel::kInfo),
      AllOf(HasSubstr("\"level\":\"info\""),
            HasSubstr(std::string("\"reason\":\"") + kClosedReason), HasSubstr(kClosedPeer)));
  EXPECT_THAT(LinesOf(GPR_LOG_SEVERITY_ERROR, "No match found for server name: evil\nname."),
              AllOf(HasSubstr("TLS handshake failed"), Not(HasSubstr("evil"))));
  EXPECT_EQ(TlsHandshakesFailed(), before + 3);
  EXPECT_THAT(LinesOf(GPR_LOG_SEVERITY_ERROR, "Handshake failed with fatal error x"), IsEmpty());
  EXPECT_EQ(TlsHandshakesFailed(), before + 3);
}

#if PHASOR_GRPC_LOGS_WITH_ABSEIL
TEST(ServerGrpcLogTest, HandshakesThatSucceedAreNotLogged) {
  const int64_t before = TlsHandshakesFailed();
  for (const char* const line :
       {"CallNextHandshakerLocked: error=OK shutdown=false index=1, args={}",
        "handshake_manager 0x1: adding handshaker security [0x2] at index 1",
        "handshake manager 0x1:  calling handshaker security at index 1",
        "HandshakeManager:0x1 ref 1 -> 2"}) {
    EXPECT_THAT(LinesOf(GPR_LOG_SEVERITY_INFO, line, LogLevel::kDebug), IsEmpty()) << line;
  }
  EXPECT_EQ(TlsHandshakesFailed(), before);
}
#endif

TEST(ServerGrpcLogTest, AFloodOfFailedHandshakesIsCountedAndLoggedInPart) {
  WatchTlsHandshakes();
  const int64_t before = TlsHandshakesFailed();
  std::string lines;
  for (int i = 0; i < 100; ++i) {
    lines += LinesOf(GPR_LOG_SEVERITY_DEBUG, kFailed);
  }
  EXPECT_EQ(TlsHandshakesFailed(), before + 100);
  EXPECT_LT(std::count(lines.begin(), lines.end(), '\n'), 100);
}

// The last test, because it uses up the lines of a second.
TEST(ServerGrpcLogTest, ErrorsThatCallersCauseDoNotFloodTheLog) {
  grpc_init();
  ForwardGrpcLog();
  SetLogLevel(LogLevel::kWarn);
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 1000; ++i) {
    LogAsGrpc(GPR_LOG_SEVERITY_ERROR, "Compression algorithm 'gzip' is disabled.");
  }
  const std::string lines = ::testing::internal::GetCapturedStderr();
  grpc_shutdown();
  const auto count = std::count(lines.begin(), lines.end(), '\n');
  EXPECT_GE(count, 1);
  EXPECT_LE(count, 100);  // 10 a second, if this took a while
  EXPECT_THAT(lines, HasSubstr("\"left_out\":"));
}

}  // namespace
}  // namespace phasor
