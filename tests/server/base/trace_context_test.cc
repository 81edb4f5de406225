// SPDX-License-Identifier: Apache-2.0
// Tests traceparent: what W3C accepts, and what it does not.
#include "server/base/trace_context.h"

#include <gtest/gtest.h>

#include <set>

namespace phasor {
namespace {

const std::string kTrace = "4bf92f3577b34da6a3ce929d0e0e4736", kSpan = "00f067aa0ba902b7";

TEST(TraceContextTest, ReadsIdsAndTheSampledFlag) {
  const auto sampled = ParseTraceparent("00-" + kTrace + "-" + kSpan + "-01");
  ASSERT_TRUE(sampled.has_value());
  EXPECT_EQ(sampled->trace_id, "\x4b\xf9\x2f\x35\x77\xb3\x4d\xa6\xa3\xce\x92\x9d\x0e\x0e\x47\x36");
  EXPECT_EQ(sampled->span_id, std::string("\x00\xf0\x67\xaa\x0b\xa9\x02\xb7", 8));
  EXPECT_TRUE(sampled->sampled);
  EXPECT_FALSE(ParseTraceparent("00-" + kTrace + "-" + kSpan + "-00")->sampled);
  EXPECT_TRUE(ParseTraceparent("00-" + kTrace + "-" + kSpan + "-ff")->sampled);
  EXPECT_TRUE(ParseTraceparent("01-" + kTrace + "-" + kSpan + "-01-more").has_value());
}

TEST(TraceContextTest, RefusesWhatIsNoTraceparent) {
  for (const std::string& text : {
           std::string(),
           kTrace,
           "ff-" + kTrace + "-" + kSpan + "-01",
           "00-" + kTrace + "-" + kSpan + "-1",
           "00-" + kTrace + "-" + kSpan + "-01-more",
           "01-" + kTrace + "-" + kSpan + "-01x",
           "00-" + kTrace + "-" + kSpan + "-0x",
           "00-" + std::string(32, '0') + "-" + kSpan + "-01",
           "00-" + kTrace + "-" + std::string(16, '0') + "-01",
           "00-4BF92F3577B34DA6A3CE929D0E0E4736-" + kSpan + "-01",
           "00-4bf92f3577b34da6a3ce929d0e0e473\"-" + kSpan + "-01",
           "00_" + kTrace + "-" + kSpan + "-01",
       }) {
    EXPECT_FALSE(ParseTraceparent(text).has_value()) << text;
  }
}

TEST(RandomIdTest, HasTheLengthAndDiffers) {
  std::set<std::string> ids;
  for (int i = 0; i < 1000; ++i) ids.insert(RandomId(8));
  EXPECT_EQ(ids.size(), 1000u);
  EXPECT_EQ(RandomId(16).size(), 16u);
}

}  // namespace
}  // namespace phasor
