// SPDX-License-Identifier: Apache-2.0
// Counts admitted bytes in two atomic counters. A permit subtracts its bytes when it is destroyed.
#include "server/base/admission.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace phasor {

Permit& Permit::operator=(Permit&& other) noexcept {
  std::swap(budget_, other.budget_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Permit::~Permit() {
  if (bytes_ > 0) budget_->fetch_sub(bytes_, std::memory_order_relaxed);
}

Permit Permit::Split(int64_t bytes) {
  const int64_t part = std::min(bytes, bytes_);
  bytes_ -= part;
  return Permit(budget_, part);
}

absl::StatusOr<Permit> Admission::Take(int64_t bytes, int64_t held) {
  const int64_t limit = limit_.load(std::memory_order_relaxed);
  if (bytes > limit) {
    return absl::ResourceExhaustedError(absl::StrCat("request and response: ", bytes,
                                                     " bytes together; must be at most ", limit,
                                                     " (--max-inflight-bytes)"));
  }
  const int64_t others_hold = held_->load(std::memory_order_relaxed) - held;
  const int64_t free_for_all = std::max(limit - others_hold, limit / 2);
  int64_t taken = taken_->load(std::memory_order_relaxed);
  do {
    if (bytes > free_for_all - taken && taken > 0) {
      return absl::UnavailableError(absl::StrCat("server: ", taken + others_hold, " of ", limit,
                                                 " bytes are in flight and this call needs ", bytes,
                                                 "; try again"));
    }
  } while (!taken_->compare_exchange_weak(taken, taken + bytes, std::memory_order_relaxed));
  return Permit(taken_, bytes);
}

Permit Admission::Hold(int64_t bytes) {
  held_->fetch_add(bytes, std::memory_order_relaxed);
  return Permit(held_, bytes);
}

}  // namespace phasor
