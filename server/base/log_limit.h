// SPDX-License-Identifier: Apache-2.0
// Keeps a stranger from filling the log with what is refused to him.
#ifndef PHASOR_SERVER_BASE_LOG_LIMIT_H_
#define PHASOR_SERVER_BASE_LOG_LIMIT_H_

#include <cstdint>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "server/base/mutex.h"

namespace phasor {

// Threads: any.
class LogLimit {
 public:
  explicit LogLimit(int64_t lines_per_second) : lines_per_second_(lines_per_second) {}

  // Whether a line may be written now: then how many were not since the last one that was.
  std::optional<int64_t> Admit(absl::Time now);

 private:
  const int64_t lines_per_second_;
  Mutex mu_;
  absl::Time second_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();  // that began then
  int64_t lines_ ABSL_GUARDED_BY(mu_) = 0;                         // in it
  int64_t left_out_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace phasor

#endif  // PHASOR_SERVER_BASE_LOG_LIMIT_H_
