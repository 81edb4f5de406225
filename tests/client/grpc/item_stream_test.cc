// SPDX-License-Identifier: Apache-2.0
// Tests which errors belong to an item and which to the stream. client_stream_test compares the
// bytes of a real server.
#include "client/grpc/item_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/client/grpc/stream_service.h"
#include "tests/support/status_matchers.h"

namespace phasor::client_internal {
namespace {

using ::phasor::testing::StatusIs;
using ::testing::HasSubstr;

// Echoed rotations of [2, 1, 8] floats.
class ItemStreamTest : public ::testing::Test {
 protected:
  RopeCall Call(std::vector<float>& x) {
    return {.spec = {.preset = "rope-half-split"},
            .positions = IntegerRange{0, 1, 2},
            .tensors = {MutableView(x, {2, 1, 8})}};
  }
  std::unique_ptr<RopeStream> Stream() {
    return MakeRopeStream(service_.channel(), std::make_shared<LeaseHolder>(), {});
  }

  StreamService service_;
  std::vector<float> x_ = std::vector<float>(16, 1.5F);
};

TEST_F(ItemStreamTest, AnswersCarryTheirIds) {
  const auto stream = Stream();
  ASSERT_TRUE(stream->Write(7, Call(x_)).ok());
  const auto answer = stream->Read();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->id, 7);
  EXPECT_TRUE(answer->result.ok()) << answer->result.status();
  stream->WritesDone();
  EXPECT_FALSE(stream->Read().has_value());
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(ItemStreamTest, AnItemsErrorIsItsAnswer) {
  service_.spoil = [](v1::StreamApplyRoPEResponse& response) {
    response.mutable_result()->mutable_status()->set_code(5);
    response.mutable_result()->mutable_status()->set_message("item: what");
    return grpc::Status::OK;
  };
  const auto stream = Stream();
  ASSERT_TRUE(stream->Write(1, Call(x_)).ok());
  EXPECT_THAT(stream->Read()->result, StatusIs(absl::StatusCode::kNotFound, "item: what"));
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(ItemStreamTest, ACallThatCannotBeSentIsRefusedAtOnce) {
  const auto stream = Stream();
  RopeCall call = Call(x_);
  call.tensors[0].input.bytes = 3;
  EXPECT_THAT(stream->Write(1, call),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("item.tensors[0].tensor: 3")));
  ASSERT_TRUE(stream->Write(1, Call(x_)).ok());
  EXPECT_THAT(stream->Write(1, Call(x_)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("id: 1 is not answered yet")));
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_EQ(stream->Write(2, Call(x_)).code(), absl::StatusCode::kFailedPrecondition);
}

// gRPC would end the stream with it, and the calls before it would have no answer.
TEST_F(ItemStreamTest, ACallLargerThanAMessageIsRefused) {
  constexpr int64_t kTokens = int64_t{1} << 26;
  RopeCall call = Call(x_);
  call.positions = IntegerRange{0, 1, kTokens};
  call.tensors[0] = MutableView(x_, {2, 1, 8});
  call.tensors[0].input.desc.shape = {kTokens, 1, 8};
  call.tensors[0].input.bytes = kTokens * 8 * sizeof(float);  // more than there is: it is not read
  call.tensors[0].output.desc = call.tensors[0].input.desc;
  call.tensors[0].output.bytes = call.tensors[0].input.bytes;
  const auto stream = Stream();
  EXPECT_THAT(stream->Write(1, call), StatusIs(absl::StatusCode::kResourceExhausted,
                                               HasSubstr("in one message; split the tokens")));
  ASSERT_TRUE(stream->Write(1, Call(x_)).ok());
  EXPECT_EQ(stream->Read()->id, 1);
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(ItemStreamTest, AnAnswerToNothingBreaksTheStream) {
  service_.spoil = [](v1::StreamApplyRoPEResponse& response) {
    response.set_id(9);
    return grpc::Status::OK;
  };
  const auto stream = Stream();
  ASSERT_TRUE(stream->Write(1, Call(x_)).ok());
  EXPECT_FALSE(stream->Read().has_value());
  EXPECT_THAT(stream->Finish(),
              StatusIs(absl::StatusCode::kInternal,
                       HasSubstr("id 9 was not asked for; is the server of another version?")));
}

// The caller may free the memory of a call once it is answered. A server may guess an id.
TEST_F(ItemStreamTest, AnAnswerBeforeItsCallWasSentWaitsUntilThatIsNotSentAnyMore) {
  constexpr int64_t kTokens = 1 << 20;  // 32 MiB, more than a connection holds
  std::vector<float> x(kTokens * 8, 1.5F);
  RopeCall call = Call(x);
  call.positions = IntegerRange{0, 1, kTokens};
  call.tensors = {MutableView(x, {kTokens, 1, 8})};
  service_.guess = 1;
  bool reads = false;
  int asked = 0;  // while it read; the third time the stream ends, and gRPC drops the call
  const auto stream = MakeRopeStream(service_.channel(), std::make_shared<LeaseHolder>(),
                                     {.interrupted = [&] { return reads && ++asked == 3; }});
  ASSERT_TRUE(stream->Write(1, call).ok());
  EXPECT_FALSE(stream->WaitToWrite()) << "there is an answer";
  reads = true;
  stream->Read();
  EXPECT_EQ(asked, 3);
  service_.read_on.Notify();
  EXPECT_FALSE(stream->Finish().ok());
}

TEST_F(ItemStreamTest, AnAnswerThatDoesNotFitWritesNothing) {
  service_.spoil = [](v1::StreamApplyRoPEResponse& response) {
    response.mutable_raw(0)->pop_back();
    return grpc::Status::OK;
  };
  const auto stream = Stream();
  ASSERT_TRUE(stream->Write(1, Call(x_)).ok());
  EXPECT_EQ(stream->Read()->result.status().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(x_, std::vector<float>(16, 1.5F));
}

}  // namespace
}  // namespace phasor::client_internal
