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

struct LeaseStore::Metered {
  Metered(std::shared_ptr<Quotas> q, std::string o, int64_t b)
      : quotas(std::move(q)), owner(std::move(o)), bytes(b) {}
  Metered(const Metered&) = delete;
  Metered& operator=(const Metered&) = delete;
  ~Metered() {
    memory.reset();
    quotas->GiveBack(owner, bytes);
  }

  const std::shared_ptr<Quotas> quotas;
  const std::string owner;
  const int64_t bytes;
  std::shared_ptr<const SealedMemory> memory;
};

LeaseStore::LeaseStore(LeaseLimits limits)
    : instance_(NewToken().value_or("unknown")), quotas_(std::make_shared<Quotas>(limits)) {}

absl::StatusOr<std::string> LeaseStore::Add(int fd, const std::string& owner) {
  PHASOR_ASSIGN_OR_RETURN(std::string token, NewToken());
  PHASOR_ASSIGN_OR_RETURN(const int64_t bytes, SealedMemory::SizeOf(fd));
  PHASOR_RETURN_IF_ERROR(quotas_->Take(owner, bytes));
  const auto metered = std::make_shared<Metered>(quotas_, owner, bytes);
  PHASOR_ASSIGN_OR_RETURN(metered->memory, SealedMemory::Map(fd));
  if (metered->memory->bytes() != bytes) {  // it has grown in between
    return absl::InvalidArgumentError("memory: changes its size");
  }
  MutexLock lock(&mu_);
  leases_[token] = std::shared_ptr<const SealedMemory>(metered, metered->memory.get());
  return token;
}

absl::Status LeaseStore::Quotas::Take(const std::string& owner, int64_t bytes) {
  MutexLock lock(&mu_);
  const auto found = owners_.find(owner);
  const Stats has = found == owners_.end() ? Stats() : found->second;
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

void LeaseStore::Quotas::GiveBack(const std::string& owner, int64_t bytes) {
  MutexLock lock(&mu_);
  Stats& has = owners_[owner];
  has.bytes -= bytes;
  if (--has.leases == 0) owners_.erase(owner);
}

LeaseStore::Stats LeaseStore::Quotas::all() const {
  MutexLock lock(&mu_);
  Stats all;
  for (const auto& [owner, has] : owners_) {
    all.leases += has.leases;
    all.bytes += has.bytes;
  }
  return all;
}

void LeaseStore::Remove(const std::string& token) {
  std::shared_ptr<const SealedMemory> memory;  // unmapped without the lock
  MutexLock lock(&mu_);
  const auto found = leases_.find(token);
  if (found == leases_.end()) return;
  memory = std::move(found->second);
  leases_.erase(found);
}

absl::StatusOr<std::shared_ptr<const SealedMemory>> LeaseStore::Find(
    const std::string& token, const std::string& path) const {
  MutexLock lock(&mu_);
  const auto found = leases_.find(token);
  if (found != leases_.end()) return found->second;
  return absl::NotFoundError(
      StrCat(path, ": no such lease, must be a token of a lease that is held"));
}

}  // namespace phasor::regions
