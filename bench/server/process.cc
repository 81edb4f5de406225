// SPDX-License-Identifier: Apache-2.0
// Starts and ends the child processes of the RPC benchmark.
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "bench/harness.h"
#include "bench/server/servers.h"

namespace phasor::bench {

TemporaryDirectory::TemporaryDirectory() {
  if (mkdtemp(path_) == nullptr) Die("no temporary directory");
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

Process::Process(const std::vector<std::string>& command) {
  int input[2];
  int output[2];
  if (pipe2(input, O_CLOEXEC) != 0 || pipe2(output, O_CLOEXEC) != 0) Die("no pipe");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, input[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output[1], STDOUT_FILENO);
  std::vector<char*> arguments;
  for (const std::string& argument : command)
    arguments.push_back(const_cast<char*>(argument.data()));
  arguments.push_back(nullptr);
  const int error = posix_spawn(&pid_, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) Die(absl::StrCat(command[0], ": ", std::strerror(error)));
  close(input[0]);
  close(output[1]);
  to_child_ = input[1];
  from_child_ = output[0];
}

double Process::CpuSeconds() const {
  clockid_t clock;
  timespec used;
  if (clock_getcpuclockid(pid_, &clock) != 0 || clock_gettime(clock, &used) != 0) {
    Die("no processor time of a child");
  }
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

Process::~Process() {
  close(to_child_);
  close(from_child_);
  kill(pid_, SIGTERM);
  waitpid(pid_, nullptr, 0);
}

std::string Process::ReadLine() {
  std::string line;
  for (char c = 0; read(from_child_, &c, 1) == 1;) {
    if (c == '\n') return line;
    line.push_back(c);
  }
  Die("a server ended before it served");
}

int64_t Process::PeakBytes() const {
  std::ifstream status(absl::StrCat("/proc/", pid_, "/status"));
  for (std::string line; std::getline(status, line);) {
    if (absl::StartsWith(line, "VmHWM:")) return std::atoll(line.c_str() + 6) * 1024;
  }
  Die("no VmHWM");
}

ChildServer::ChildServer(const std::string& kind, const std::string& directory, int64_t reply_bytes)
    : unix_(absl::StrCat("unix:", directory, "/", kind, ".sock")),
      process_({"/proc/self/exe", "--serve", kind, unix_, std::to_string(reply_bytes)}),
      tcp_(process_.ReadLine()) {}

}  // namespace phasor::bench
