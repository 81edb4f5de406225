// SPDX-License-Identifier: Apache-2.0
// Which of the threads that gRPC 1.51 starts for callbacks are asleep.
#ifndef PHASOR_TESTS_SUPPORT_CALLBACK_THREADS_H_
#define PHASOR_TESTS_SUPPORT_CALLBACK_THREADS_H_

#include <sys/syscall.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/eventually.h"

namespace phasor::testing {

struct CallbackThreadCount {
  int all = 0, asleep = 0;
};

// Of the process `pid`, which may be "self". Those in clock_nanosleep are asleep: they wake by
// themselves only.
inline CallbackThreadCount CountCallbackThreads(const std::string& pid) {
  CallbackThreadCount count;
  for (const auto& task : std::filesystem::directory_iterator("/proc/" + pid + "/task")) {
    std::string name;
    long call = -1;
    std::ifstream(task.path() / "comm") >> name;
    std::ifstream(task.path() / "syscall") >> call;
    if (name != "nexting_thread") continue;
    ++count.all;
    count.asleep += call == SYS_clock_nanosleep;
  }
  return count;
}

inline bool AllCallbackThreadsSleep(const std::string& pid) {
  const CallbackThreadCount threads = CountCallbackThreads(pid);
  return threads.all == threads.asleep;
}

// Whether, for three seconds, one of them is awake at any time. Lets the threads settle first.
inline bool OneCallbackThreadIsAlwaysAwake(const std::string& pid) {
  const auto all_sleep = [&pid] { return AllCallbackThreadsSleep(pid); };
  return Eventually([&] { return !Eventually(all_sleep, absl::Seconds(3)); }, absl::Seconds(30));
}

}  // namespace phasor::testing

#endif  // PHASOR_TESTS_SUPPORT_CALLBACK_THREADS_H_
