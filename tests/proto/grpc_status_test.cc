// SPDX-License-Identifier: Apache-2.0
// Tests that codes keep their meaning both ways, and that messages fit into HTTP/2 trailers.
#include "proto/grpc_status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace phasor {
namespace {

using ::testing::HasSubstr;

TEST(GrpcStatusTest, AllSeventeenCodesSurviveTheRoundTrip) {
  for (int code = 0; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), code == 0 ? "" : "item: why");
    const grpc::Status wire = ToGrpcStatus(status);
    EXPECT_EQ(wire.error_code(), code);
    EXPECT_EQ(FromGrpcStatus(wire), status);
  }
}

TEST(GrpcStatusTest, ACallThatGrpcResetForMemorySaysWhatToDo) {
  const absl::Status status = FromGrpcStatus(
      {grpc::StatusCode::RESOURCE_EXHAUSTED, "Received RST_STREAM with error code 11"});
  EXPECT_EQ(status,
            absl::ResourceExhaustedError(
                "request: the server has no room for its bytes (Received RST_STREAM with error "
                "code 11); send fewer tokens in one call, or raise the server's "
                "--max-inflight-bytes"));
}

// What gRPC 1.51 says with OpenSSL, and what later releases say with BoringSSL.
TEST(GrpcStatusTest, AConnectionThatTlsPreventsSaysWhatToDo) {
  const std::string failing =
      "connections to all backends failing; last error: UNKNOWN: ipv4:[::1]:1: ";
  const auto message = [&](const std::string& error) {
    const absl::Status status = FromGrpcStatus({grpc::StatusCode::UNAVAILABLE, failing + error});
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    return std::string(status.message());
  };
  const std::string plain =
      "Tls handshake failed: SSL_ERROR_SSL: error:0A00010B:SSL routines::wrong version number";
  EXPECT_EQ(message(plain),
            "server: it does not use TLS (" + failing + plain + "); connect without tls (--tls)");
  EXPECT_THAT(message("SSL routines:OPENSSL_internal:WRONG_VERSION_NUMBER"),
              HasSubstr("does not use TLS"));
  EXPECT_THAT(message("SSL routines:OPENSSL_internal:CERTIFICATE_VERIFY_FAILED"),
              HasSubstr("tls.ca_file"));
  EXPECT_THAT(message("UNAUTHENTICATED: Hostname Verification Check failed."),
              HasSubstr("tls.server_name"));
  EXPECT_THAT(message("Socket closed"), HasSubstr("set tls (--tls) if it uses TLS"));
  EXPECT_EQ(message("Connection refused"), failing + "Connection refused");
  const grpc::Status ended(grpc::StatusCode::UNAVAILABLE, "Socket closed");  // during a call
  EXPECT_EQ(FromGrpcStatus(ended).message(), "Socket closed");
}

TEST(GrpcStatusTest, UndefinedCodeBecomesUnknown) {
  EXPECT_EQ(StatusFromWire(17, "x").code(), absl::StatusCode::kUnknown);
  EXPECT_EQ(StatusFromWire(-1, "x").code(), absl::StatusCode::kUnknown);
  EXPECT_EQ(StatusFromWire(17, "x").message(), "x");
}

TEST(GrpcStatusTest, MessageAtTheLimitIsKeptWhole) {
  const std::string message(kMaxStatusMessageBytes, 'a');
  EXPECT_EQ(BoundedStatusMessage(message), message);
}

TEST(GrpcStatusTest, LongMessageIsCutBetweenCharacters) {
  std::string message;
  while (message.size() <= kMaxStatusMessageBytes) message += "\u20ac";  // three bytes each
  const std::string cut = BoundedStatusMessage(message);
  EXPECT_LE(cut.size(), kMaxStatusMessageBytes);
  EXPECT_GT(cut.size(), kMaxStatusMessageBytes - 6);
  ASSERT_TRUE(cut.ends_with("..."));
  EXPECT_EQ((cut.size() - 3) % 3, 0u);
  EXPECT_EQ(ToGrpcStatus(absl::InternalError(message)).error_message(), cut);
}

}  // namespace
}  // namespace phasor
