// SPDX-License-Identifier: Apache-2.0
// Bytes that arrived in several pieces: their number, a copy in one piece, and a reader.
#ifndef PHASOR_KERNELS_TENSOR_PIECES_H_
#define PHASOR_KERNELS_TENSOR_PIECES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"

namespace phasor {

using Pieces = absl::Span<const absl::Span<const std::byte>>;
// Received bytes in order, in pieces of any alignment. Borrowed from the message that holds them.
using PieceList = absl::InlinedVector<absl::Span<const std::byte>, 4>;

// The sum of the lengths.
inline int64_t PieceBytes(Pieces pieces) {
  int64_t bytes = 0;
  for (const absl::Span<const std::byte> piece : pieces) bytes += std::ssize(piece);
  return bytes;
}

// Copies the pieces one after another to `out`, which must have room for PieceBytes.
inline void CopyPieces(Pieces pieces, std::byte* out) {
  for (const absl::Span<const std::byte> piece : pieces) {
    if (piece.empty()) continue;
    std::memcpy(out, piece.data(), piece.size());
    out += piece.size();
  }
}

// Copies consecutive bytes out of pieces, which it borrows. Threads: one thread at a time.
class PieceReader {
 public:
  // Starts at byte `offset`, which must be inside the pieces or at their end.
  PieceReader(Pieces pieces, int64_t offset)
      : pieces_(pieces), offset_(static_cast<size_t>(offset)) {
    while (index_ < pieces_.size() && offset_ >= pieces_[index_].size()) {
      offset_ -= pieces_[index_++].size();
    }
  }

  // Copies the next `bytes` bytes. That many must be left.
  void Read(int64_t bytes, std::byte* out) {
    for (size_t left = static_cast<size_t>(bytes); left > 0;) {
      const absl::Span<const std::byte> piece = pieces_[index_];
      const size_t n = std::min(left, piece.size() - offset_);
      if (n > 0) std::memcpy(out, piece.data() + offset_, n);
      out += n;
      left -= n;
      offset_ += n;
      if (offset_ == piece.size()) {
        ++index_;
        offset_ = 0;
      }
    }
  }

 private:
  Pieces pieces_;
  size_t index_ = 0;
  size_t offset_;
};

}  // namespace phasor

#endif  // PHASOR_KERNELS_TENSOR_PIECES_H_
