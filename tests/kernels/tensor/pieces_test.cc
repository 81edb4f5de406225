// SPDX-License-Identifier: Apache-2.0
// Received bytes in pieces.
#include "kernels/tensor/pieces.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>

namespace phasor {
namespace {

PieceList Cut(std::string_view text, size_t piece) {
  PieceList pieces;
  for (; !text.empty(); text.remove_prefix(std::min(piece, text.size()))) {
    pieces.push_back(
        {reinterpret_cast<const std::byte*>(text.data()), std::min(piece, text.size())});
  }
  return pieces;
}

TEST(PiecesTest, CopyJoinsPiecesOfAnySize) {
  for (const size_t piece : {1, 3, 9, 10, 11}) {
    const PieceList pieces = Cut("0123456789", piece);
    EXPECT_EQ(PieceBytes(pieces), 10) << piece;
    std::string out(12, '#');
    CopyPieces(pieces, reinterpret_cast<std::byte*>(out.data()) + 1);
    EXPECT_EQ(out, "#0123456789#") << piece;
  }
}

TEST(PiecesTest, EmptyPiecesAndNoPiecesAreNothing) {
  EXPECT_EQ(PieceBytes({}), 0);
  const PieceList pieces = {absl::Span<const std::byte>(), absl::Span<const std::byte>()};
  EXPECT_EQ(PieceBytes(pieces), 0);
  char untouched = '#';
  CopyPieces(pieces, reinterpret_cast<std::byte*>(&untouched));
  EXPECT_EQ(untouched, '#');
}

}  // namespace
}  // namespace phasor
