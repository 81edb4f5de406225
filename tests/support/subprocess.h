// SPDX-License-Identifier: Apache-2.0
// Runs a program, and returns its output and exit status.
#ifndef PHASOR_TESTS_SUPPORT_SUBPROCESS_H_
#define PHASOR_TESTS_SUPPORT_SUBPROCESS_H_

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "server/net/listen_socket.h"

namespace phasor::testing {

// Threads: one. Kills the program at the end if it still runs.
class Subprocess {
 public:
  // Starts arguments[0] with standard output and error going to `output()`.
  explicit Subprocess(std::vector<std::string> arguments) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return;
    output_ = FileDescriptor(ends[0]);
    const FileDescriptor input(ends[1]);
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ != 0) return;
    dup2(input.get(), STDOUT_FILENO);
    dup2(input.get(), STDERR_FILENO);
    execv(argv[0], argv.data());
    _exit(127);
  }
  Subprocess(const Subprocess&) = delete;
  Subprocess& operator=(const Subprocess&) = delete;
  ~Subprocess() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

  pid_t pid() const { return pid_; }
  void Signal(int signal) const { kill(pid_, signal); }

  // The next line; empty at the end of the output.
  std::string ReadLine() {
    std::string line;
    for (char c = 0; read(output_.get(), &c, 1) == 1 && c != '\n';) line.push_back(c);
    return line;
  }
  std::string ReadAll() {
    std::string all;
    for (char c = 0; read(output_.get(), &c, 1) == 1;) all.push_back(c);
    return all;
  }

  // Whether it has ended; its status waits for Wait.
  bool HasEnded() const {
    siginfo_t info = {};
    return waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == pid_;
  }
  // Waits for the end: exit status, or 128 + signal.
  int Wait() {
    int status = 0;
    waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  FileDescriptor output_;
  pid_t pid_ = -1;
};

}  // namespace phasor::testing

#endif  // PHASOR_TESTS_SUPPORT_SUBPROCESS_H_
