// SPDX-License-Identifier: Apache-2.0
// Admitted calls that wait for a worker: clients take turns, the calls of one are first in, first
// out, except that calls leave early when their deadline passes or their caller goes away.
#ifndef PHASOR_SERVER_ENGINE_CALL_QUEUE_H_
#define PHASOR_SERVER_ENGINE_CALL_QUEUE_H_

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "absl/time/time.h"
#include "server/base/admission.h"
#include "server/engine/call.h"

namespace phasor::engine {

// A call and the bytes that it holds.
struct AdmittedCall {
  std::unique_ptr<Call> call;
  Permit permit;
  uint64_t client = 0;  // Call::client, asked without a lock
  absl::Time queued_at = absl::InfinitePast();
};

// Threads: none; the caller locks. Owns the calls in it.
class CallQueue {
 public:
  void Push(AdmittedCall call);
  // The oldest call of the client whose turn it is; its `call` is nullptr when the queue is empty.
  AdmittedCall Pop();
  // The call that Pop takes; size() > 0.
  const Call& front() const { return *clients_.front().calls.front().admitted.call; }
  // Removes the calls whose deadline is `now` or before.
  std::vector<AdmittedCall> TakeExpired(absl::Time now);
  // Removes the calls whose caller is gone.
  std::vector<AdmittedCall> TakeCancelled();

  // The first deadline of all; infinite when the queue is empty.
  absl::Time next_deadline() const;
  // Of all calls.
  int64_t work_bytes() const { return work_bytes_; }
  int64_t size() const { return static_cast<int64_t>(deadlines_.size()); }

 private:
  struct Entry;
  using Entries = std::list<Entry>;
  struct Client {
    uint64_t id = 0;
    Entries calls;  // not empty
  };
  using Clients = std::list<Client>;
  using Deadlines = std::multimap<absl::Time, Entries::iterator>;
  struct Entry {
    AdmittedCall admitted;
    Clients::iterator client;
    Deadlines::iterator deadline;
  };

  AdmittedCall Remove(Entries::iterator entry);

  Clients clients_;  // the next turn is the first's
  std::unordered_map<uint64_t, Clients::iterator> client_of_;
  Deadlines deadlines_;  // of all calls
  int64_t work_bytes_ = 0;
};

}  // namespace phasor::engine

#endif  // PHASOR_SERVER_ENGINE_CALL_QUEUE_H_
