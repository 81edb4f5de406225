// SPDX-License-Identifier: Apache-2.0
// See region_store.h. Memory is opened and closed without the lock: no client waits for another's.
#include "server/regions/region_store.h"

#include <algorithm>
#include <utility>

#include "kernels/status_macros.h"
#include "kernels/text.h"

namespace phasor::regions {

using engine::MutexLock;

struct RegionStore::Held {
  Held(OwnerQuotas::Share s, std::shared_ptr<const Region> r)
      : share(std::move(s)), region(std::move(r)) {}
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  ~Held() {
    region.reset();
    { const OwnerQuotas::Share given_back(std::move(share)); }
    if (released != nullptr) released();
  }

  OwnerQuotas::Share share;
  std::shared_ptr<const Region> region;
  absl::AnyInvocable<void()> released;  // written by whoever forgets the name, before it lets go
};

RegionStore::RegionStore(RegionStoreOptions options)
    : options_(std::move(options)),
      quotas_(std::make_shared<OwnerQuotas>(options_.owner_limits, "regions")) {}

absl::Status RegionStore::Register(const std::string& name, RegionPlace place,
                                   const RegionCaller& caller, const RegionTerms& terms) {
  if (!options_.enabled) {
    return absl::FailedPreconditionError(
        "shared memory: not enabled, start the server with --shared-memory or send raw bytes");
  }
  if (caller.remote) {
    return absl::FailedPreconditionError(
        "shared memory: the call comes from another host, must come from this one; send raw bytes");
  }
  if (name.empty() || name.size() > kMaxRegionNameBytes) {
    return absl::InvalidArgumentError(
        StrCat("name: ", name.size(), " bytes, must be 1 to ", kMaxRegionNameBytes));
  }
  Entries expired;  // closed without the lock
  {
    MutexLock lock(&mu_);
    expired = TakeExpired();
    PHASOR_RETURN_IF_ERROR(CheckFree(name));
  }
  expired.clear();
  PHASOR_ASSIGN_OR_RETURN(auto region, Region::Open(std::move(place), "region"));
  PHASOR_ASSIGN_OR_RETURN(OwnerQuotas::Share share,
                          quotas_->Take(caller.owner(), region->place().bytes, caller.max_regions));
  auto held = std::make_shared<Held>(std::move(share), std::move(region));
  MutexLock lock(&mu_);
  PHASOR_RETURN_IF_ERROR(CheckFree(name));  // another client may have been faster
  Entry& entry = entries_[name];
  entry = {std::move(held), caller, terms, options_.now()};
  entry.terms.ttl = std::min(terms.ttl, options_.lease);
  return absl::OkStatus();
}

absl::Status RegionStore::CheckFree(const std::string& name) const {
  if (entries_.contains(name)) {
    return absl::AlreadyExistsError(
        StrCat("name: shared memory region '", name, "' already in manager, must be a free name"));
  }
  if (entries_.size() < options_.max_regions) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      StrCat("name: too many regions, must be at most ", options_.max_regions));
}

bool RegionStore::MayUse(const RegionCaller& caller, const Entry& entry) {
  if (caller.remote) return false;
  return entry.terms.for_everybody || entry.owner.owner() == caller.owner();
}

absl::Status RegionStore::Unregister(const std::string& name, const RegionCaller& caller,
                                     absl::AnyInvocable<void()> released) {
  std::shared_ptr<Held> held;  // let go without the lock
  MutexLock lock(&mu_);
  const auto found = entries_.find(name);
  if (found == entries_.end() || !MayUse(caller, found->second)) {
    return absl::NotFoundError(
        StrCat("name: region '", name, "' is not registered, must be a name of one"));
  }
  held = std::move(found->second.held);
  held->released = std::move(released);
  entries_.erase(found);
  return absl::OkStatus();
}

void RegionStore::UnregisterAll(const RegionCaller& caller) {
  Entries gone;  // closed without the lock
  MutexLock lock(&mu_);
  gone = Take(
      [&](const Entry& entry) { return entry.owner.peer == caller.peer && MayUse(caller, entry); });
}

absl::StatusOr<std::shared_ptr<const Region>> RegionStore::Find(const std::string& name,
                                                                const RegionCaller& caller,
                                                                const std::string& path) {
  Entries expired;  // closed without the lock
  MutexLock lock(&mu_);
  expired = TakeExpired();
  const auto found = entries_.find(name);
  if (found == entries_.end() || !MayUse(caller, found->second)) {
    return absl::NotFoundError(
        StrCat(path, ": region '", name, "' is not registered, must be registered before"));
  }
  found->second.used = options_.now();
  const std::shared_ptr<Held>& held = found->second.held;
  return std::shared_ptr<const Region>(held, held->region.get());
}

std::vector<NamedRegion> RegionStore::List(const RegionCaller& caller) {
  Entries expired;  // closed without the lock
  MutexLock lock(&mu_);
  expired = TakeExpired();
  std::vector<NamedRegion> regions;
  for (const auto& [name, entry] : entries_) {
    if (!MayUse(caller, entry)) continue;
    regions.push_back({name, entry.held->region->place(), entry.terms.ttl});
  }
  return regions;
}

OwnerQuotas::Stats RegionStore::stats() {
  Entries expired;  // closed without the lock
  {
    MutexLock lock(&mu_);
    expired = TakeExpired();
  }
  expired.clear();
  return quotas_->all();
}

template <typename Drop>
RegionStore::Entries RegionStore::Take(Drop drop) {
  Entries taken;
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    const auto next = std::next(entry);
    if (drop(entry->second)) taken.insert(entries_.extract(entry));
    entry = next;
  }
  return taken;
}

RegionStore::Entries RegionStore::TakeExpired() {
  const absl::Time now = options_.now();
  return Take([&](const Entry& entry) { return entry.used < now - entry.terms.ttl; });
}

}  // namespace phasor::regions
