// SPDX-License-Identifier: Apache-2.0
// HTTP/2 by hand, for peers that do not keep to it.
#ifndef PHASOR_TESTS_SUPPORT_HTTP2_FRAMES_H_
#define PHASOR_TESTS_SUPPORT_HTTP2_FRAMES_H_

#include <sys/socket.h>

#include <cerrno>
#include <cstdint>
#include <string>
#include <string_view>

#include "server/listen_socket.h"

namespace phasor::testing {

// What a connection begins with, and empty SETTINGS.
inline constexpr std::string_view kHello{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 33};

enum class FrameType : uint8_t { kData = 0, kHeaders = 1, kReset = 3, kPing = 6 };
inline constexpr uint8_t kEndHeaders = 4;

// A frame of less than 256 bytes.
inline std::string Frame(FrameType type, uint8_t flags, const std::string& payload,
                         uint32_t stream = 1) {
  std::string frame(9, '\0');
  frame[2] = static_cast<char>(payload.size());
  frame[3] = static_cast<char>(type);
  frame[4] = static_cast<char>(flags);
  for (int i = 0; i < 4; ++i) frame[5 + i] = static_cast<char>(stream >> (24 - 8 * i));
  return frame + payload;
}

// The headers of a unary call.
inline std::string CallHeaders(uint8_t flags, uint32_t stream = 1) {
  const std::string path = "/phasor.v1.PositionEmbeddingService/Encode";
  return Frame(FrameType::kHeaders, flags,
               "\x83\x86\x04" + std::string(1, static_cast<char>(path.size())) + path +
                   std::string("\x01\x01x\0\x0c", 5) + "content-type\x10" + "application/grpc" +
                   std::string("\0\x02te\x08trailers", 13),
               stream);
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
