// SPDX-License-Identifier: Apache-2.0
// Keeps leases by token. Memory is mapped without holding the lock, so that no client waits for
// another one's.
#include "server/memory/lease_store.h"

#include <sys/random.h>

#include <array>
#include <utility>

#include "absl/strings/escaping.h"
#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"

namespace phasor::memory {

namespace {

absl::StatusOr<std::string> NewToken() {
  std::array<char, 16> bits;
  if (getrandom(bits.data(), bits.size(), 0) != static_cast<ssize_t>(bits.size())) {
    return absl::InternalError(
        "lease: the system gives no random numbers; getrandom must be allowed");
  }
  return absl::BytesToHexString({bits.data(), bits.size()});
}

// Mapped memory and its owner's share of the quota, which is returned after it is unmapped.
struct MeteredMemory {
  OwnerQuotas::Share share;
  std::shared_ptr<const SealedMemory> memory;  // destroyed first
};

}  // namespace

LeaseStore::LeaseStore(OwnerLimits limits)
    : instance_(NewToken().value_or("unknown")),
      quotas_(std::make_shared<OwnerQuotas>(limits, "lease")) {}

absl::StatusOr<std::string> LeaseStore::Add(int fd, const std::string& owner) {
  PHASOR_ASSIGN_OR_RETURN(std::string token, NewToken());
  PHASOR_ASSIGN_OR_RETURN(const int64_t bytes, SealedMemory::SizeOf(fd));
  PHASOR_ASSIGN_OR_RETURN(OwnerQuotas::Share share, quotas_->Take(owner, bytes));
  const auto metered =
      std::make_shared<MeteredMemory>(MeteredMemory{std::move(share), /*memory=*/nullptr});
  PHASOR_ASSIGN_OR_RETURN(metered->memory, SealedMemory::Map(fd));
  if (metered->memory->bytes() != bytes) {  // it has grown in between
    return Invalid("memory: changes its size; must keep it");
  }
  MutexLock lock(&mu_);
  leases_[token] = std::shared_ptr<const SealedMemory>(metered, metered->memory.get());
  return token;
}

void LeaseStore::Remove(const std::string& token) {
  std::shared_ptr<const SealedMemory> memory;  // unmapped after the lock is released
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
      StrCat(path, ": no such lease; must be a token of a lease that is held"));
}

}  // namespace phasor::memory
