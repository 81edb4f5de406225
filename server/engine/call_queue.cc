// SPDX-License-Identifier: Apache-2.0
// A list in order of arrival and a map in order of deadline over the same entries.
#include "server/engine/call_queue.h"

#include <iterator>
#include <utility>

namespace phasor::engine {

void CallQueue::Push(AdmittedCall call) {
  const absl::Time deadline = call.call->deadline;
  const auto entry = calls_.insert(calls_.end(), {std::move(call), deadlines_.end()});
  entry->deadline = deadlines_.emplace(deadline, entry);
}

AdmittedCall CallQueue::Pop() { return calls_.empty() ? AdmittedCall{} : Remove(calls_.begin()); }

std::vector<AdmittedCall> CallQueue::TakeExpired(absl::Time now) {
  std::vector<AdmittedCall> expired;
  while (next_deadline() <= now && !calls_.empty()) {
    expired.push_back(Remove(deadlines_.begin()->second));
  }
  return expired;
}

std::vector<AdmittedCall> CallQueue::TakeCancelled() {
  std::vector<AdmittedCall> cancelled;
  for (auto entry = calls_.begin(); entry != calls_.end();) {
    const auto next = std::next(entry);
    if (entry->admitted.call->cancelled()) cancelled.push_back(Remove(entry));
    entry = next;
  }
  return cancelled;
}

absl::Time CallQueue::next_deadline() const {
  return deadlines_.empty() ? absl::InfiniteFuture() : deadlines_.begin()->first;
}

AdmittedCall CallQueue::Remove(Entries::iterator entry) {
  AdmittedCall admitted = std::move(entry->admitted);
  deadlines_.erase(entry->deadline);
  calls_.erase(entry);
  return admitted;
}

}  // namespace phasor::engine
