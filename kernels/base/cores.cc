// SPDX-License-Identifier: Apache-2.0
// Asks the kernel for the thread's cores, and the files of its control group for a limit.
#include "kernels/base/cores.h"

#include <sched.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

namespace phasor {
namespace {

int BoundCores() {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof(cores), &cores) == 0) return CPU_COUNT(&cores);
  return static_cast<int>(std::thread::hardware_concurrency());  // more than the set can hold
}

// The control group of this process, as a path in the mounted hierarchy. Empty: the root, or none.
std::string ControlGroup() {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("0::")) continue;
    if (line.ends_with('/')) line.pop_back();
    return line.substr(3);
  }
  return "";
}

// The least limit of the group and of the groups around it.
int LimitOfGroups() {
  int cores = kNoCoreLimit;
  std::string group = ControlGroup();
  while (true) {
    std::ifstream file("/sys/fs/cgroup" + group + "/cpu.max");
    if (std::string line; std::getline(file, line)) cores = std::min(cores, CoresOfQuota(line));
    if (group.empty()) return cores;
    group.resize(std::min(group.rfind('/'), group.size() - 1));
  }
}

}  // namespace

int UsableCores() { return std::max(1, std::min(BoundCores(), LimitOfGroups())); }

int CoresOfQuota(const std::string& cpu_max) {
  std::istringstream in(cpu_max);
  int64_t quota = 0, period = 0;
  if (!(in >> quota >> period) || quota <= 0 || period <= 0) return kNoCoreLimit;
  return static_cast<int>(std::min<int64_t>((quota - 1) / period + 1, kNoCoreLimit));
}

}  // namespace phasor
