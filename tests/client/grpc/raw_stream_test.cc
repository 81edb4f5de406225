// SPDX-License-Identifier: Apache-2.0
// Messages there and back, and every way in which a stream ends.
#include "client/grpc/raw_stream.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>

#include "kernels/base/steady_time.h"
#include "tests/client/grpc/stream_service.h"

namespace phasor::client_internal {
namespace {

constexpr char kMethod[] = "/phasor.v1.PositionEmbeddingService/StreamApplyRoPE";

std::string Header(int64_t id) {
  v1::StreamApplyRoPERequest request;
  request.set_id(id);
  return request.SerializeAsString();
}

absl::Span<const std::byte> BytesOf(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

// The id of the next answer; -1: there is none.
int64_t ReadId(RawStream& stream) {
  grpc::ByteBuffer bytes;
  if (!stream.Read(&bytes)) return -1;
  const auto message = ReadRawMessage(bytes);
  v1::StreamApplyRoPEResponse response;
  if (!message.ok() || !response.ParseFromString(message->header)) return -1;
  return response.id();
}

TEST(RawStreamTest, MessagesComeBackWithTheirBytes) {
  StreamService service;
  RawStream stream(service.channel(), kMethod, {});
  const std::string large(1 << 20, 'x');  // lent, not copied
  const std::string small = "y";
  const absl::Span<const std::byte> raw[] = {BytesOf(large), BytesOf(small)};
  for (int64_t id = 0; id < 3; ++id) {
    ASSERT_TRUE(stream.Write(Header(id), raw, stream.NewLoan()));
    grpc::ByteBuffer bytes;
    ASSERT_TRUE(stream.Read(&bytes));
    const auto message = ReadRawMessage(bytes);
    ASSERT_TRUE(message.ok());
    v1::StreamApplyRoPEResponse response;
    ASSERT_TRUE(response.ParseFromString(message->header));
    EXPECT_EQ(response.id(), id);
    ASSERT_EQ(message->raw.size(), 2);
    std::string back(large.size(), ' ');
    ASSERT_EQ(PieceBytes(message->raw[0]), static_cast<int64_t>(large.size()));
    CopyPieces(message->raw[0], reinterpret_cast<std::byte*>(back.data()));
    EXPECT_EQ(back, large);
  }
  EXPECT_TRUE(stream.Finish().ok());
  EXPECT_FALSE(stream.Write(Header(9), {}, stream.NewLoan()));
}

// This server takes its next message when its last answer was read.
TEST(RawStreamTest, SmallMessagesAreSentInOrderAndAnswersNeedNotBeReadMeanwhile) {
  constexpr int64_t kMessages = 1000;
  StreamService service;
  RawStream stream(service.channel(), kMethod, {});
  for (int64_t id = 0; id < kMessages; ++id)
    ASSERT_TRUE(stream.Write(Header(id), {}, stream.NewLoan()));
  stream.WritesDone();
  for (int64_t id = 0; id < kMessages; ++id) ASSERT_EQ(ReadId(stream), id);
  EXPECT_EQ(ReadId(stream), -1);
  EXPECT_TRUE(stream.Finish().ok());
}

TEST(RawStreamTest, AWriterWaitsWhileMuchIsQueued) {
  constexpr int64_t kMessages = 200;
  StreamService service;
  RawStream stream(service.channel(), kMethod, {});
  const std::string payload(40 << 10, 'x');
  std::atomic<int64_t> written = 0;
  std::thread writer([&] {
    const absl::Span<const std::byte> raw[] = {BytesOf(payload)};
    for (int64_t id = 0; id < kMessages; ++id, ++written)
      EXPECT_TRUE(stream.Write(Header(id), raw, stream.NewLoan()));
  });
  for (int64_t id = 0; id < kMessages; ++id) {
    EXPECT_LE(written - id, 16);  // two in each queue, a few with gRPC and the server
    ASSERT_EQ(ReadId(stream), id);
  }
  writer.join();
  EXPECT_TRUE(stream.Finish().ok());
}

// This server takes its next message when its last answer was read: without the reads, the last
// write would never end.
TEST(RawStreamTest, OneThreadReadsWhileItCannotWrite) {
  constexpr int64_t kMessages = 200;
  StreamService service;
  RawStream stream(service.channel(), kMethod, {});
  const std::string payload(40 << 10, 'x');
  const absl::Span<const std::byte> raw[] = {BytesOf(payload)};
  int64_t answered = 0;
  for (int64_t id = 0; id < kMessages; ++id) {
    while (!stream.WaitToWrite()) ASSERT_EQ(ReadId(stream), answered++);
    ASSERT_TRUE(stream.Write(Header(id), raw, stream.NewLoan()));
  }
  EXPECT_GT(answered, kMessages / 2);
  while (answered < kMessages) ASSERT_EQ(ReadId(stream), answered++);
  EXPECT_TRUE(stream.Finish().ok());
  EXPECT_TRUE(stream.WaitToWrite());  // it would not block, but say that the stream has ended
}

TEST(RawStreamTest, FinishDropsWhatWasNotRead) {
  StreamService service;
  RawStream stream(service.channel(), kMethod, {});
  ASSERT_TRUE(stream.Write(Header(1), {}, stream.NewLoan()));
  EXPECT_TRUE(stream.Finish().ok());
  EXPECT_EQ(service.received, 1);
}

TEST(RawStreamTest, TheServersStatusIsHowItEnds) {
  StreamService service;
  service.spoil = [](auto&) { return grpc::Status(grpc::StatusCode::DATA_LOSS, "why"); };
  RawStream stream(service.channel(), kMethod, {});
  ASSERT_TRUE(stream.Write(Header(1), {}, stream.NewLoan()));
  grpc::ByteBuffer bytes;
  EXPECT_FALSE(stream.Read(&bytes));
  const absl::Status status = stream.Finish();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(status.message(), "why");
}

TEST(RawStreamTest, CarriesMetadataAndRefusesWhatCannotBeSent) {
  StreamService service;
  RawStream stream(service.channel(), kMethod, {.metadata = {{"traceparent", "00-1-2-01"}}});
  EXPECT_TRUE(stream.Finish().ok());
  EXPECT_EQ(service.traceparent, "00-1-2-01");
  RawStream refused(service.channel(), kMethod, {.metadata = {{"te", "1"}}});
  EXPECT_FALSE(refused.Write(Header(1), {}, refused.NewLoan()));
  EXPECT_EQ(refused.Finish().code(), absl::StatusCode::kInvalidArgument);
}

TEST(RawStreamTest, DeadlineTokenAndCancelEndABlockedRead) {
  StreamService service;
  grpc::ByteBuffer bytes;
  {
    RawStream stream(service.channel(), kMethod,
                     {.deadline = SteadyNow() + absl::Milliseconds(20)});
    EXPECT_FALSE(stream.Read(&bytes));
    EXPECT_EQ(stream.Finish().code(), absl::StatusCode::kDeadlineExceeded);
  }
  CancelToken token;
  RawStream by_token(service.channel(), kMethod, {.cancel = token});
  RawStream by_call(service.channel(), kMethod, {});
  std::thread canceller([&] {
    token.Cancel();
    by_call.Cancel();
  });
  for (RawStream* stream : {&by_token, &by_call}) {
    EXPECT_FALSE(stream->Read(&bytes));
    EXPECT_EQ(stream->Finish().code(), absl::StatusCode::kCancelled);
  }
  canceller.join();
}

TEST(RawStreamTest, ACallerThatWaitsMayInterruptTheStream) {
  StreamService service;
  int asked = 0;
  RawStream stream(service.channel(), kMethod, {.interrupted = [&] { return ++asked == 3; }});
  grpc::ByteBuffer bytes;
  EXPECT_FALSE(stream.Read(&bytes));
  EXPECT_EQ(asked, 3);
  EXPECT_EQ(stream.Finish().code(), absl::StatusCode::kCancelled);
}

TEST(RawStreamTest, ADestroyedStreamIsCancelledAndReturnsWhatItWasLent) {
  StreamService service;
  auto large = std::make_unique<std::string>(8 << 20, 'x');
  {
    RawStream stream(service.channel(), kMethod, {});
    const absl::Span<const std::byte> raw[] = {BytesOf(*large)};
    ASSERT_TRUE(stream.Write(Header(1), raw, stream.NewLoan()));
  }
  large.reset();  // ASan would see gRPC read it now
}

}  // namespace
}  // namespace phasor::client_internal
