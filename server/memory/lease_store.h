// SPDX-License-Identifier: Apache-2.0
// Leases: sealed memory that clients share, by token. Whoever knows the token may use the memory,
// so tokens are random and told to nobody else. Knows nothing of sockets or gRPC.
#ifndef PHASOR_SERVER_MEMORY_LEASE_STORE_H_
#define PHASOR_SERVER_MEMORY_LEASE_STORE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "server/base/mutex.h"
#include "server/memory/owner_quotas.h"
#include "server/memory/sealed_memory.h"

namespace phasor::memory {

// A call that uses a lease's memory keeps it mapped, whatever happens to the lease. Threads: any.
class LeaseStore {
 public:
  explicit LeaseStore(OwnerLimits limits);

  // A random name of this store, by which a client that found two addresses knows whether they lead
  // to the same server.
  const std::string& instance() const { return instance_; }

  // Maps the memory behind `fd`, which stays the caller's, and returns its token, 32 hexadecimal
  // digits. Errors of SealedMemory::Map; RESOURCE_EXHAUSTED: more than `owner` may have.
  absl::StatusOr<std::string> Add(int fd, const std::string& owner);
  // Ends a lease; one that is not known is no error.
  void Remove(const std::string& token);
  // NOT_FOUND. The token is not repeated.
  absl::StatusOr<std::shared_ptr<const SealedMemory>> Find(const std::string& token,
                                                           const std::string& path) const;

  // What is mapped: leases, and what calls still use of those that have ended.
  OwnerQuotas::Stats stats() const { return quotas_->all(); }

 private:
  const std::string instance_;
  const std::shared_ptr<OwnerQuotas> quotas_;
  mutable Mutex mu_;
  std::unordered_map<std::string, std::shared_ptr<const SealedMemory>> leases_ ABSL_GUARDED_BY(mu_);
};

}  // namespace phasor::memory

#endif  // PHASOR_SERVER_MEMORY_LEASE_STORE_H_
