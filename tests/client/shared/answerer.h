// SPDX-License-Identifier: Apache-2.0
// A lease socket of the test, which may answer anything.
#ifndef PHASOR_TESTS_CLIENT_SHARED_ANSWERER_H_
#define PHASOR_TESTS_CLIENT_SHARED_ANSWERER_H_

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"

namespace phasor::client_internal {

inline int ListenAt(const std::string& path, int backlog) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  EXPECT_EQ(bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_EQ(listen(listener, backlog), 0);
  return listener;
}

// Does what a client should not wait for: when this is destroyed, or after 4 s, so that a client
// that waits gets what it waits for.
class Later {
 public:
  explicit Later(std::function<void()> task)
      : thread_([this, task = std::move(task)] {
          ended_.WaitForNotificationWithTimeout(absl::Seconds(4));
          task();
        }) {}
  ~Later() {
    ended_.Notify();
    thread_.join();
  }

 private:
  absl::Notification ended_;
  std::thread thread_;
};

// Accepts one connection, answers its requests one by one, then closes. Answer `held` is sent only
// after `release`.
class Answerer {
 public:
  Answerer(const std::string& path, std::vector<std::string> answers,
           absl::Notification* release = nullptr, size_t held = 0) {
    listener_ = ListenAt(path, /*backlog=*/1);
    thread_ = std::thread([this, answers = std::move(answers), release, held] {
      const int fd = accept(listener_, nullptr, nullptr);
      const timeval limit = {20, 0};  // so that a request that does not come is a failure
      setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
      for (size_t i = 0; i < answers.size(); ++i) {
        char request[256];
        const ssize_t n = recv(fd, request, sizeof(request), 0);
        if (n <= 0) break;
        requests_.emplace_back(request, static_cast<size_t>(n));
        if (release != nullptr && i == held) release->WaitForNotification();
        send(fd, answers[i].data(), answers[i].size(), MSG_NOSIGNAL);
      }
      close(fd);
    });
  }
  ~Answerer() {
    if (thread_.joinable()) thread_.join();
    close(listener_);
  }
  // The requests, when all are answered.
  std::vector<std::string> Requests() {
    thread_.join();
    return requests_;
  }

 private:
  int listener_ = -1;
  std::vector<std::string> requests_;  // used by `thread_`
  std::thread thread_;
};

}  // namespace phasor::client_internal

#endif  // PHASOR_TESTS_CLIENT_SHARED_ANSWERER_H_
