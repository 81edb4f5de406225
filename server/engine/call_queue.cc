// SPDX-License-Identifier: Apache-2.0
// The queue of calls: a list of clients in the order of their turns, a list of calls for each
// client, and a map of all calls ordered by deadline.
#include "server/engine/call_queue.h"

#include <utility>

namespace phasor::engine {

void CallQueue::Push(AdmittedCall call) {
  const uint64_t id = call.client;
  const absl::Time deadline = call.call->deadline;
  work_bytes_ += call.call->work_bytes();
  auto [of, is_new] = client_of_.try_emplace(id);
  if (is_new) of->second = clients_.insert(clients_.end(), {id, {}});
  const Clients::iterator client = of->second;
  const auto entry =
      client->calls.insert(client->calls.end(), {std::move(call), client, deadlines_.end()});
  entry->deadline = deadlines_.emplace(deadline, entry);
}

AdmittedCall CallQueue::Pop() {
  if (clients_.empty()) return {};
  const Clients::iterator client = clients_.begin();
  clients_.splice(clients_.end(), clients_, client);
  return Remove(client->calls.begin());
}

std::vector<AdmittedCall> CallQueue::TakeExpired(absl::Time now) {
  std::vector<AdmittedCall> expired;
  while (size() > 0 && next_deadline() <= now) {
    expired.push_back(Remove(deadlines_.begin()->second));
  }
  return expired;
}

std::vector<AdmittedCall> CallQueue::TakeCancelled() {
  std::vector<AdmittedCall> cancelled;
  for (auto next = deadlines_.begin(); next != deadlines_.end();) {
    const Entries::iterator entry = (next++)->second;
    if (entry->admitted.call->cancelled()) cancelled.push_back(Remove(entry));
  }
  return cancelled;
}

absl::Time CallQueue::next_deadline() const {
  return deadlines_.empty() ? absl::InfiniteFuture() : deadlines_.begin()->first;
}

AdmittedCall CallQueue::Remove(Entries::iterator entry) {
  AdmittedCall admitted = std::move(entry->admitted);
  const Clients::iterator client = entry->client;
  work_bytes_ -= admitted.call->work_bytes();
  deadlines_.erase(entry->deadline);
  client->calls.erase(entry);
  if (client->calls.empty()) {
    client_of_.erase(client->id);
    clients_.erase(client);
  }
  return admitted;
}

}  // namespace phasor::engine
