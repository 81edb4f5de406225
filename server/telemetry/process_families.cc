// SPDX-License-Identifier: Apache-2.0
// Reads process metrics from /proc.
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "server/telemetry/families.h"

namespace phasor::telemetry {
namespace {

std::string FirstLine(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Field `index` of /proc/self/stat, counted from 1 as in proc(5). The second field, the program's
// name, is in parentheses and may contain anything.
std::optional<int64_t> StatField(int index) {
  const std::string line = FirstLine("/proc/self/stat");
  const size_t name_end = line.rfind(") ");
  if (name_end == std::string::npos) return std::nullopt;
  const std::vector<std::string> fields = absl::StrSplit(line.substr(name_end + 2), ' ');
  const size_t at = static_cast<size_t>(index) - 3;
  int64_t value = 0;
  if (at >= fields.size() || !absl::SimpleAtoi(fields[at], &value)) return std::nullopt;
  return value;
}

std::optional<double> BootTime() {
  std::ifstream file("/proc/stat");
  for (std::string key; file >> key;) {
    double seconds = 0;
    if (key == "btime" && file >> seconds) return seconds;
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return std::nullopt;
}

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

}  // namespace

std::vector<prometheus::MetricFamily> ProcessFamilies() {
  FamilyList list;
  rusage usage = {};
  if (getrusage(RUSAGE_SELF, &usage) == 0) {
    list.Counter("process_cpu_seconds_total", "Processor time, of user and system",
                 Seconds(usage.ru_utime) + Seconds(usage.ru_stime));
  }
  constexpr int kStartTime = 22;  // clock ticks after boot
  constexpr int kResidentPages = 24;
  const std::optional<int64_t> started = StatField(kStartTime);
  const std::optional<double> booted = BootTime();
  if (started.has_value() && booted.has_value()) {
    const auto ticks_per_second = static_cast<double>(sysconf(_SC_CLK_TCK));
    list.Gauge("process_start_time_seconds", "When the process started, as Unix time",
               *booted + static_cast<double>(*started) / ticks_per_second);
  }
  if (const std::optional<int64_t> pages = StatField(kResidentPages); pages.has_value()) {
    list.Gauge("process_resident_memory_bytes", "Resident memory",
               static_cast<double>(*pages) * static_cast<double>(sysconf(_SC_PAGESIZE)));
  }
  std::error_code error;
  const std::filesystem::directory_iterator open_files("/proc/self/fd", error);
  if (!error) {
    const auto count = std::distance(open_files, std::filesystem::directory_iterator());
    list.Gauge("process_open_fds", "Open file descriptors", count);
  }
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    list.Gauge("process_max_fds", "File descriptors that may be open", limit.rlim_cur);
  }
  return list.Take();
}

}  // namespace phasor::telemetry
