// SPDX-License-Identifier: Apache-2.0
// Counts log lines per second.
#include "server/base/log_limit.h"

#include <utility>

namespace phasor {

std::optional<int64_t> LogLimit::Admit(absl::Time now) {
  MutexLock lock(&mu_);
  if (now - second_ >= absl::Seconds(1) || now < second_) {  // or the clock was set back
    second_ = now;
    lines_ = 0;
  }
  if (lines_ >= lines_per_second_) {
    ++left_out_;
    return std::nullopt;
  }
  ++lines_;
  return std::exchange(left_out_, 0);
}

}  // namespace phasor
