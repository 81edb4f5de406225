// SPDX-License-Identifier: Apache-2.0
// Leases: sealed memory that clients share, by token. Whoever knows the token may use the memory,
// so tokens are random and told to nobody else. Knows nothing of sockets or gRPC.
#ifndef PHASOR_SERVER_REGIONS_LEASE_STORE_H_
#define PHASOR_SERVER_REGIONS_LEASE_STORE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "server/engine/mutex.h"
#include "server/regions/sealed_memory.h"

namespace phasor::regions {

// Of one owner.
struct LeaseLimits {
  int64_t max_bytes = int64_t{8} << 30;
  int64_t max_leases = 256;
};

// A call that uses a lease's memory keeps it mapped, whatever happens to the lease. Threads: any.
class LeaseStore {
 public:
  explicit LeaseStore(LeaseLimits limits);

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
  struct Stats {
    int64_t leases = 0;
    int64_t bytes = 0;
  };
  Stats stats() const { return quotas_->all(); }

 private:
  // What every owner has. Lives as long as any memory.
  class Quotas {
   public:
    explicit Quotas(LeaseLimits limits) : limits_(limits) {}
    // That `owner` may have `bytes` more. RESOURCE_EXHAUSTED.
    absl::Status Take(const std::string& owner, int64_t bytes);
    void GiveBack(const std::string& owner, int64_t bytes);
    Stats all() const;

   private:
    const LeaseLimits limits_;
    mutable engine::Mutex mu_;
    std::map<std::string, Stats> owners_ ABSL_GUARDED_BY(mu_);
  };
  // Memory that gives back what it takes of its owner's quota once it is not mapped any more.
  struct Metered;

  const std::string instance_;
  const std::shared_ptr<Quotas> quotas_;
  mutable engine::Mutex mu_;
  std::unordered_map<std::string, std::shared_ptr<const SealedMemory>> leases_ ABSL_GUARDED_BY(mu_);
};

}  // namespace phasor::regions

#endif  // PHASOR_SERVER_REGIONS_LEASE_STORE_H_
