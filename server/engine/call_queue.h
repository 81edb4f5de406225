// SPDX-License-Identifier: Apache-2.0
// The queue of admitted calls that wait for a worker. Clients take turns; the calls of one client
// are first in, first out. Calls leave early if their deadline passes or their caller goes away.
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

// A call and its reserved bytes.
struct AdmittedCall {
  std::unique_ptr<Call> call;
  Permit permit;
  uint64_t client = 0;  // Call::client, read without a lock
  absl::Time queued_at = absl::InfinitePast();
};

// The queue. Owns its calls. Threads: the caller must hold a lock.
class CallQueue {
 public:
  void Push(AdmittedCall call);
  // Removes the oldest call of the client whose turn it is. `call` is nullptr if the queue is
  // empty.
  AdmittedCall Pop();
  // The call that Pop would remove; size() must be > 0.
  const Call& front() const { return *clients_.front().calls.front().admitted.call; }
  // Removes the calls whose deadline is `now` or earlier.
  std::vector<AdmittedCall> TakeExpired(absl::Time now);
  // Removes the calls whose caller is gone.
  std::vector<AdmittedCall> TakeCancelled();

  // The earliest deadline; infinite if the queue is empty.
  absl::Time next_deadline() const;
  // Sum over all calls.
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

  Clients clients_;  // the first one has the next turn
  std::unordered_map<uint64_t, Clients::iterator> client_of_;
  Deadlines deadlines_;  // all calls
  int64_t work_bytes_ = 0;
};

}  // namespace phasor::engine

#endif  // PHASOR_SERVER_ENGINE_CALL_QUEUE_H_
