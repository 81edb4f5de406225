// SPDX-License-Identifier: Apache-2.0
// Makes room, and moves what follows a length of several bytes.
#include "proto/field_writer.h"

#include <algorithm>
#include <utility>

namespace phasor {

FieldWriter::FieldWriter(size_t bytes, std::string begun) : text_(std::move(begun)) {
  const size_t written = text_.size();
  text_.resize(written + bytes);
  at_ = text_.data() + written;
  end_ = text_.data() + text_.size();
}

std::string FieldWriter::Finish() && {
  text_.resize(static_cast<size_t>(at_ - text_.data()));
  return std::move(text_);
}

void FieldWriter::Grow(size_t bytes) {
  const auto written = static_cast<size_t>(at_ - text_.data());
  text_.resize(std::max(2 * text_.size(), written + bytes));
  at_ = text_.data() + written;
  end_ = text_.data() + text_.size();
}

void FieldWriter::WriteLength(size_t at, size_t bytes) {
  size_t more = 0;
  for (size_t rest = bytes >> 7; rest > 0; rest >>= 7) ++more;
  MakeRoom(more);
  char* const length = text_.data() + at;
  std::memmove(length + 1 + more, length + 1, bytes);
  at_ = length;
  Put(bytes);
  at_ += bytes;
}

}  // namespace phasor
