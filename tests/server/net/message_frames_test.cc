// SPDX-License-Identifier: Apache-2.0
// Tests that messages in tiny frames are found, and that streams of small messages are not.
#include "server/net/message_frames.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace phasor {
namespace {

using ::testing::IsNull;
using ::testing::StrEq;

class MessageFramesTest : public ::testing::Test {
 protected:
  const char* Frame(const std::string& bytes, uint32_t stream = 1, bool last = false) {
    const char* const wrong = frames_.Begin(stream, static_cast<int64_t>(bytes.size()), last);
    if (wrong == nullptr)
      frames_.Read({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
    return wrong;
  }
  // As many as a message may have, beside one for the prefix and those that they pay for.
  void TinyFrames(uint32_t stream) {
    for (int64_t i = 1; i < kFreeFramesOfMessage; ++i) {
      ASSERT_THAT(Frame("x", stream), IsNull()) << i;
    }
  }
  // What is said of some more.
  const char* MoreTinyFrames(uint32_t stream) {
    const char* wrong = nullptr;
    for (int64_t i = 0; i <= kFreeFramesOfMessage / kBytesOfFrame && wrong == nullptr; ++i) {
      wrong = Frame("x", stream);
    }
    return wrong;
  }

  MessageFrames frames_;
};

std::string Prefix(uint32_t size) {
  std::string prefix(5, '\0');
  for (int i = 0; i < 4; ++i) prefix[1 + i] = static_cast<char>(size >> (24 - 8 * i));
  return prefix;
}

std::string MessageOf(uint32_t size) { return Prefix(size) + std::string(size, 'x'); }

TEST_F(MessageFramesTest, AMessageMayHaveAThousandFramesAndOneForEvery64Bytes) {
  ASSERT_THAT(Frame(Prefix(1 << 20) + std::string(59, 'x')), IsNull());  // pays for one frame
  TinyFrames(1);
  // 1063 bytes have arrived: they pay for 16 frames, and two thirds of another.
  for (int i = 0; i < 16; ++i) ASSERT_THAT(Frame("x"), IsNull()) << i;
  EXPECT_THAT(Frame("x"), StrEq("a message in tiny frames"));
}

TEST_F(MessageFramesTest, FramesOf64BytesAreFineForever) {
  ASSERT_THAT(Frame(Prefix(1 << 20)), IsNull());
  for (int i = 0; i < 16384; ++i) ASSERT_THAT(Frame(std::string(64, 'x')), IsNull()) << i;
}

TEST_F(MessageFramesTest, SmallMessagesOfAStreamAreFineForever) {
  for (int i = 0; i < 5000; ++i) {
    ASSERT_THAT(Frame(MessageOf(i % 3)), IsNull()) << i;
    ASSERT_THAT(Frame(Prefix(2)), IsNull()) << i;
    ASSERT_THAT(Frame("x"), IsNull()) << i;
    // The end of one message, a whole one, and the beginning of the next.
    ASSERT_THAT(Frame("x" + MessageOf(1) + Prefix(9).substr(0, 3)), IsNull()) << i;
    ASSERT_THAT(Frame(Prefix(9).substr(3) + std::string(9, 'x')), IsNull()) << i;
  }
}

TEST_F(MessageFramesTest, FramesWithoutBytesCountToo) {
  ASSERT_THAT(Frame(Prefix(10)), IsNull());
  for (int64_t i = 1; i < kFreeFramesOfMessage; ++i) ASSERT_THAT(Frame(""), IsNull()) << i;
  EXPECT_THAT(Frame(""), StrEq("a message in tiny frames"));
}

TEST_F(MessageFramesTest, EachStreamHasAMessageOfItsOwn) {
  for (const uint32_t stream : {1u, 3u}) ASSERT_THAT(Frame(Prefix(1 << 20), stream), IsNull());
  TinyFrames(1);
  TinyFrames(3);
  EXPECT_THAT(Frame(MessageOf(0), 5), IsNull());
}

TEST_F(MessageFramesTest, AStreamThatEndedOrWasResetIsForgotten) {
  ASSERT_THAT(Frame(Prefix(1 << 20)), IsNull());
  TinyFrames(1);
  frames_.Forget(1);
  ASSERT_THAT(Frame(Prefix(1 << 20)), IsNull());
  for (int64_t i = 2; i < kFreeFramesOfMessage; ++i) ASSERT_THAT(Frame("x"), IsNull()) << i;
  ASSERT_THAT(Frame("x", 1, /*last=*/true), IsNull());
  EXPECT_THAT(Frame(MessageOf(0)), IsNull());
}

TEST_F(MessageFramesTest, OnlyTheNewestMessagesThatDoNotEndAreKept) {
  for (uint32_t stream = 1; stream < 4 * 1024; stream += 2) {
    ASSERT_THAT(Frame(Prefix(1 << 20), stream), IsNull());
    TinyFrames(stream);
  }
  EXPECT_THAT(MoreTinyFrames(4095), StrEq("a message in tiny frames"));
  EXPECT_THAT(MoreTinyFrames(2049), StrEq("a message in tiny frames"));
  EXPECT_THAT(MoreTinyFrames(2047), IsNull());
  EXPECT_THAT(MoreTinyFrames(1), IsNull());
}

}  // namespace
}  // namespace phasor
