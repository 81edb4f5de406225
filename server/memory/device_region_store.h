// SPDX-License-Identifier: Apache-2.0
// Regions of device memory by name, with an owner and a time to live. Knows nothing of gRPC.
#ifndef PHASOR_SERVER_MEMORY_DEVICE_REGION_STORE_H_
#define PHASOR_SERVER_MEMORY_DEVICE_REGION_STORE_H_

#include <cstdint>
#include <map>
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
  bool enabled = false;  // else every registration is refused
  std::shared_ptr<RegionNames> names = std::make_shared<RegionNames>();
  int64_t max_regions = 256;              // of one owner
  absl::Duration lease = absl::Hours(1);  // a region unused for so long is closed
};

struct NamedDeviceRegion {
  std::string name;
  DevicePlace place;
  absl::Duration ttl;
  bool dirty = false;
};

// As RegionStore, for memory of the device. Threads: any. Owns regions and, from the first one on,
// a thread that closes those whose time is over.
class DeviceRegionStore {
 public:
  // `port` is nullptr without a device. It and the clock must outlive this.
  DeviceRegionStore(DevicePort* port, DeviceRegionOptions options, Clock* clock);
  ~DeviceRegionStore();

  // Whether regions can be registered.
  bool enabled() const { return options_.enabled && port_ != nullptr; }
  absl::Duration lease() const { return options_.lease; }

  // Errors as DeviceRegion::Open's and RegionStore::Register's; FAILED_PRECONDITION also: no
  // device.
  absl::Status Register(const std::string& name, DevicePlace place, const RegionCaller& caller,
                        const RegionTerms& terms, const DeviceRegion::Paths& paths);

  // Forgets a name. `released` runs once when no call uses the region any more, perhaps before this
  // returns. NOT_FOUND, and it never runs: no such name, for this caller.
  absl::Status Unregister(const std::string& name, const RegionCaller& caller,
                          absl::AnyInvocable<void()> released = nullptr);
  // Forgets all that came over the caller's own connection.
  void UnregisterAll(const RegionCaller& caller);

  // Whether it is the name of a region that the caller may use.
  bool Has(const std::string& name, const RegionCaller& caller);
  // The region, whose time begins anew. NOT_FOUND; FAILED_PRECONDITION: the device was lost since.
  // The message begins with `path`.
  absl::StatusOr<std::shared_ptr<DeviceRegion>> Find(const std::string& name,
                                                     const RegionCaller& caller,
                                                     const std::string& path);
  // Those that the caller may use, by name. Renews nothing.
  std::vector<NamedDeviceRegion> List(const RegionCaller& caller);
  // What is open, as RegionStore::stats.
  OwnerQuotas::Stats stats() const { return quotas_->all(); }

 private:
  using Held = HeldRegion<DeviceRegion>;
  using HeldRef = std::shared_ptr<Held>;
  struct Entry {
    RegionNames::Name name;
    HeldRef held;  // nullptr: the device was lost, and it is dirty
    DevicePlace place;
    RegionCaller owner;
    RegionTerms terms;
    absl::Time used;
    std::weak_ptr<Held> left = {};  // of calls that use it still, after the device was lost
  };
  using Entries = std::map<std::string, Entry>;

  Entries::iterator FindEntry(const std::string& name, const RegionCaller& caller)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Lets go of memory of a device that was lost: only calls that know its addresses keep it.
  std::vector<HeldRef> TakeLost() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Those whose time is over. `*next` is when the next one's is.
  Entries TakeExpired(absl::Time* next) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Watch();

  DevicePort* const port_;
  const DeviceRegionOptions options_;
  const std::shared_ptr<OwnerQuotas> quotas_;
  Clock& clock_;
  Mutex mu_;
  CondVar changed_;
  Entries entries_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread watcher_ ABSL_GUARDED_BY(mu_);
};

// The regions that one caller may use.
struct CallerDevices {
  DeviceRegionStore* store = nullptr;  // nullptr: none; must outlive the caller's calls
  RegionCaller caller = {};

  bool enabled() const { return store != nullptr && store->enabled(); }
  bool Has(const std::string& name) const { return store != nullptr && store->Has(name, caller); }
  absl::StatusOr<std::shared_ptr<DeviceRegion>> Find(const std::string& name,
                                                     const std::string& path) const {
    return store->Find(name, caller, path);
  }
};

}  // namespace phasor::memory

#endif  // PHASOR_SERVER_MEMORY_DEVICE_REGION_STORE_H_
