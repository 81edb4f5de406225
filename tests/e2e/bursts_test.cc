// SPDX-License-Identifier: Apache-2.0
// Tests that answers to messages that came together leave together. Stands before sendmsg, by which
// gRPC sends, and counts. In a program of its own.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <set>

#include "phasor/v1/position_embedding_service.grpc.pb.h"
#include "tests/support/requests.h"
#include "tests/support/running_server.h"

namespace {
std::atomic<int> sends = 0;
}  // namespace

extern "C" ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  ++sends;
  return syscall(SYS_sendmsg, fd, message, flags);
}

namespace phasor {
namespace {

using Stub = v1::PositionEmbeddingService;

class BurstsTest : public ::testing::Test {
 protected:
  // Sends `items` messages together and reads their answers. Returns how often both sides sent.
  int Burst(int items) {
    const int before = sends;
    v1::StreamEncodeRequest request;
    *request.mutable_item() = testing::EncodeOf(1);
    for (int i = 1; i <= items; ++i) {
      request.set_id(i);
      grpc::WriteOptions options;
      if (i < items) options.set_buffer_hint();
      EXPECT_TRUE(stream_->Write(request, options));
    }
    std::set<int64_t> answered;
    for (int i = 1; i <= items; ++i) {
      v1::StreamEncodeResponse answer;
      EXPECT_TRUE(stream_->Read(&answer));
      EXPECT_EQ(answer.raw_size(), 1);
      answered.insert(answer.id());
    }
    EXPECT_EQ(answered.size(), items);
    return sends - before;
  }

  const std::unique_ptr<Server> server_ = testing::StartServer();
  const std::unique_ptr<Stub::Stub> stub_ =
      Stub::NewStub(testing::NewChannel(server_->listeners()[0]));
  testing::TestContext context_;
  const std::unique_ptr<grpc::ClientReaderWriter<v1::StreamEncodeRequest, v1::StreamEncodeResponse>>
      stream_ = stub_->StreamEncode(&context_);
};

// How many leave together depends on the machine, so this only notices if none do.
// AnswerQueueTest tests which are held back.
TEST_F(BurstsTest, AnswersLeaveTogether) {
  constexpr int kItems = 64;
  int fewest = Burst(kItems);
  for (int i = 0; i < 20; ++i) fewest = std::min(fewest, Burst(kItems));
  EXPECT_LT(fewest, kItems / 2);
  stream_->WritesDone();
  EXPECT_TRUE(stream_->Finish().ok());
}

TEST_F(BurstsTest, AnswersToSingleMessagesLeaveAtOnce) {
  Burst(64);
  for (int i = 0; i < 20; ++i) EXPECT_GE(Burst(1), 2);
  stream_->WritesDone();
  EXPECT_TRUE(stream_->Finish().ok());
}

}  // namespace
}  // namespace phasor
