// SPDX-License-Identifier: Apache-2.0
// Reads bytes that arrived in several pieces as if they were contiguous.
#ifndef PHASOR_KERNELS_TENSOR_PIECES_H_
#define PHASOR_KERNELS_TENSOR_PIECES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "absl/types/span.h"

namespace phasor {

using Pieces = absl::Span<const absl::Span<const std::byte>>;

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
