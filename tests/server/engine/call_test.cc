// SPDX-License-Identifier: Apache-2.0
// Received bytes in pieces.
#include "server/engine/call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/support/test_call.h"

namespace phasor::engine {
namespace {

TEST(SegmentsTest, GatherJoinsPiecesOfAnySize) {
  const std::string text = "0123456789";
  for (const size_t piece : {0, 1, 3, 9, 10, 11}) {
    const Segments segments = Pieces(text, piece);
    EXPECT_EQ(SegmentBytes(segments), 10) << piece;
    std::string out(12, '#');
    Gather(segments, reinterpret_cast<std::byte*>(out.data()) + 1);
    EXPECT_EQ(out, "#0123456789#") << piece;
  }
}

TEST(SegmentsTest, EmptyPiecesAndNoPiecesAreNothing) {
  EXPECT_EQ(SegmentBytes({}), 0);
  Segments segments = {absl::Span<const std::byte>(), absl::Span<const std::byte>()};
  EXPECT_EQ(SegmentBytes(segments), 0);
  char untouched = '#';
  Gather(segments, reinterpret_cast<std::byte*>(&untouched));
  EXPECT_EQ(untouched, '#');
}

}  // namespace
}  // namespace phasor::engine
