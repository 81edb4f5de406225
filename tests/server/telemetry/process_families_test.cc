// SPDX-License-Identifier: Apache-2.0
// Tests the process_ metrics.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <ctime>
#include <map>
#include <string>
#include <vector>

#include "server/net/listen_socket.h"
#include "server/telemetry/families.h"

namespace phasor::telemetry {
namespace {

std::map<std::string, double> Values() {
  std::map<std::string, double> values;
  for (const prometheus::MetricFamily& family : ProcessFamilies()) {
    const prometheus::ClientMetric& metric = family.metric.at(0);
    values[family.name] =
        family.type == prometheus::MetricType::Counter ? metric.counter.value : metric.gauge.value;
  }
  return values;
}

TEST(ProcessFamiliesTest, OpenFilesAreCounted) {
  const double before = Values().at("process_open_fds");
  std::vector<FileDescriptor> files;
  for (int i = 0; i < 7; ++i) files.emplace_back(open("/dev/null", O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(Values().at("process_open_fds"), before + 7);
  EXPECT_GE(Values().at("process_max_fds"), before + 7);
}

TEST(ProcessFamiliesTest, MemoryThatIsTouchedShows) {
  const double before = Values().at("process_resident_memory_bytes");
  constexpr size_t kBytes = size_t{64} << 20;
  const std::vector<char> memory(kBytes, 'x');
  EXPECT_GT(Values().at("process_resident_memory_bytes"), before + 0.9 * kBytes);
  EXPECT_EQ(memory.back(), 'x');
}

TEST(ProcessFamiliesTest, TheProcessStartedLatelyAndUsesTheProcessor) {
  const auto now = static_cast<double>(std::time(nullptr));
  EXPECT_NEAR(Values().at("process_start_time_seconds"), now, 600);
  const double before = Values().at("process_cpu_seconds_total");
  volatile double sink = 0;
  while (Values().at("process_cpu_seconds_total") < before + 0.05) sink = sink + 1;
}

}  // namespace
}  // namespace phasor::telemetry
