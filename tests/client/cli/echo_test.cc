// SPDX-License-Identifier: Apache-2.0
// Tests the echo server: that it serves, ends with its parent, and reports failures.
#include "client/cli/echo.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "tests/support/status_matchers.h"

namespace phasor::cli {
namespace {

using ::phasor::testing::IsOk;
using ::phasor::testing::StatusIs;
using ::testing::HasSubstr;

constexpr absl::Duration kTimeout = absl::Seconds(30);

TEST(EchoTest, ServesOverTcpAndOverAUnixSocketUntilItsParentLetsGo) {
  for (const bool unix_socket : {false, true}) {
    auto server = EchoServer::Start(PHASOR_BINARY, unix_socket);
    ASSERT_THAT(server, IsOk());
    const std::string address = (*server)->address();
    EXPECT_EQ(absl::StartsWith(address, "unix:"), unix_socket);
    // Other sizes from call to call, nothing, and more than gRPC's default limit.
    for (const int64_t bytes : {0, 100, 5 << 20}) {
      for (const Operation& operation : EchoOperations(
               address, {.request_bytes = 5 << 20, .reply_bytes = bytes}, 3, 2, kTimeout)) {
        EXPECT_THAT(operation(), IsOk());
        EXPECT_THAT(operation(), IsOk());
      }
    }
    EXPECT_THAT(
        EchoOperations(address, {.request_bytes = 1, .reply_bytes = -1}, 1, 1, kTimeout)[0](),
        StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("/bytes/")));
    server->reset();
    EXPECT_EQ(EchoOperations(address, {1, 1}, 1, 1, kTimeout)[0]().code(),
              absl::StatusCode::kUnavailable);
  }
}

TEST(EchoTest, AProgramThatDoesNotServeIsAnError) {
  EXPECT_THAT(EchoServer::Start("/bin/true", false).status(),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("/bin/true echo-server")));
  EXPECT_THAT(EchoServer::Start("/no/such/program", false).status(),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("does not serve")));
}

TEST(EchoTest, WhereNobodyMayListenIsAnError) {
  EXPECT_THAT(ServeEcho("/no/such/directory/echo.sock"),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("cannot listen")));
}

}  // namespace
}  // namespace phasor::cli
