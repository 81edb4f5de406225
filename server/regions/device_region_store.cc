// SPDX-License-Identifier: Apache-2.0
// See device_region_store.h. Memory is opened and closed without the lock: no client waits for
// another's.
#include "server/regions/device_region_store.h"

#include <algorithm>
#include <utility>

#include "kernels/status_macros.h"
#include "kernels/text.h"

namespace phasor::regions {

using engine::MutexLock;

DeviceRegionStore::DeviceRegionStore(DevicePort* port, const DeviceRegionOptions& options,
                                     engine::Clock* clock)
    : port_(port), options_(options), clock_(*clock) {}

DeviceRegionStore::~DeviceRegionStore() {
  std::thread watcher;
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    changed_.SignalAll();
    watcher = std::move(watcher_);
  }
  if (watcher.joinable()) watcher.join();
}

absl::Status DeviceRegionStore::Register(const std::string& name, DevicePlace place,
                                         const DeviceCaller& caller, const DeviceTerms& terms,
                                         const DeviceRegion::Paths& paths) {
  if (!options_.enabled) {
    return absl::FailedPreconditionError(
        "shared memory: not enabled, start the server with --shared-memory or send raw bytes");
  }
  if (port_ == nullptr) {
    return absl::FailedPreconditionError(
        "shared memory: this server uses no device, start it with --backend=cuda or use memory of "
        "the host");
  }
  if (name.empty()) return absl::InvalidArgumentError("name: not set, must be given");
  {
    std::vector<std::shared_ptr<DeviceRegion>> lost;  // closed without the lock
    MutexLock lock(&mu_);
    PHASOR_RETURN_IF_ERROR(CheckFree(name, caller));
    lost = TakeLost();
  }
  PHASOR_ASSIGN_OR_RETURN(auto region, DeviceRegion::Open(place, port_, paths));
  MutexLock lock(&mu_);
  PHASOR_RETURN_IF_ERROR(CheckFree(name, caller));  // another client may have been faster
  DeviceTerms kept = terms;
  kept.ttl = std::min(terms.ttl, options_.lease);
  entries_[name] = {std::move(region), std::move(place), caller, kept, clock_.Now()};
  if (!watcher_.joinable()) watcher_ = std::thread([this] { Watch(); });
  changed_.SignalAll();
  return absl::OkStatus();
}

absl::Status DeviceRegionStore::CheckFree(const std::string& name,
                                          const DeviceCaller& caller) const {
  if (entries_.contains(name)) {
    return absl::AlreadyExistsError(
        StrCat("name: shared memory region '", name, "' already in manager, must be a free name"));
  }
  if (entries_.size() >= options_.max_regions) {
    return absl::ResourceExhaustedError(
        StrCat("name: too many regions, must be at most ", options_.max_regions));
  }
  const auto held = std::count_if(entries_.begin(), entries_.end(), [&](const auto& entry) {
    return entry.second.caller.owner == caller.owner;
  });
  if (held < caller.max_regions) return absl::OkStatus();
  return absl::ResourceExhaustedError(StrCat("name: ", held, " regions are held by ", caller.owner,
                                             ", must be at most ", caller.max_regions));
}

bool DeviceRegionStore::MayUse(const std::string& owner, const Entry& entry) {
  return entry.terms.for_everybody || entry.caller.owner == owner;
}

absl::Status DeviceRegionStore::Unregister(const std::string& name, const DeviceCaller& caller,
                                           absl::AnyInvocable<void()> released) {
  std::shared_ptr<DeviceRegion> region;  // closed without the lock
  {
    MutexLock lock(&mu_);
    const auto found = entries_.find(name);
    if (found == entries_.end() || !MayUse(caller.owner, found->second)) {
      return absl::NotFoundError(
          StrCat("name: region '", name, "' is not registered, must be a name of one"));
    }
    region = std::move(found->second.region);
    entries_.erase(found);
  }
  if (!released) return absl::OkStatus();
  if (region == nullptr) {
    released();
  } else {
    region->WhenReleased(std::move(released));
  }
  return absl::OkStatus();
}

void DeviceRegionStore::UnregisterAll(const std::string& peer) {
  Entries gone;  // closed without the lock
  MutexLock lock(&mu_);
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    const auto next = std::next(entry);
    if (entry->second.terms.for_everybody && entry->second.caller.peer == peer) {
      gone.insert(entries_.extract(entry));
    }
    entry = next;
  }
}

bool DeviceRegionStore::Has(const std::string& name) const {
  MutexLock lock(&mu_);
  return entries_.contains(name);
}

absl::StatusOr<std::shared_ptr<DeviceRegion>> DeviceRegionStore::Find(const std::string& name,
                                                                      const std::string& owner,
                                                                      const std::string& path) {
  MutexLock lock(&mu_);
  const auto found = entries_.find(name);
  if (found == entries_.end() || !MayUse(owner, found->second)) {
    return absl::NotFoundError(
        StrCat(path, ": region '", name, "' is not registered, must be registered before"));
  }
  found->second.used = clock_.Now();
  if (found->second.region != nullptr) return found->second.region;
  return absl::FailedPreconditionError(StrCat(path, ": region '", name,
                                              "' is dirty: the device was lost, must be "
                                              "registered again"));
}

std::vector<NamedDeviceRegion> DeviceRegionStore::List(const std::string& owner) const {
  MutexLock lock(&mu_);
  std::vector<NamedDeviceRegion> regions;
  for (const auto& [name, entry] : entries_) {
    if (!MayUse(owner, entry)) continue;
    const bool dirty = entry.region == nullptr || entry.region->dirty();
    regions.push_back({name, entry.place, entry.terms.ttl, dirty});
  }
  return regions;
}

std::vector<std::shared_ptr<DeviceRegion>> DeviceRegionStore::TakeLost() {
  std::vector<std::shared_ptr<DeviceRegion>> lost;
  for (auto& [name, entry] : entries_) {
    if (entry.region != nullptr && entry.region->lost()) lost.push_back(std::move(entry.region));
  }
  return lost;
}

std::vector<std::shared_ptr<DeviceRegion>> DeviceRegionStore::TakeExpired(absl::Time* next) {
  const absl::Time now = clock_.Now();
  *next = absl::InfiniteFuture();
  std::vector<std::shared_ptr<DeviceRegion>> expired;
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    const absl::Time end = entry->second.used + entry->second.terms.ttl;
    if (end > now) {
      *next = std::min(*next, end);
      ++entry;
    } else {
      expired.push_back(std::move(entry->second.region));
      entry = entries_.erase(entry);
    }
  }
  return expired;
}

void DeviceRegionStore::Watch() {
  while (true) {
    std::vector<std::shared_ptr<DeviceRegion>> expired;  // closed without the lock
    MutexLock lock(&mu_);
    absl::Time next;
    expired = TakeExpired(&next);
    if (stopping_) return;
    if (expired.empty()) clock_.Wait(&changed_, &mu_, next);
  }
}

}  // namespace phasor::regions
