// SPDX-License-Identifier: Apache-2.0
// Keeps regions of host memory, and closes them when they expire. Memory is opened and closed
// without holding the lock, so that no client waits for another one's.
#include "server/memory/region_store.h"

#include <algorithm>
#include <utility>

#include "kernels/base/status_macros.h"
#include "server/memory/range.h"

namespace phasor::memory {

absl::Status CheckMayShare(bool enabled, const RegionCaller& caller) {
  if (!enabled) {
    return absl::FailedPreconditionError(
        "shared memory: not enabled; start the server with --shared-memory or send raw bytes");
  }
  if (!caller.remote) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "shared memory: the call comes from another host; must come from this one; send raw bytes");
}

bool MayUse(const RegionCaller& caller, const RegionCaller& owner, const RegionTerms& terms) {
  if (caller.remote) return false;
  return terms.for_everybody || owner.owner() == caller.owner();
}

bool BelongsToConnection(const RegionCaller& owner, const RegionTerms& terms) {
  return owner.identity.empty() && !terms.for_everybody;
}

RegionStore::RegionStore(RegionStoreOptions options)
    : options_(std::move(options)),
      quotas_(std::make_shared<OwnerQuotas>(options_.owner_limits, "regions")) {
  options_.names->BeforeTaking(this, [this](bool full) { CloseUnneeded(full); });
}

RegionStore::~RegionStore() { options_.names->BeforeTaking(this, nullptr); }

absl::Status RegionStore::Register(const std::string& name, RegionPlace place,
                                   const RegionCaller& caller, const RegionTerms& terms,
                                   const Region::Paths& paths) {
  PHASOR_RETURN_IF_ERROR(CheckMayShare(options_.enabled, caller));
  PHASOR_ASSIGN_OR_RETURN(RegionNames::Name taken, options_.names->Take(name, paths.name));
  PHASOR_ASSIGN_OR_RETURN(auto region, Region::Open(std::move(place), paths));
  PHASOR_ASSIGN_OR_RETURN(OwnerQuotas::Share share,
                          quotas_->Take(caller.owner(), region->place().bytes, caller.max_regions));
  auto held = std::make_shared<Held>(std::move(share), std::move(region));
  const RegionTerms kept = {terms.for_everybody, std::min(terms.ttl, options_.lease)};
  {
    MutexLock lock(&mu_);
    const absl::Time now = options_.now();
    none_expires_before_ = std::min(none_expires_before_, now + kept.ttl);
    entries_.emplace(name, Entry{std::move(taken), std::move(held), caller, kept, now});
  }
  if (!options_.is_open(caller.peer)) ForgetConnection(caller.peer);  // it closed meanwhile
  return absl::OkStatus();
}

absl::Status RegionStore::Unregister(const std::string& name, const RegionCaller& caller,
                                     absl::AnyInvocable<void()> released) {
  std::shared_ptr<Held> held;  // destroyed after the lock is released
  MutexLock lock(&mu_);
  const auto found = entries_.find(name);
  if (found == entries_.end() || !MayUse(caller, found->second.owner, found->second.terms)) {
    return NotRegistered(name, "name");
  }
  held = std::move(found->second.held);
  held->released = std::move(released);
  entries_.erase(found);
  return absl::OkStatus();
}

void RegionStore::UnregisterAll(const RegionCaller& caller) {
  Entries gone;  // closed after the lock is released
  MutexLock lock(&mu_);
  gone = entries_.TakeOf(caller);
}

void RegionStore::ForgetConnection(const std::string& peer) {
  Entries gone;  // closed after the lock is released
  MutexLock lock(&mu_);
  gone = entries_.TakeOfConnection(peer);
}

absl::StatusOr<std::shared_ptr<const Region>> RegionStore::Find(const std::string& name,
                                                                const RegionCaller& caller,
                                                                const std::string& path) {
  Entries expired;  // closed after the lock is released
  MutexLock lock(&mu_);
  expired = TakeExpired();
  const auto found = entries_.find(name);
  if (found == entries_.end() || !MayUse(caller, found->second.owner, found->second.terms)) {
    return NotRegistered(name, path);
  }
  found->second.used = options_.now();
  return Held::Use(found->second.held);
}

std::vector<NamedRegion> RegionStore::List(const RegionCaller& caller) {
  Entries expired;  // closed after the lock is released
  MutexLock lock(&mu_);
  expired = TakeExpired();
  std::vector<NamedRegion> regions;
  for (const auto& [name, entry] : entries_) {
    if (!MayUse(caller, entry.owner, entry.terms)) continue;
    regions.push_back({name, entry.held->region->place(), entry.terms.ttl});
  }
  return regions;
}

OwnerQuotas::Stats RegionStore::stats() {
  CloseUnneeded(/*full=*/false);
  return quotas_->all();
}

void RegionStore::CloseUnneeded(bool full) {
  Entries expired, departed;  // closed after the lock is released
  MutexLock lock(&mu_);
  expired = TakeExpired();
  if (full) departed = entries_.TakeDeparted();
}

RegionStore::Entries RegionStore::TakeExpired() {
  const absl::Time now = options_.now();
  if (now <= none_expires_before_) return {};
  none_expires_before_ = absl::InfiniteFuture();
  return entries_.Take([&](const Entry& entry) {
    const absl::Time end = entry.used + entry.terms.ttl;
    if (end >= now) none_expires_before_ = std::min(none_expires_before_, end);
    return end < now;
  });
}

}  // namespace phasor::memory
