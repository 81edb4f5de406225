// SPDX-License-Identifier: Apache-2.0
// Leases: sealed memory of clients, by token. Whoever knows a token may use the memory, so tokens
// are random and told only to the client that leased. Does not use sockets or gRPC.
#ifndef PHASOR_SERVER_MEMORY_LEASE_STORE_H_
#define PHASOR_SERVER_MEMORY_LEASE_STORE_H_

#include <memory>
#include <string>
#include <unordered_map>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "server/base/mutex.h"
#include "server/memory/owner_quotas.h"
#include "server/memory/sealed_memory.h"

namespace phasor::memory {

// The leases of a server. A call keeps the memory that it uses mapped, also if the lease ends.
// Threads: any.
class LeaseStore {
 public:
  explicit LeaseStore(OwnerLimits limits);

  // A random name of this store. A client that knows two addresses can see from it whether both
  // lead to the same server.
  const std::string& instance() const { return instance_; }

  // Maps the memory of `fd`, which the caller keeps, and returns its token of 32 hexadecimal
  // digits. Errors are those of SealedMemory::Map; RESOURCE_EXHAUSTED: more than `owner` may have.
  absl::StatusOr<std::string> Add(int fd, const std::string& owner);
  // Ends a lease. An unknown token is not an error.
  void Remove(const std::string& token);
  // NOT_FOUND: unknown token. The message does not contain it.
  absl::StatusOr<std::shared_ptr<const SealedMemory>> Find(const std::string& token,
                                                           const std::string& path) const;

  // Pieces and bytes that are mapped: leases, and ended leases that calls still use.
  OwnerQuotas::Stats stats() const { return quotas_->all(); }

 private:
  const std::string instance_;
  const std::shared_ptr<OwnerQuotas> quotas_;
  mutable Mutex mu_;
  std::unordered_map<std::string, std::shared_ptr<const SealedMemory>> leases_ ABSL_GUARDED_BY(mu_);
};

}  // namespace phasor::memory

#endif  // PHASOR_SERVER_MEMORY_LEASE_STORE_H_
