// SPDX-License-Identifier: Apache-2.0
// Regions of device memory by name, with an owner and a time to live. Knows nothing of gRPC.
#ifndef PHASOR_SERVER_REGIONS_DEVICE_REGION_STORE_H_
#define PHASOR_SERVER_REGIONS_DEVICE_REGION_STORE_H_

#include <cstdint>
#include <limits>
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
#include "server/engine/engine.h"
#include "server/engine/mutex.h"
#include "server/regions/device_region.h"

namespace phasor::regions {

struct DeviceRegionOptions {
  bool enabled = false;  // else every registration is refused
  size_t max_regions = 1024;
  absl::Duration lease = absl::Hours(1);  // a region unused for so long is closed
};

// Who registers a region.
struct DeviceCaller {
  std::string peer = {};                                      // whose UnregisterAll forgets it
  std::string owner = {};                                     // whose regions are counted
  int64_t max_regions = std::numeric_limits<int64_t>::max();  // of that owner
};

// How a region is kept.
struct DeviceTerms {
  bool for_everybody = true;  // else it exists for its owner only, but for the name
  absl::Duration ttl = absl::InfiniteDuration();  // but never longer than the store's lease
};

struct NamedDeviceRegion {
  std::string name;
  DevicePlace place;
  absl::Duration ttl;
  bool dirty = false;
};

// A call that uses a region keeps it open, whatever happens to its name. Threads: any. Owns regions
// and, from the first one on, a thread that closes those whose time is over.
class DeviceRegionStore {
 public:
  // `port` is nullptr without a device. Both must outlive this.
  DeviceRegionStore(DevicePort* port, const DeviceRegionOptions& options, engine::Clock* clock);
  ~DeviceRegionStore();

  // Whether regions can be registered.
  bool enabled() const { return options_.enabled && port_ != nullptr; }
  absl::Duration lease() const { return options_.lease; }

  // Errors as DeviceRegion::Open's; INVALID_ARGUMENT: no name; ALREADY_EXISTS: the name is taken;
  // RESOURCE_EXHAUSTED: too many, of all or of the owner; FAILED_PRECONDITION: not enabled, or no
  // device.
  absl::Status Register(const std::string& name, DevicePlace place, const DeviceCaller& caller,
                        const DeviceTerms& terms, const DeviceRegion::Paths& paths);

  // Forgets a name. `released` runs once when no call uses the region any more, perhaps before this
  // returns. NOT_FOUND, and it never runs: no such name, for this caller.
  absl::Status Unregister(const std::string& name, const DeviceCaller& caller,
                          absl::AnyInvocable<void()> released = nullptr);
  // Forgets all that the peer registered for everybody.
  void UnregisterAll(const std::string& peer);

  bool Has(const std::string& name) const;
  // The region, whose time begins anew. NOT_FOUND. The message begins with `path`.
  absl::StatusOr<std::shared_ptr<DeviceRegion>> Find(const std::string& name,
                                                     const std::string& owner,
                                                     const std::string& path);
  // Those that the caller may use, by name. Renews nothing.
  std::vector<NamedDeviceRegion> List(const std::string& owner) const;

 private:
  struct Entry {
    std::shared_ptr<DeviceRegion> region;  // nullptr: the device was lost, and it is dirty
    DevicePlace place;
    DeviceCaller caller;
    DeviceTerms terms;
    absl::Time used;
  };
  using Entries = std::map<std::string, Entry>;

  static bool MayUse(const std::string& owner, const Entry& entry);
  absl::Status CheckFree(const std::string& name, const DeviceCaller& caller) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Lets go of memory of a device that was lost: only calls that know its addresses keep it.
  std::vector<std::shared_ptr<DeviceRegion>> TakeLost() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Those whose time is over. `*next` is when the next one's is.
  std::vector<std::shared_ptr<DeviceRegion>> TakeExpired(absl::Time* next)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Watch();

  DevicePort* const port_;
  const DeviceRegionOptions options_;
  engine::Clock& clock_;
  mutable engine::Mutex mu_;
  engine::CondVar changed_;
  Entries entries_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread watcher_ ABSL_GUARDED_BY(mu_);
};

// The regions that one caller may use.
struct CallerDevices {
  DeviceRegionStore* store = nullptr;  // nullptr: none; must outlive the caller's calls
  std::string owner = {};
};

}  // namespace phasor::regions

#endif  // PHASOR_SERVER_REGIONS_DEVICE_REGION_STORE_H_
