// SPDX-License-Identifier: Apache-2.0
// See region_store.h. Memory is opened without the lock: no client waits for another's.
#include "server/regions/region_store.h"

#include <algorithm>
#include <utility>

#include "kernels/status_macros.h"
#include "kernels/text.h"

namespace phasor::regions {

using engine::MutexLock;

RegionStore::RegionStore(RegionStoreOptions options) : options_(std::move(options)) {}

absl::Status RegionStore::Register(const std::string& name, RegionPlace place,
                                   const RegionOwner& owner) {
  if (!options_.enabled) {
    return absl::FailedPreconditionError(
        "shared memory: not enabled, start the server with --shared-memory or send raw bytes");
  }
  if (name.empty()) return absl::InvalidArgumentError("name: not set, must be given");
  {
    MutexLock lock(&mu_);
    PHASOR_RETURN_IF_ERROR(CheckFree(name, owner));
  }
  PHASOR_ASSIGN_OR_RETURN(auto region, Region::Open(std::move(place), "region"));
  MutexLock lock(&mu_);
  PHASOR_RETURN_IF_ERROR(CheckFree(name, owner));  // another client may have been faster
  entries_[name] = {std::move(region), owner, options_.now()};
  return absl::OkStatus();
}

absl::Status RegionStore::CheckFree(const std::string& name, const RegionOwner& owner) {
  DropExpired();
  if (entries_.contains(name)) {
    return absl::AlreadyExistsError(
        StrCat("name: shared memory region '", name, "' already in manager, must be a free name"));
  }
  if (entries_.size() >= options_.max_regions) {
    return absl::ResourceExhaustedError(
        StrCat("name: too many regions, must be at most ", options_.max_regions));
  }
  if (owner.identity.empty()) return absl::OkStatus();
  const auto held = std::count_if(entries_.begin(), entries_.end(), [&](const auto& entry) {
    return entry.second.owner.identity == owner.identity;
  });
  if (held < owner.max_regions) return absl::OkStatus();
  return absl::ResourceExhaustedError(StrCat("name: ", held, " regions are held by ",
                                             owner.identity, ", must be at most ",
                                             owner.max_regions));
}

void RegionStore::Unregister(const std::string& name) {
  MutexLock lock(&mu_);
  entries_.erase(name);
}

void RegionStore::UnregisterAll(const std::string& peer) {
  MutexLock lock(&mu_);
  std::erase_if(entries_, [&](const auto& entry) { return entry.second.owner.peer == peer; });
}

absl::StatusOr<std::shared_ptr<const Region>> RegionStore::Find(const std::string& name,
                                                                const std::string& path) {
  MutexLock lock(&mu_);
  DropExpired();
  const auto found = entries_.find(name);
  if (found == entries_.end()) {
    return absl::NotFoundError(
        StrCat(path, ": region '", name, "' is not registered, must be registered before"));
  }
  found->second.used = options_.now();
  return found->second.region;
}

std::vector<NamedRegion> RegionStore::List() {
  MutexLock lock(&mu_);
  DropExpired();
  std::vector<NamedRegion> regions;
  for (const auto& [name, entry] : entries_) regions.push_back({name, entry.region->place()});
  return regions;
}

void RegionStore::DropExpired() {
  const absl::Time oldest = options_.now() - options_.lease;
  std::erase_if(entries_, [&](const auto& entry) { return entry.second.used < oldest; });
}

}  // namespace phasor::regions
