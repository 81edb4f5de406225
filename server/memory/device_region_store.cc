// SPDX-License-Identifier: Apache-2.0
// Keeps regions of GPU memory, and closes them when they expire. Memory is opened and closed
// without holding the lock, so that no client waits for another one's.
#include "server/memory/device_region_store.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"
#include "server/memory/range.h"

namespace phasor::memory {

DeviceRegionStore::DeviceRegionStore(DeviceList devices, DeviceRegionOptions options, Clock* clock)
    : devices_(std::move(devices)),
      options_(std::move(options)),
      quotas_(std::make_shared<OwnerQuotas>(
          OwnerLimits{std::numeric_limits<int64_t>::max(), options_.max_regions}, "regions")),
      clock_(*clock) {
  options_.names->BeforeTaking(this, [this](bool full) {
    Entries departed;  // closed after the lock is released
    MutexLock lock(&mu_);
    if (full) departed = entries_.TakeDeparted();
  });
  if (enabled()) watcher_ = std::thread([this] { Watch(); });
}

DeviceRegionStore::~DeviceRegionStore() {
  options_.names->BeforeTaking(this, nullptr);
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    changed_.SignalAll();
  }
  if (watcher_.joinable()) watcher_.join();
}

absl::Status DeviceRegionStore::Register(const std::string& name, DevicePlace place,
                                         const RegionCaller& caller, const RegionTerms& terms,
                                         const DeviceRegion::Paths& paths) {
  PHASOR_RETURN_IF_ERROR(CheckMayShare(options_.enabled, caller));
  if (devices_.empty()) {
    return absl::FailedPreconditionError(
        "shared memory: this server uses no device; start it with --backend=cuda or use memory of "
        "the host");
  }
  PHASOR_ASSIGN_OR_RETURN(RegionNames::Name taken, options_.names->Take(name, paths.name));
  std::vector<HeldRef> lost;  // closed after the lock is released
  {
    MutexLock lock(&mu_);
    lost = TakeLost();
  }
  lost.clear();
  PHASOR_ASSIGN_OR_RETURN(auto region, DeviceRegion::Open(place, devices_, paths));
  PHASOR_ASSIGN_OR_RETURN(OwnerQuotas::Share share,
                          quotas_->Take(caller.owner(), place.bytes, caller.max_regions));
  auto held = std::make_shared<Held>(std::move(share), std::move(region));
  const RegionTerms kept = {terms.for_everybody, std::min(terms.ttl, options_.lease)};
  {
    MutexLock lock(&mu_);
    entries_.emplace(name, Entry{std::move(taken), std::move(held), std::move(place), caller, kept,
                                 clock_.Now()});
    changed_.SignalAll();
  }
  if (!options_.is_open(caller.peer)) ForgetConnection(caller.peer);  // it closed meanwhile
  return absl::OkStatus();
}

DeviceRegionStore::Entries::iterator DeviceRegionStore::FindEntry(const std::string& name,
                                                                  const RegionCaller& caller) {
  const auto found = entries_.find(name);
  if (found == entries_.end()) return found;
  return MayUse(caller, found->second.owner, found->second.terms) ? found : entries_.end();
}

absl::Status DeviceRegionStore::Unregister(const std::string& name, const RegionCaller& caller,
                                           absl::AnyInvocable<void()> released) {
  HeldRef held;  // closed after the lock is released
  {
    MutexLock lock(&mu_);
    const auto found = FindEntry(name, caller);
    if (found == entries_.end()) {
      return NotRegistered(name, "name");
    }
    held = found->second.held != nullptr ? found->second.held : found->second.left.lock();
    entries_.erase(found);
    if (held != nullptr) held->released = std::move(released);
  }
  if (held == nullptr && released) released();
  return absl::OkStatus();
}

void DeviceRegionStore::UnregisterAll(const RegionCaller& caller) {
  Entries gone;  // closed after the lock is released
  MutexLock lock(&mu_);
  gone = entries_.TakeOf(caller);
}

void DeviceRegionStore::ForgetConnection(const std::string& peer) {
  Entries gone;  // closed after the lock is released
  MutexLock lock(&mu_);
  gone = entries_.TakeOfConnection(peer);
}

bool DeviceRegionStore::Has(const std::string& name, const RegionCaller& caller) {
  MutexLock lock(&mu_);
  return FindEntry(name, caller) != entries_.end();
}

absl::StatusOr<std::shared_ptr<DeviceRegion>> DeviceRegionStore::Find(const std::string& name,
                                                                      const RegionCaller& caller,
                                                                      const std::string& path) {
  MutexLock lock(&mu_);
  const auto found = FindEntry(name, caller);
  if (found == entries_.end()) {
    return NotRegistered(name, path);
  }
  found->second.used = clock_.Now();
  if (found->second.held != nullptr) return Held::Use(found->second.held);
  return absl::FailedPreconditionError(StrCat(path, ": region '", name,
                                              "' is dirty: the device was lost; must be "
                                              "registered again"));
}

std::vector<NamedDeviceRegion> DeviceRegionStore::List(const RegionCaller& caller) {
  MutexLock lock(&mu_);
  std::vector<NamedDeviceRegion> regions;
  for (const auto& [name, entry] : entries_) {
    if (!MayUse(caller, entry.owner, entry.terms)) continue;
    const bool dirty = entry.held == nullptr || entry.held->region->dirty();
    regions.push_back({name, entry.place, entry.terms.ttl, dirty});
  }
  return regions;
}

std::vector<DeviceRegionStore::HeldRef> DeviceRegionStore::TakeLost() {
  std::vector<HeldRef> lost;
  for (auto& [name, entry] : entries_) {
    if (entry.held == nullptr || !entry.held->region->lost()) continue;
    entry.left = entry.held;
    lost.push_back(std::move(entry.held));
  }
  return lost;
}

DeviceRegionStore::Entries DeviceRegionStore::TakeExpired(absl::Time* next) {
  const absl::Time now = clock_.Now();
  *next = absl::InfiniteFuture();
  return entries_.Take([&](const Entry& entry) {
    const absl::Time end = entry.used + entry.terms.ttl;
    if (end > now) *next = std::min(*next, end);
    return end <= now;
  });
}

void DeviceRegionStore::Watch() {
  while (true) {
    Entries expired;  // closed after the lock is released
    MutexLock lock(&mu_);
    absl::Time next;
    expired = TakeExpired(&next);
    if (stopping_) return;
    if (expired.empty()) clock_.Wait(&changed_, &mu_, next);
  }
}

}  // namespace phasor::memory
