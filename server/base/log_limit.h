// SPDX-License-Identifier: Apache-2.0
// Limits how many lines per second refused strangers can add to the log.
#ifndef PHASOR_SERVER_BASE_LOG_LIMIT_H_
#define PHASOR_SERVER_BASE_LOG_LIMIT_H_

#include <cstdint>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "server/base/mutex.h"

namespace phasor {

// A limit on lines per second. Threads: any.
class LogLimit {
 public:
  explicit LogLimit(int64_t lines_per_second) : lines_per_second_(lines_per_second) {}

  // If a line may be written now, returns how many were left out since the last written one;
  // otherwise nullopt.
  std::optional<int64_t> Admit(absl::Time now);

 private:
  const int64_t lines_per_second_;
  Mutex mu_;
  absl::Time second_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();  // when it began
  int64_t lines_ ABSL_GUARDED_BY(mu_) = 0;                         // written in that second
  int64_t left_out_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace phasor

#endif  // PHASOR_SERVER_BASE_LOG_LIMIT_H_
