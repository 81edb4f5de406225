// SPDX-License-Identifier: Apache-2.0
// Regions of shared memory by name, with an owner and a lease. Knows nothing of gRPC.
#ifndef PHASOR_SERVER_REGIONS_REGION_STORE_H_
#define PHASOR_SERVER_REGIONS_REGION_STORE_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "server/engine/mutex.h"
#include "server/regions/region.h"

namespace phasor::regions {

struct RegionStoreOptions {
  bool enabled = false;  // else every registration is refused
  size_t max_regions = 1024;
  absl::Duration lease = absl::Hours(1);  // a region unused for so long is forgotten
  std::function<absl::Time()> now = [] { return absl::Now(); };
};

// Who registers a region.
struct RegionOwner {
  std::string peer;           // whose UnregisterAll forgets it
  std::string identity = "";  // whose regions are counted; empty: nobody's
  int64_t max_regions = std::numeric_limits<int64_t>::max();  // of that identity
};

struct NamedRegion {
  std::string name;
  RegionPlace place;
};

// A call that uses a region keeps it open, whatever happens to its name. Threads: any. Owns
// regions.
class RegionStore {
 public:
  explicit RegionStore(RegionStoreOptions options);

  // Opens memory for requests that say `name`. Errors as Region::Open's; ALREADY_EXISTS: the name
  // is taken; RESOURCE_EXHAUSTED: too many, of all or of the owner; FAILED_PRECONDITION: not
  // enabled.
  absl::Status Register(const std::string& name, RegionPlace place, const RegionOwner& owner);

  // Forgets a name; one that is not known is no error. Anyone who knows a name may.
  void Unregister(const std::string& name);
  // Forgets all that `peer` registered, and nobody else's.
  void UnregisterAll(const std::string& peer);

  // The region, whose lease begins anew. NOT_FOUND.
  absl::StatusOr<std::shared_ptr<const Region>> Find(const std::string& name,
                                                     const std::string& path);

  // By name. Does not renew leases.
  std::vector<NamedRegion> List();

 private:
  struct Entry {
    std::shared_ptr<const Region> region;
    RegionOwner owner;
    absl::Time used;
  };

  // That the name and a place are free. ALREADY_EXISTS, RESOURCE_EXHAUSTED.
  absl::Status CheckFree(const std::string& name, const RegionOwner& owner)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Drops entries whose lease has ended.
  void DropExpired() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const RegionStoreOptions options_;
  engine::Mutex mu_;
  std::map<std::string, Entry> entries_ ABSL_GUARDED_BY(mu_);
};

}  // namespace phasor::regions

#endif  // PHASOR_SERVER_REGIONS_REGION_STORE_H_
