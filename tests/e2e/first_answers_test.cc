// SPDX-License-Identifier: Apache-2.0
// Tests that the first answers of a stream leave although nothing follows them.
#include <gtest/gtest.h>

#include <memory>
#include <set>

#include "phasor/v1/position_embedding_service.grpc.pb.h"
#include "tests/support/borrowed_backend.h"
#include "tests/support/fake_backend.h"
#include "tests/support/requests.h"
#include "tests/support/running_server.h"

namespace phasor {
namespace {

// The messages arrive together. gRPC's two threads compute the first two. They then receive the
// third before the wait of the first answer ends.
TEST(FirstAnswersTest, ThoseThatAreReadyTogetherLeave) {
  FakeBackend backend;
  const std::unique_ptr<Server> server = testing::StartServer(
      testing::TestOptions(), std::make_unique<testing::BorrowedBackend>(&backend));
  const auto stub =
      v1::PositionEmbeddingService::NewStub(testing::NewChannel(server->listeners()[0]));
  for (int turn = 0; turn < 10 && !::testing::Test::HasFailure(); ++turn) {
    const int runs = backend.runs();
    backend.Hold();
    testing::TestContext context;
    const auto stream = stub->StreamEncode(&context);
    for (int64_t id = 1; id <= 3; ++id) {
      v1::StreamEncodeRequest request;
      request.set_id(id);
      *request.mutable_item() = testing::EncodeOf(1);
      grpc::WriteOptions options;
      if (id < 3) options.set_buffer_hint();
      ASSERT_TRUE(stream->Write(request, options));
    }
    backend.WaitForRuns(runs + 2);
    backend.Release();
    std::set<int64_t> answered;
    for (int i = 0; i < 3; ++i) {
      v1::StreamEncodeResponse answer;
      EXPECT_TRUE(stream->Read(&answer));
      answered.insert(answer.id());
    }
    EXPECT_EQ(answered, (std::set<int64_t>{1, 2, 3}));
    stream->WritesDone();
    EXPECT_TRUE(stream->Finish().ok());
  }
}

}  // namespace
}  // namespace phasor
