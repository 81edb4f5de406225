// SPDX-License-Identifier: Apache-2.0
// Follows the prefixes of gRPC's messages through DATA frames.
#include "server/net/message_frames.h"

#include <algorithm>

namespace phasor {

const char* MessageFrames::Begin(uint32_t stream, int64_t bytes, bool last) {
  const auto begun = messages_.find(stream);
  message_ = begun == messages_.end() ? Message() : begun->second;
  stream_ = stream;
  left_ = bytes;
  last_ = last;
  if (++message_.frames > kFreeFramesOfMessage + message_.bytes / kBytesOfFrame) {
    return "a message in tiny frames";
  }
  if (left_ == 0) End();
  return nullptr;
}

void MessageFrames::Read(absl::Span<const uint8_t> bytes) {
  left_ -= static_cast<int64_t>(bytes.size());
  while (!bytes.empty()) {
    size_t n = 1;
    if (message_.bytes >= kPrefixBytes) {
      const int64_t missing = kPrefixBytes + message_.size - message_.bytes;
      n = static_cast<size_t>(std::min(static_cast<int64_t>(bytes.size()), missing));
    } else if (message_.bytes > 0) {
      message_.size = message_.size << 8 | bytes[0];
    }
    message_.bytes += static_cast<int64_t>(n);
    bytes.remove_prefix(n);
    // The next message, if there is one, has a part of this frame.
    if (message_.bytes >= kPrefixBytes && message_.bytes == kPrefixBytes + message_.size) {
      message_ = {.frames = 1};
    }
  }
  if (left_ == 0) End();
}

void MessageFrames::End() {
  if (last_ || message_.bytes == 0) {
    messages_.erase(stream_);
    return;
  }
  messages_[stream_] = message_;
  if (messages_.size() > kMostMessages) messages_.erase(messages_.begin());
}

}  // namespace phasor
