// SPDX-License-Identifier: Apache-2.0
// A program on its own terminal: what it draws, and keys for it.
#ifndef PHASOR_TESTS_SUPPORT_PTY_H_
#define PHASOR_TESTS_SUPPORT_PTY_H_

#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>
#include <utmp.h>

#include <functional>
#include <string>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace phasor::testing {

// Threads: one.
class Pty {
 public:
  // Forks; the child runs `program` with the terminal and exits with what it returns.
  Pty(int columns, int rows, const std::function<int()>& program) {
    const winsize size = WindowSize(columns, rows);
    EXPECT_EQ(openpty(&master_, &slave_, nullptr, nullptr, &size), 0);
    EXPECT_EQ(tcgetattr(slave_, &first_modes_), 0);
    child_ = fork();
    if (child_ != 0) return;
    // Nothing of the test's, such as a socket that others take for a server.
    if (login_tty(slave_) != 0 || close_range(3, ~0U, 0) != 0) _exit(99);
    _exit(program());
  }
  ~Pty() {
    if (child_ > 0) {
      kill(child_, SIGKILL);
      waitpid(child_, nullptr, 0);
    }
    close(master_);
    close(slave_);
  }
  Pty(const Pty&) = delete;
  Pty& operator=(const Pty&) = delete;

  void Send(const std::string& keys) {
    EXPECT_EQ(write(master_, keys.data(), keys.size()), static_cast<ssize_t>(keys.size()));
  }

  // The program is told, as by a terminal whose window changes.
  void Resize(int columns, int rows) {
    const winsize size = WindowSize(columns, rows);
    EXPECT_EQ(ioctl(master_, TIOCSWINSZ, &size), 0);
  }

  // What was drawn until `text` was, with it; all of it, if that does not come.
  std::string ReadUntil(const std::string& text) {
    const absl::Time deadline = absl::Now() + absl::Seconds(60);
    while (unread_.find(text) == std::string::npos && absl::Now() < deadline && ReadMore()) {
    }
    const size_t found = unread_.find(text);
    const size_t end = found == std::string::npos ? unread_.size() : found + text.size();
    const std::string read = unread_.substr(0, end);
    unread_.erase(0, end);
    return read;
  }

  // As waitpid has it, when the program has ended.
  int Wait() {
    const absl::Time deadline = absl::Now() + absl::Seconds(60);
    int status = 0;
    while (waitpid(child_, &status, WNOHANG) == 0) {
      if (absl::Now() > deadline) return -1;
      ReadMore();  // or it may wait for room
    }
    child_ = -1;
    while (ReadMore()) {
    }
    return status;
  }

  pid_t child() const { return child_; }
  const termios& first_modes() const { return first_modes_; }
  termios modes() const {
    termios modes = {};
    EXPECT_EQ(tcgetattr(slave_, &modes), 0);
    return modes;
  }

 private:
  static winsize WindowSize(int columns, int rows) {
    winsize size = {};
    size.ws_col = static_cast<unsigned short>(columns);
    size.ws_row = static_cast<unsigned short>(rows);
    return size;
  }

  // False: nothing came for a moment, and the program is gone.
  bool ReadMore() {
    pollfd output = {.fd = master_, .events = POLLIN};
    constexpr int kMomentMs = 20;
    if (poll(&output, 1, kMomentMs) <= 0) return child_ > 0;
    char text[4096];
    const ssize_t size = read(master_, text, sizeof(text));
    if (size > 0) unread_.append(text, static_cast<size_t>(size));
    return size > 0;
  }

  int master_ = -1;
  int slave_ = -1;  // kept open: its modes outlive the program
  termios first_modes_ = {};
  pid_t child_ = -1;
  std::string unread_;
};

}  // namespace phasor::testing

#endif  // PHASOR_TESTS_SUPPORT_PTY_H_
