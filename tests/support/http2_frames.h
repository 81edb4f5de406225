// SPDX-License-Identifier: Apache-2.0
// Writes HTTP/2 frames by hand, for peers that violate the protocol.
#ifndef PHASOR_TESTS_SUPPORT_HTTP2_FRAMES_H_
#define PHASOR_TESTS_SUPPORT_HTTP2_FRAMES_H_

#include <sys/socket.h>

#include <cerrno>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "server/net/listen_socket.h"

namespace phasor::testing {

// What a connection begins with, and empty SETTINGS.
inline constexpr std::string_view kHello{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 33};

// The same, with SETTINGS that leave the other side no window to send messages in.
inline constexpr std::string_view kHelloWithoutWindow{
    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\6\4\0\0\0\0\0\0\4\0\0\0\0", 39};

enum class FrameType : uint8_t {
  kData = 0,
  kHeaders = 1,
  kReset = 3,
  kPing = 6,
  kWindowUpdate = 8,
  kContinuation = 9
};
inline constexpr uint8_t kEndStream = 1;
inline constexpr uint8_t kEndHeaders = 4;

// A frame of less than 16 MiB.
inline std::string Frame(FrameType type, uint8_t flags, const std::string& payload,
                         uint32_t stream = 1) {
  std::string frame(9, '\0');
  for (int i = 0; i < 3; ++i) frame[i] = static_cast<char>(payload.size() >> (16 - 8 * i));
  frame[3] = static_cast<char>(type);
  frame[4] = static_cast<char>(flags);
  for (int i = 0; i < 4; ++i) frame[5 + i] = static_cast<char>(stream >> (24 - 8 * i));
  return frame + payload;
}

inline constexpr char kEncodePath[] = "/phasor.v1.PositionEmbeddingService/Encode";

// A text of HPACK without Huffman's code.
inline std::string HpackText(const std::string& text) {
  if (text.size() < 127) return static_cast<char>(text.size()) + text;
  std::string length = "\x7f";
  size_t rest = text.size() - 127;
  for (; rest >= 128; rest /= 128) length += static_cast<char>(rest % 128 + 128);
  return length + static_cast<char>(rest) + text;
}

// The header block of a call.
inline std::string CallBlock(const std::string& path) {
  return "\x83\x86\x04" + HpackText(path) + std::string("\x01\x01x\0\x0c", 5) + "content-type\x10" +
         "application/grpc" + std::string("\0\x02te\x08trailers", 13);
}

// The headers of a call.
inline std::string CallHeaders(uint8_t flags, uint32_t stream = 1,
                               const std::string& path = kEncodePath) {
  return Frame(FrameType::kHeaders, flags, CallBlock(path), stream);
}

// A message of a call; `compressed`: marked as that.
inline std::string MessageData(const std::string& message, uint8_t flags, uint32_t stream = 1,
                               bool compressed = false) {
  std::string data(5, '\0');
  data[0] = compressed;
  for (int i = 0; i < 4; ++i) data[1 + i] = static_cast<char>(message.size() >> (24 - 8 * i));
  return Frame(FrameType::kData, flags, data + message, stream);
}

inline bool Send(const FileDescriptor& fd, std::string_view bytes) {
  return send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
         static_cast<ssize_t>(bytes.size());
}

// Waits until the other side has read all that was sent; answers to other pings count too.
inline bool WaitUntilRead(const FileDescriptor& fd) {
  const std::string eight("12345678");
  if (!Send(fd, Frame(FrameType::kPing, 0, eight, 0))) return false;
  std::string said;
  char part[4096];
  while (said.find(Frame(FrameType::kPing, 1, eight, 0)) == said.npos) {
    const ssize_t n = recv(fd.get(), part, sizeof(part), 0);
    if (n <= 0) return false;
    said.append(part, static_cast<size_t>(n));
  }
  return true;
}

// Calls that the other side has answered or ended, by what it said.
struct CallsSeen {
  std::set<uint32_t> answered;  // got a message
  std::set<uint32_t> ended;     // got their trailers or were reset
  std::string headers;          // of all of them, in HPACK
};

// Reads frames that have arrived until now; keeps the rest of the last one in `*rest`.
inline void ReadFrames(const FileDescriptor& fd, std::string* rest, CallsSeen* seen) {
  char part[65536];
  for (ssize_t n; (n = recv(fd.get(), part, sizeof(part), MSG_DONTWAIT)) > 0;) {
    rest->append(part, static_cast<size_t>(n));
  }
  const auto number = [&](size_t at, int bytes) {
    uint32_t value = 0;
    for (int i = 0; i < bytes; ++i) value = value << 8 | static_cast<uint8_t>((*rest)[at + i]);
    return value;
  };
  while (rest->size() >= 9 && rest->size() >= 9 + number(0, 3)) {
    const auto type = static_cast<FrameType>((*rest)[3]);
    const bool last = type == FrameType::kReset ||
                      (type == FrameType::kHeaders && ((*rest)[4] & kEndStream) != 0);
    if (type == FrameType::kHeaders) seen->headers.append(*rest, 9, number(0, 3));
    if (type == FrameType::kData) seen->answered.insert(number(5, 4));
    if (last) seen->ended.insert(number(5, 4));
    rest->erase(0, 9 + number(0, 3));
  }
}

// Whether the other side has hung up. Throws away what it said.
inline bool IsClosed(const FileDescriptor& fd) {
  char said[4096];
  ssize_t n = 0;
  while ((n = recv(fd.get(), said, sizeof(said), MSG_DONTWAIT)) > 0) {
  }
  return n == 0 || errno != EAGAIN;
}

}  // namespace phasor::testing

#endif  // PHASOR_TESTS_SUPPORT_HTTP2_FRAMES_H_
