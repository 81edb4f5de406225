// SPDX-License-Identifier: Apache-2.0
// Tests that floods are found however the bytes are cut, and that nothing else is.
#include "server/net/frame_filter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/support/http2_frames.h"

namespace phasor {
namespace {

using testing::CallHeaders;
using testing::Frame;
using testing::FrameType;
using ::testing::IsNull;
using testing::kEndHeaders;
using ::testing::StrEq;

constexpr int64_t kBlock = 1000;

class FrameFilterTest : public ::testing::Test {
 protected:
  // Reads the bytes in pieces of `size`.
  const char* Read(const std::string& bytes, size_t size = 1 << 20) {
    for (size_t at = 0; at < bytes.size(); at += size) {
      const size_t n = std::min(size, bytes.size() - at);
      const char* const wrong =
          filter_.Read({reinterpret_cast<const uint8_t*>(bytes.data()) + at, n}, now_);
      if (wrong != nullptr) return wrong;
    }
    return nullptr;
  }

  absl::Time now_ = absl::UnixEpoch();
  std::shared_ptr<ResetBudget> resets_ = std::make_shared<ResetBudget>(now_);
  FrameFilter filter_{kBlock, resets_};
};

std::string Reset(uint32_t stream) {
  return Frame(FrameType::kReset, 0, std::string("\0\0\0\x08", 4), stream);
}

TEST_F(FrameFilterTest, CallsPassHoweverTheyAreCut) {
  for (const size_t size : {size_t{1}, size_t{2}, size_t{10}, size_t{1} << 20}) {
    filter_.~FrameFilter();
    new (&filter_) FrameFilter(kBlock, resets_);
    std::string bytes(testing::kHello);
    for (uint32_t stream = 1; stream < 100; stream += 2) {
      bytes += CallHeaders(kEndHeaders, stream) +
               Frame(FrameType::kData, 0, std::string(5000, '\x01'), stream) + Reset(stream);
    }
    EXPECT_THAT(Read(bytes, size), IsNull()) << size;
  }
}

TEST_F(FrameFilterTest, AHeaderBlockUpToTheLimitPasses) {
  const std::string half(kBlock / 2 - 9, 'x');
  ASSERT_THAT(Read(std::string(testing::kHello)), IsNull());
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(Read(Frame(FrameType::kHeaders, 0, half) +
                     Frame(FrameType::kContinuation, kEndHeaders, half)),
                IsNull());
  }
  EXPECT_THAT(Read(Frame(FrameType::kHeaders, 0, half) +
                   Frame(FrameType::kContinuation, kEndHeaders, half + "x")),
              StrEq("headers that do not end"));
}

TEST_F(FrameFilterTest, EmptyContinuationsCountToo) {
  std::string bytes = std::string(testing::kHello) + Frame(FrameType::kHeaders, 0, "");
  for (int i = 0; i < kBlock / 9; ++i) bytes += Frame(FrameType::kContinuation, 0, "");
  EXPECT_THAT(Read(bytes, 1), StrEq("headers that do not end"));
}

TEST_F(FrameFilterTest, ABlockIsRefusedByItsHeadBeforeItsBytes) {
  EXPECT_THAT(Read(std::string(testing::kHello) +
                   Frame(FrameType::kHeaders, 0, std::string(kBlock, 'x')).substr(0, 9)),
              StrEq("headers that do not end"));
}

TEST_F(FrameFilterTest, ResetsAreSharedByTheConnectionsOfAPeerAndComeBack) {
  FrameFilter other(kBlock, resets_);
  ASSERT_THAT(Read(std::string(testing::kHello)), IsNull());
  for (int i = 0; i < kResetsAtOnce; ++i) ASSERT_THAT(Read(Reset(1)), IsNull()) << i;
  EXPECT_FALSE(resets_->Full(now_));
  const std::string bytes = std::string(testing::kHello) + Reset(1);
  EXPECT_THAT(other.Read({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, now_),
              StrEq("too many resets of streams"));
  now_ += absl::Seconds(1);
  for (int i = 0; i < kResetsPerSecond; ++i) ASSERT_THAT(Read(Reset(1)), IsNull()) << i;
  EXPECT_THAT(Read(Reset(1)), StrEq("too many resets of streams"));
  now_ += absl::Seconds(2);
  EXPECT_TRUE(resets_->Full(now_));
}

TEST_F(FrameFilterTest, WithoutABudgetResetsAreNotCounted) {
  filter_.~FrameFilter();
  new (&filter_) FrameFilter(kBlock, nullptr);
  std::string bytes(testing::kHello);
  for (int i = 0; i < 2 * static_cast<int>(kResetsAtOnce); ++i) bytes += Reset(1);
  EXPECT_THAT(Read(bytes), IsNull());
}

TEST_F(FrameFilterTest, AMessageInTinyFramesIsRefusedHoweverItIsCut) {
  std::string fine(testing::kHello);
  fine += Frame(FrameType::kData, 0, std::string("\0\0\1\0\0", 5));
  for (int64_t i = 1; i < kFreeFramesOfMessage; ++i) fine += Frame(FrameType::kData, 0, "x");
  // Resets and frames of other streams do not end it, one more of these frames does.
  fine += Reset(3) + Frame(FrameType::kData, 0, "", 3);
  for (int i = 0; i < 15; ++i) fine += Frame(FrameType::kData, 0, "x");
  for (const size_t size : {size_t{1}, size_t{10}, size_t{1} << 20}) {
    filter_.~FrameFilter();
    new (&filter_) FrameFilter(kBlock, resets_);
    ASSERT_THAT(Read(fine, size), IsNull()) << size;
    EXPECT_THAT(Read(Frame(FrameType::kData, 0, "x"), size), StrEq("a message in tiny frames"));
  }
}

TEST_F(FrameFilterTest, AMessageOfAResetStreamIsForgotten) {
  std::string bytes(testing::kHello);
  for (int stream = 0; stream < 3; ++stream) {
    bytes += Frame(FrameType::kData, 0, std::string("\0\0\1\0\0", 5));
    for (int64_t i = 1; i < kFreeFramesOfMessage; ++i) bytes += Frame(FrameType::kData, 0, "x");
    bytes += Reset(1);
  }
  EXPECT_THAT(Read(bytes), IsNull());
}

TEST(ResetBudgetsTest, PeersThatResetNothingAreForgotten) {
  ResetBudgets budgets;
  const absl::Time now = absl::UnixEpoch();
  const auto spender = budgets.Of("spender", now);
  for (int i = 0; i < kResetsAtOnce; ++i) ASSERT_TRUE(spender->Take(now));
  const std::weak_ptr<ResetBudget> idle = budgets.Of("idle", now);
  for (int i = 0; i < 5000; ++i) budgets.Of(std::to_string(i), now);
  EXPECT_EQ(budgets.Of("spender", now), spender);
  EXPECT_TRUE(idle.expired());
}

}  // namespace
}  // namespace phasor
