// SPDX-License-Identifier: Apache-2.0
// Memory of another process, as the kernel counts it.
#ifndef PHASOR_TESTS_SUPPORT_PROCESS_MEMORY_H_
#define PHASOR_TESTS_SUPPORT_PROCESS_MEMORY_H_

#include <gtest/gtest.h>
#include <sys/types.h>

#include <cstdint>
#include <fstream>
#include <string>

namespace phasor::testing {

inline constexpr int64_t kMiB = int64_t{1} << 20;

// A line of /proc/<pid>/status, in bytes: VmRSS (resident now), VmHWM (at most so far).
inline int64_t MemoryOf(pid_t pid, const std::string& name) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  std::string line;
  while (std::getline(status, line)) {
    if (line.rfind(name + ":", 0) == 0) return std::atoll(line.c_str() + name.size() + 1) * 1024;
  }
  ADD_FAILURE() << "no " << name;
  return 0;
}

}  // namespace phasor::testing

#endif  // PHASOR_TESTS_SUPPORT_PROCESS_MEMORY_H_
