// SPDX-License-Identifier: Apache-2.0
// MessageFrames: counts the DATA frames in which the messages of a connection arrive.
#ifndef PHASOR_SERVER_NET_MESSAGE_FRAMES_H_
#define PHASOR_SERVER_NET_MESSAGE_FRAMES_H_

#include <cstddef>
#include <cstdint>
#include <map>

#include "absl/types/span.h"

namespace phasor {

// A message may arrive in so many frames, and one more for so many bytes that have arrived.
inline constexpr int64_t kFreeFramesOfMessage = 1000;
inline constexpr int64_t kBytesOfFrame = 64;

// Until a message has ended, gRPC keeps a record of 32 bytes and the head of each of its frames.
// So a message in frames of one byte would cost forty times its bytes. Threads: one at a time.
class MessageFrames {
 public:
  // A DATA frame of `bytes` bytes begins; `last`: its stream ends with it. Returns what the client
  // did wrong; nullptr: nothing so far.
  const char* Begin(uint32_t stream, int64_t bytes, bool last);
  // The next bytes of the frame that has begun, none beyond it.
  void Read(absl::Span<const uint8_t> bytes);
  // The client has reset the stream.
  void Forget(uint32_t stream) { messages_.erase(stream); }

 private:
  static constexpr size_t kMostMessages = 1024;  // that have not ended
  static constexpr int64_t kPrefixBytes = 5;     // before each message: a flag and its size

  struct Message {
    int64_t bytes = 0;  // that have arrived, of prefix and message
    int64_t size = 0;   // of the message, as far as the prefix has arrived
    int64_t frames = 0;
  };

  void End();

  // By stream. Those that the server has ended stay: when there are too many, the oldest go.
  std::map<uint32_t, Message> messages_;
  Message message_;  // of the frame that has begun
  uint32_t stream_ = 0;
  int64_t left_ = 0;  // bytes of the frame
  bool last_ = false;
};

}  // namespace phasor

#endif  // PHASOR_SERVER_NET_MESSAGE_FRAMES_H_
