// SPDX-License-Identifier: Apache-2.0
// Sends datagrams to systemd and reads which descriptors it has passed.
#include "server/net/systemd.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "absl/strings/numbers.h"
#include "server/base/file_descriptor.h"

namespace phasor {
namespace {

constexpr int kFirstPassed = 3;    // SD_LISTEN_FDS_START
constexpr int kMostPassed = 1024;  // far more than a service has
constexpr size_t kMostSent = 253;  // SCM_MAX_FD of Linux
constexpr int kForgetMs = 30000;

constexpr char kForget[] = "FDSTOREREMOVE=1\nFDNAME=phasor";
constexpr char kKeep[] = "FDSTORE=1\nFDNAME=phasor";

}  // namespace

std::vector<int> PassedDescriptors(const std::optional<std::string>& listen_pid,
                                   const std::optional<std::string>& listen_fds) {
  int pid = 0, count = 0;
  const bool given = absl::SimpleAtoi(listen_pid.value_or(""), &pid) &&
                     absl::SimpleAtoi(listen_fds.value_or(""), &count);
  if (!given || pid != getpid()) return {};
  std::vector<int> passed;
  for (int fd = kFirstPassed; fd < kFirstPassed + std::min(count, kMostPassed); ++fd) {
    if (fcntl(fd, F_SETFD, FD_CLOEXEC) == 0) passed.push_back(fd);
  }
  return passed;
}

bool NotifySystemd(const std::string& socket, const std::string& state,
                   const std::vector<int>& descriptors) {
  sockaddr_un address = {};
  if (socket.empty() || socket.size() >= sizeof(address.sun_path)) return false;
  if (descriptors.size() > kMostSent) return false;
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, socket.data(), socket.size());
  if (address.sun_path[0] == '@') address.sun_path[0] = '\0';  // an abstract address

  iovec text = {const_cast<char*>(state.data()), state.size()};
  const size_t bytes = descriptors.size() * sizeof(int);
  std::vector<char> control(CMSG_SPACE(bytes));
  msghdr message = {};
  message.msg_name = &address;
  message.msg_namelen = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + socket.size());
  message.msg_iov = &text;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* const head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(bytes);
    std::memcpy(CMSG_DATA(head), descriptors.data(), bytes);
  }
  const FileDescriptor fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  return sendmsg(fd.get(), &message, MSG_NOSIGNAL) == static_cast<ssize_t>(state.size());
}

bool KeepDescriptors(const std::string& socket, const std::vector<int>& descriptors) {
  return NotifySystemd(socket, kForget) && NotifySystemd(socket, kKeep, descriptors);
}

void ForgetDescriptors(const std::string& socket) {
  int ends[2];
  if (!NotifySystemd(socket, kForget) || pipe2(ends, O_CLOEXEC) != 0) return;
  const FileDescriptor read_end(ends[0]);
  FileDescriptor write_end(ends[1]);
  // systemd reads messages in order, and closes the descriptor of this one.
  const bool sent = NotifySystemd(socket, "BARRIER=1", {write_end.get()});
  write_end.Close();
  pollfd closed = {read_end.get(), 0, 0};
  if (sent) poll(&closed, 1, kForgetMs);
}

}  // namespace phasor
