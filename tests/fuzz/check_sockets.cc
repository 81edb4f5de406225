// SPDX-License-Identifier: Apache-2.0
// Keeps one server of each protocol, and connects to it for every input.
#include "tests/fuzz/check_sockets.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "server/base/file_descriptor.h"
#include "server/memory/lease_socket.h"
#include "server/net/listen_socket.h"
#include "server/telemetry/page_server.h"

namespace phasor::fuzz {
namespace {

constexpr int kMostSeconds = 10;  // until the server has hung up; longer only when it hangs

std::string SocketPath(const char* what) {
  return absl::StrCat("/tmp/phasor_fuzz_", getpid(), "_", what);
}

template <typename T>
T OrDie(absl::StatusOr<T> made) {
  if (made.ok()) return *std::move(made);
  std::fprintf(stderr, "%s\n", made.status().ToString().c_str());
  std::abort();
}

FileDescriptor ConnectTo(const std::string& path) {
  FileDescriptor fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  const timeval timeout = {kMostSeconds, 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) fd.Close();
  return fd;
}

// Sends what it can; the server may have hung up.
void Send(int to, std::string_view bytes, const std::vector<int>& descriptors) {
  iovec part = {const_cast<char*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(4 * sizeof(int))> control = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(descriptors.size() * sizeof(int));
    cmsghdr* const rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(descriptors.size() * sizeof(int));
    std::memcpy(CMSG_DATA(rights), descriptors.data(), descriptors.size() * sizeof(int));
  }
  static_cast<void>(sendmsg(to, &message, MSG_NOSIGNAL));
}

// What the server says until it hangs up. Returns false if it does not.
bool ReadToEnd(int from, std::string* said) {
  char part[4096];
  ssize_t n;
  while ((n = recv(from, part, sizeof(part), 0)) > 0) said->append(part, static_cast<size_t>(n));
  return n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
}

// Memory that can be leased, and some that cannot.
std::vector<int> Memories() {
  std::vector<int> fds;
  for (const int seals : {F_SEAL_SHRINK, F_SEAL_SHRINK | F_SEAL_GROW, 0}) {
    fds.push_back(memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (posix_fallocate(fds.back(), 0, 100) != 0 ||
        (seals != 0 && fcntl(fds.back(), F_ADD_SEALS, seals) != 0)) {
      std::abort();
    }
  }
  fds.push_back(open("/dev/null", O_RDWR | O_CLOEXEC));
  return fds;
}

struct Leases {
  const std::string path = SocketPath("lease");
  const std::vector<ListenSocket> listener =
      OrDie(Listen(std::vector<std::string>{"unix:" + path}));
  memory::LeaseStore store{{.max_bytes = 250, .max_pieces = 3}};
  memory::LeaseSocket socket{listener[0].fd(), &store};
  const std::vector<int> memories = Memories();
};

struct Pages {
  const std::string path = SocketPath("page");
  const std::unique_ptr<telemetry::PageServer> server =
      OrDie(telemetry::PageServer::Start({{"unix:" + path}, "/metrics", [](std::string_view) {
                                            return telemetry::Page{"text/plain", "page"};
                                          }}));
};

}  // namespace

ParserOutcome CheckLeaseLines(std::string_view bytes) {
  static Leases leases;
  if (bytes.empty()) return {};
  const auto how = static_cast<uint8_t>(bytes[0]);
  bytes.remove_prefix(1);
  const FileDescriptor fd = ConnectTo(leases.path);
  std::vector<int> descriptors;
  for (int i = 0; i < (how & 3); ++i) descriptors.push_back(leases.memories[((how >> 2) + i) & 3]);
  const size_t cut = bytes.size() * (how >> 4) / 16;
  if (cut > 0) Send(fd.get(), bytes.substr(0, cut), descriptors);
  if (cut < bytes.size()) Send(fd.get(), bytes.substr(cut), descriptors);
  shutdown(fd.get(), SHUT_WR);
  std::string said;
  if (!ReadToEnd(fd.get(), &said)) return {"the connection stays open"};
  if (const int64_t left = leases.store.stats().pieces; left != 0) {
    return {absl::StrCat(left, " leases stay")};
  }
  bool leased = false;
  for (const absl::string_view line : absl::StrSplit(said, '\n', absl::SkipEmpty())) {
    const bool ok = line == "OK" || absl::StartsWith(line, "OK ");
    leased = leased || ok;
    if (!ok && !absl::StrContains(line, ": "))
      return {absl::StrCat("an answer of no form: ", line)};
  }
  return {"", leased};
}

ParserOutcome CheckPages(std::string_view bytes) {
  static Pages pages;
  const FileDescriptor fd = ConnectTo(pages.path);
  if (!bytes.empty()) Send(fd.get(), bytes, {});
  shutdown(fd.get(), SHUT_WR);
  std::string said;
  if (!ReadToEnd(fd.get(), &said)) return {"the connection stays open"};
  if (!said.empty() && !absl::StartsWith(said, "HTTP/1.1 ")) return {"an answer that is no HTTP"};
  if (!said.empty() && !absl::StrContains(said, "\r\n\r\n")) return {"an answer without end"};
  return {"", absl::StartsWith(said, "HTTP/1.1 200 ")};
}

}  // namespace phasor::fuzz
