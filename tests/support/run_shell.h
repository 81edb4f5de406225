// SPDX-License-Identifier: Apache-2.0
// Runs a command line as a user types it.
#ifndef PHASOR_TESTS_SUPPORT_RUN_SHELL_H_
#define PHASOR_TESTS_SUPPORT_RUN_SHELL_H_

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

namespace phasor::testing {

struct ShellOutcome {
  int status = -1;
  std::string text;  // stdout and stderr
};

// Runs `command` in a shell and waits for it.
inline ShellOutcome RunShell(const std::string& command) {
  ShellOutcome outcome;
  std::FILE* pipe = popen(("exec 2>&1; " + command).c_str(), "r");
  if (pipe == nullptr) return outcome;
  std::array<char, 4096> buffer;
  while (size_t size = std::fread(buffer.data(), 1, buffer.size(), pipe)) {
    outcome.text.append(buffer.data(), size);
  }
  outcome.status = WEXITSTATUS(pclose(pipe));
  return outcome;
}

}  // namespace phasor::testing

#endif  // PHASOR_TESTS_SUPPORT_RUN_SHELL_H_
