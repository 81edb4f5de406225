// SPDX-License-Identifier: Apache-2.0
// Received messages are taken over without a copy and let go when told.
#include "server/grpc/wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/support/status_matchers.h"

namespace phasor::rpc {
namespace {

using ::phasor::testing::IsOk;
using ::phasor::testing::StatusIs;
using ::testing::HasSubstr;

// A slice over `bytes` that sets `*freed` when its last reference goes.
grpc::Slice WatchedSlice(std::string& bytes, bool* freed) {
  return grpc::Slice(
      bytes.data(), bytes.size(), [](void* flag) { *static_cast<bool*>(flag) = true; }, freed);
}

TEST(ReceivedMessageTest, HoldsTheOnlyReferenceAndDropsItOnRelease) {
  std::string bytes = "\x7A\x40" + std::string(64, 'x');
  bool freed = false;
  grpc::ByteBuffer buffer;
  {
    const grpc::Slice slice = WatchedSlice(bytes, &freed);
    buffer = grpc::ByteBuffer(&slice, 1);
  }
  ReceivedMessage message;
  ASSERT_THAT(message.Take(&buffer), IsOk());
  EXPECT_FALSE(buffer.Valid());
  EXPECT_EQ(message.size(), 66);
  const auto walked = message.Walk({});
  ASSERT_THAT(walked, IsOk());
  ASSERT_EQ(walked->raw.size(), 1u);
  EXPECT_EQ(reinterpret_cast<const char*>(walked->raw[0][0].data()), bytes.data() + 2);
  EXPECT_FALSE(freed);
  message.Release();
  EXPECT_TRUE(freed);
}

TEST(ReceivedMessageTest, WalksAcrossSlicesOfAnySize) {
  // The first slice is small enough to live inside its object.
  const grpc::Slice slices[] = {grpc::Slice("\x7A"), grpc::Slice("\x28" + std::string(30, 'a')),
                                grpc::Slice(std::string(10, 'b'))};
  grpc::ByteBuffer buffer(slices, 3);
  ReceivedMessage message;
  ASSERT_THAT(message.Take(&buffer), IsOk());
  const auto walked = message.Walk({});
  ASSERT_THAT(walked, IsOk());
  ASSERT_EQ(walked->raw.size(), 1u);
  EXPECT_EQ(PieceBytes(walked->raw[0]), 40);
}

TEST(ReceivedMessageTest, BufferWithoutBytesIsAnEmptyMessage) {
  grpc::ByteBuffer no_bytes(nullptr, 0);
  ReceivedMessage message;
  ASSERT_THAT(message.Take(&no_bytes), IsOk());
  EXPECT_EQ(message.size(), 0);
  EXPECT_THAT(message.Walk({}), IsOk());
}

// What gRPC hands over where the call ended while its message was on the way.
TEST(ReceivedMessageTest, NoBufferIsNoMessage) {
  grpc::ByteBuffer none;
  ReceivedMessage message;
  EXPECT_THAT(message.Take(&none), StatusIs(absl::StatusCode::kCancelled, HasSubstr("request: ")));
  EXPECT_THAT(CopyMessage(none, 4), StatusIs(absl::StatusCode::kCancelled, HasSubstr("request: ")));
}

TEST(CopyMessageTest, JoinsSlicesUpToTheLimit) {
  const grpc::Slice slices[] = {grpc::Slice("ab"), grpc::Slice("cde")};
  const grpc::ByteBuffer buffer(slices, 2);
  const auto bytes = CopyMessage(buffer, 5);
  ASSERT_THAT(bytes, IsOk());
  EXPECT_EQ(*bytes, "abcde");
  EXPECT_THAT(CopyMessage(buffer, 4), StatusIs(absl::StatusCode::kResourceExhausted,
                                               HasSubstr("request: 5 bytes; must be at most 4")));
}

TEST(CopyMessageTest, BufferWithoutBytesIsEmpty) {
  const auto bytes = CopyMessage(grpc::ByteBuffer(nullptr, 0), 4);
  ASSERT_THAT(bytes, IsOk());
  EXPECT_EQ(*bytes, "");
}

}  // namespace
}  // namespace phasor::rpc
