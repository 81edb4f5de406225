// SPDX-License-Identifier: Apache-2.0
// See lease_store.h. Memory is mapped without the lock: no client waits for another's.
#include "server/regions/lease_store.h"

#include <sys/random.h>

#include <array>
#include <utility>

#include "absl/strings/escaping.h"
#include "kernels/status_macros.h"
#include "kernels/text.h"

namespace phasor::regions {

using engine::MutexLock;

namespace {

absl::StatusOr<std::string> NewToken() {
  std::array<char, 16> bits;
  if (getrandom(bits.data(), bits.size(), 0) != static_cast<ssize_t>(bits.size())) {
    return absl::InternalError("lease: the system has no random numbers");
  }
  return absl::BytesToHexString({bits.data(), bits.size()});
}

}  // namespace

LeaseStore::LeaseStore(LeaseLimits limits)
    : limits_(limits), instance_(NewToken().value_or("unknown")) {}

absl::StatusOr<std::string> LeaseStore::Add(int fd, const std::string& owner) {
  PHASOR_ASSIGN_OR_RETURN(std::string token, NewToken());
  PHASOR_ASSIGN_OR_RETURN(const int64_t bytes, SealedMemory::SizeOf(fd));
  PHASOR_RETURN_IF_ERROR(Take(owner, bytes));
  auto memory = SealedMemory::Map(fd);
  MutexLock lock(&mu_);
  // It may have grown in between.
  const bool as_promised = memory.ok() && (*memory)->bytes() == bytes;
  if (!as_promised) {
    GiveBack(owner, bytes);
    return memory.ok() ? absl::InvalidArgumentError("memory: changes its size") : memory.status();
  }
  leases_[token] = {*std::move(memory), owner};
  return token;
}

absl::Status LeaseStore::Take(const std::string& owner, int64_t bytes) {
  MutexLock lock(&mu_);
  const auto found = owners_.find(owner);
  Stats has = found == owners_.end() ? Stats() : found->second;
  if (has.leases >= limits_.max_leases) {
    return absl::ResourceExhaustedError(
        StrCat("lease: ", has.leases, " are held already, must be at most ", limits_.max_leases));
  }
  if (bytes > limits_.max_bytes - has.bytes) {
    return absl::ResourceExhaustedError(StrCat("lease: ", bytes, " bytes beside ", has.bytes,
                                               ", must be at most ", limits_.max_bytes,
                                               " together"));
  }
  owners_[owner] = {has.leases + 1, has.bytes + bytes};
  return absl::OkStatus();
}

void LeaseStore::GiveBack(const std::string& owner, int64_t bytes) {
  Stats& has = owners_[owner];
  has.bytes -= bytes;
  if (--has.leases == 0) owners_.erase(owner);
}

void LeaseStore::Remove(const std::string& token) {
  Lease lease;  // unmapped without the lock
  MutexLock lock(&mu_);
  const auto found = leases_.find(token);
  if (found == leases_.end()) return;
  lease = std::move(found->second);
  leases_.erase(found);
  GiveBack(lease.owner, lease.memory->bytes());
}

absl::StatusOr<std::shared_ptr<const SealedMemory>> LeaseStore::Find(
    const std::string& token, const std::string& path) const {
  MutexLock lock(&mu_);
  const auto found = leases_.find(token);
  if (found != leases_.end()) return found->second.memory;
  return absl::NotFoundError(
      StrCat(path, ": no such lease, must be a token of a lease that is held"));
}

LeaseStore::Stats LeaseStore::stats() const {
  MutexLock lock(&mu_);
  Stats all;
  for (const auto& [owner, has] : owners_) {
    all.leases += has.leases;
    all.bytes += has.bytes;
  }
  return all;
}

}  // namespace phasor::regions
