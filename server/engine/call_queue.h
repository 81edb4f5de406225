// SPDX-License-Identifier: Apache-2.0
// Admitted calls that wait for a worker: first in, first out, except that calls leave early when
// their deadline passes or their caller goes away.
#ifndef PHASOR_SERVER_ENGINE_CALL_QUEUE_H_
#define PHASOR_SERVER_ENGINE_CALL_QUEUE_H_

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "server/engine/admission.h"
#include "server/engine/call.h"

namespace phasor::engine {

// A call and the bytes that it holds.
struct AdmittedCall {
  std::unique_ptr<Call> call;
  Permit permit;
};

// Threads: none; the caller locks. Owns the calls in it.
class CallQueue {
 public:
  void Push(AdmittedCall call);
  // The oldest call; its `call` is nullptr when the queue is empty.
  AdmittedCall Pop();
  // Removes the calls whose deadline is `now` or before.
  std::vector<AdmittedCall> TakeExpired(absl::Time now);
  // Removes the calls whose caller is gone.
  std::vector<AdmittedCall> TakeCancelled();

  // The first deadline of all; infinite when the queue is empty.
  absl::Time next_deadline() const;
  // What the oldest call costs; size() > 0.
  int64_t front_cost() const { return calls_.front().admitted.call->cost_bytes; }
  int64_t size() const { return static_cast<int64_t>(calls_.size()); }

 private:
  struct Entry;
  using Entries = std::list<Entry>;
  using Deadlines = std::multimap<absl::Time, Entries::iterator>;
  struct Entry {
    AdmittedCall admitted;
    Deadlines::iterator deadline;
  };

  AdmittedCall Remove(Entries::iterator entry);

  Entries calls_;
  Deadlines deadlines_;
};

}  // namespace phasor::engine

#endif  // PHASOR_SERVER_ENGINE_CALL_QUEUE_H_
