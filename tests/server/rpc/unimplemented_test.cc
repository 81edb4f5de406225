// SPDX-License-Identifier: Apache-2.0
// What this version lacks says so, and says what to use instead.
#include "server/rpc/unimplemented.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/rpc/test_server.h"

namespace phasor::rpc {
namespace {

using ::testing::HasSubstr;

void ExpectRefused(const grpc::Status& status, const std::string& method) {
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_THAT(status.error_message(), HasSubstr(method + ": not implemented in this version, "));
}

TEST(UnimplementedTest, RegionsOfTheHostAreRefused) {
  TestServer server;
  const auto stub = v1::SharedMemoryService::NewStub(server.channel());
  grpc::ClientContext context;
  v1::RegisterResponse response;
  ExpectRefused(stub->Register(&context, {}, &response), "Register");
}

}  // namespace
}  // namespace phasor::rpc
