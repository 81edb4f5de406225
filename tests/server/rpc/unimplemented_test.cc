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

TEST(UnimplementedTest, StreamsEndAtOnceAndPointToBatches) {
  TestServer server;
  const auto stub = v1::PositionEmbeddingService::NewStub(server.channel());
  grpc::ClientContext encode_context;
  const grpc::Status encode = stub->StreamEncode(&encode_context)->Finish();
  ExpectRefused(encode, "StreamEncode");
  EXPECT_THAT(encode.error_message(), HasSubstr("use BatchEncode"));
  grpc::ClientContext rope_context;
  const grpc::Status rope = stub->StreamApplyRoPE(&rope_context)->Finish();
  ExpectRefused(rope, "StreamApplyRoPE");
  EXPECT_THAT(rope.error_message(), HasSubstr("use BatchApplyRoPE"));
}

TEST(UnimplementedTest, SharedMemoryIsRefused) {
  TestServer server;
  const auto stub = v1::SharedMemoryService::NewStub(server.channel());
  {
    grpc::ClientContext context;
    v1::RegisterResponse response;
    ExpectRefused(stub->Register(&context, {}, &response), "Register");
  }
  {
    grpc::ClientContext context;
    v1::UnregisterResponse response;
    ExpectRefused(stub->Unregister(&context, {}, &response), "Unregister");
  }
  {
    grpc::ClientContext context;
    v1::ListResponse response;
    ExpectRefused(stub->List(&context, {}, &response), "List");
  }
}

}  // namespace
}  // namespace phasor::rpc
