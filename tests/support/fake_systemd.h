// SPDX-License-Identifier: Apache-2.0
// FakeSystemd: reads the messages of a service as systemd does, and keeps descriptors for it.
#ifndef PHASOR_TESTS_SUPPORT_FAKE_SYSTEMD_H_
#define PHASOR_TESTS_SUPPORT_FAKE_SYSTEMD_H_

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/base/file_descriptor.h"
#include "server/base/mutex.h"

namespace phasor::testing {

// Owns its socket, a thread, and what it keeps. Threads: any.
class FakeSystemd {
 public:
  // `path` may begin with @: an abstract address.
  explicit FakeSystemd(const std::string& path)
      : path_(path), fd_(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    if (path[0] == '@') address.sun_path[0] = '\0';
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
    EXPECT_EQ(bind(fd_.get(), reinterpret_cast<const sockaddr*>(&address), length), 0) << path;
    thread_ = std::thread([this] { Read(); });
  }
  ~FakeSystemd() {
    shutdown(fd_.get(), SHUT_RDWR);
    thread_.join();
  }

  // NOTIFY_SOCKET.
  const std::string& path() const { return path_; }
  std::vector<std::string> messages() const {
    MutexLock lock(&mu_);
    return messages_;
  }
  // Duplicates of what it keeps, as a new process gets them.
  std::vector<FileDescriptor> Passed() const {
    MutexLock lock(&mu_);
    std::vector<FileDescriptor> passed;
    for (const FileDescriptor& kept : kept_) {
      passed.emplace_back(fcntl(kept.get(), F_DUPFD_CLOEXEC, 0));
    }
    return passed;
  }

 private:
  void Read() {
    char text[256];
    alignas(cmsghdr) char control[CMSG_SPACE(8 * sizeof(int))];
    while (true) {
      iovec into = {text, sizeof(text)};
      msghdr message = {};
      message.msg_iov = &into;
      message.msg_iovlen = 1;
      message.msg_control = control;
      message.msg_controllen = sizeof(control);
      const ssize_t bytes = recvmsg(fd_.get(), &message, MSG_CMSG_CLOEXEC);
      if (bytes <= 0) return;
      std::vector<FileDescriptor> came;
      if (const cmsghdr* const head = CMSG_FIRSTHDR(&message); head != nullptr) {
        for (size_t at = CMSG_LEN(0); at < head->cmsg_len; at += sizeof(int)) {
          int fd = -1;
          std::memcpy(&fd, reinterpret_cast<const char*>(head) + at, sizeof(fd));
          came.emplace_back(fd);
        }
      }
      Take(std::string(text, static_cast<size_t>(bytes)), std::move(came));
    }
  }

  void Take(const std::string& message, std::vector<FileDescriptor> came) {
    MutexLock lock(&mu_);
    messages_.push_back(message);
    if (message == "FDSTOREREMOVE=1\nFDNAME=phasor") kept_.clear();
    if (message != "FDSTORE=1\nFDNAME=phasor") return;
    for (FileDescriptor& fd : came) kept_.push_back(std::move(fd));
  }

  const std::string path_;
  const FileDescriptor fd_;
  mutable Mutex mu_;
  std::vector<std::string> messages_ ABSL_GUARDED_BY(mu_);
  std::vector<FileDescriptor> kept_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace phasor::testing

#endif  // PHASOR_TESTS_SUPPORT_FAKE_SYSTEMD_H_
