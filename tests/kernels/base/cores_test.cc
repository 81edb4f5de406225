// SPDX-License-Identifier: Apache-2.0
// Tests the number of cores that a process may use.
#include "kernels/base/cores.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <string>
#include <thread>
#include <utility>

namespace phasor {
namespace {

TEST(CoresTest, AThreadOnOneCoreMayUseOne) {
  const int before = UsableCores();
  std::thread([] {
    cpu_set_t cores;
    ASSERT_EQ(sched_getaffinity(0, sizeof(cores), &cores), 0);
    int first = 0;
    while (!CPU_ISSET(first, &cores)) ++first;
    CPU_ZERO(&cores);
    CPU_SET(first, &cores);
    ASSERT_EQ(sched_setaffinity(0, sizeof(cores), &cores), 0);
    EXPECT_EQ(UsableCores(), 1);
  }).join();
  EXPECT_EQ(UsableCores(), before);
  EXPECT_GE(before, 1);
}

TEST(CoresTest, AQuotaIsRoundedUpToWholeCores) {
  const std::pair<std::string, int> quotas[] = {
      {"max 100000", kNoCoreLimit}, {"100000 100000", 1},
      {"100001 100000", 2},         {"1000 100000", 1},
      {"400000 100000", 4},         {"9223372036854775807 1", kNoCoreLimit},
      {"", kNoCoreLimit},           {"100000", kNoCoreLimit},
      {"0 100000", kNoCoreLimit},   {"100000 0", kNoCoreLimit},
      {"-1 100000", kNoCoreLimit}};
  for (const auto& [text, cores] : quotas) EXPECT_EQ(CoresOfQuota(text), cores) << text;
}

}  // namespace
}  // namespace phasor
