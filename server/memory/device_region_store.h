// SPDX-License-Identifier: Apache-2.0
// Regions of GPU memory by name, with an owner and a lifetime. Does not use gRPC.
#ifndef PHASOR_SERVER_MEMORY_DEVICE_REGION_STORE_H_
#define PHASOR_SERVER_MEMORY_DEVICE_REGION_STORE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/base/mutex.h"
#include "server/engine/engine.h"
#include "server/memory/device_region.h"
#include "server/memory/held_region.h"
#include "server/memory/owner_quotas.h"
#include "server/memory/region_names.h"
#include "server/memory/region_store.h"

namespace phasor::memory {

struct DeviceRegionOptions {
  bool enabled = false;  // otherwise every registration is refused
  std::shared_ptr<RegionNames> names = std::make_shared<RegionNames>();
  int64_t max_regions = 256;              // per owner
  absl::Duration lease = absl::Hours(1);  // a region is closed after this time without use
  // As in RegionStoreOptions.
  std::function<bool(const std::string& peer)> is_open = [](const std::string&) { return true; };
};

struct NamedDeviceRegion {
  std::string name;
  DevicePlace place;
  absl::Duration ttl;
  bool dirty = false;
};

// The GPU regions of all clients, with the rules of RegionStore. Owns the regions and, if
// regions can be registered, a thread that closes expired ones. Threads: any.
class DeviceRegionStore {
 public:
  // `devices` is empty if there is no GPU. They and the clock must outlive this.
  DeviceRegionStore(DeviceList devices, DeviceRegionOptions options, Clock* clock);
  ~DeviceRegionStore();

  // Whether regions can be registered.
  bool enabled() const { return options_.enabled && !devices_.empty(); }

  // Errors are those of DeviceRegion::Open and RegionStore::Register, and FAILED_PRECONDITION if
  // there is no GPU.
  absl::Status Register(const std::string& name, DevicePlace place, const RegionCaller& caller,
                        const RegionTerms& terms, const DeviceRegion::Paths& paths);

  // Forgets a name. `released` runs once, when no call uses the region any more, possibly before
  // this returns. NOT_FOUND: no such name for this caller; `released` then never runs.
  absl::Status Unregister(const std::string& name, const RegionCaller& caller,
                          absl::AnyInvocable<void()> released = nullptr);
  // Forgets all regions that the caller registered over its connection.
  void UnregisterAll(const RegionCaller& caller);
  // As RegionStore::ForgetConnection.
  void ForgetConnection(const std::string& peer);

  // Whether `name` is a region that the caller may use.
  bool Has(const std::string& name, const RegionCaller& caller);
  // Returns the region and renews its lifetime. NOT_FOUND: no such region. FAILED_PRECONDITION: the
  // GPU was lost after the registration. Messages begin with `path`.
  absl::StatusOr<std::shared_ptr<DeviceRegion>> Find(const std::string& name,
                                                     const RegionCaller& caller,
                                                     const std::string& path);
  // The caller's regions, ordered by name. Does not renew their lifetime.
  std::vector<NamedDeviceRegion> List(const RegionCaller& caller);
  // The open regions, as RegionStore::stats.
  OwnerQuotas::Stats stats() const { return quotas_->all(); }

 private:
  using Held = HeldRegion<DeviceRegion>;
  using HeldRef = std::shared_ptr<Held>;
  struct Entry {
    RegionNames::Name name;
    HeldRef held;  // nullptr: the GPU was lost, and the region is dirty
    DevicePlace place;
    RegionCaller owner;
    RegionTerms terms;
    absl::Time used;
    bool departed = false;          // the connection that registered it has closed
    std::weak_ptr<Held> left = {};  // held by calls that still use it after the GPU was lost
  };
  using Entries = RegionEntries<Entry>;

  Entries::iterator FindEntry(const std::string& name, const RegionCaller& caller)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Removes the store's references to regions of a lost GPU. Only calls that know their addresses
  // still hold them.
  std::vector<HeldRef> TakeLost() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Removes the expired regions. Stores in `*next` when the next one expires.
  Entries TakeExpired(absl::Time* next) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Watch();

  const DeviceList devices_;
  const DeviceRegionOptions options_;
  const std::shared_ptr<OwnerQuotas> quotas_;
  Clock& clock_;
  Mutex mu_;
  CondVar changed_;
  Entries entries_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread watcher_;  // not joinable if no region can be registered
};

}  // namespace phasor::memory

#endif  // PHASOR_SERVER_MEMORY_DEVICE_REGION_STORE_H_
