// SPDX-License-Identifier: Apache-2.0
// Regions of shared memory by name, with an owner and a time to live. Knows nothing of gRPC.
#ifndef PHASOR_SERVER_MEMORY_REGION_STORE_H_
#define PHASOR_SERVER_MEMORY_REGION_STORE_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "server/base/mutex.h"
#include "server/memory/held_region.h"
#include "server/memory/owner_quotas.h"
#include "server/memory/region.h"
#include "server/memory/region_names.h"

namespace phasor::memory {

struct RegionStoreOptions {
  bool enabled = false;  // else every registration is refused
  std::shared_ptr<RegionNames> names = std::make_shared<RegionNames>();
  OwnerLimits owner_limits = {};
  absl::Duration lease = absl::Hours(1);  // a region unused for so long is forgotten
  std::function<absl::Time()> now = [] { return absl::Now(); };
};

// Who calls.
struct RegionCaller {
  std::string peer = {};      // the connection
  std::string identity = {};  // who that is; empty: nobody knows
  int64_t max_regions = std::numeric_limits<int64_t>::max();
  bool remote = false;  // from another host, which shares no memory with this one

  const std::string& owner() const { return identity.empty() ? peer : identity; }
};

// How a region is kept.
struct RegionTerms {
  bool for_everybody = false;                     // who knows the name may use and forget it
  absl::Duration ttl = absl::InfiniteDuration();  // but never longer than the store's lease
};

// FAILED_PRECONDITION: shared memory is off, or the caller is on another host.
absl::Status CheckMayShare(bool enabled, const RegionCaller& caller);
// Whether a region that `owner` registered exists for the caller.
bool MayUse(const RegionCaller& caller, const RegionCaller& owner, const RegionTerms& terms);

struct NamedRegion {
  std::string name;
  RegionPlace place;
  absl::Duration ttl;
};

// A call that uses a region keeps it open, whatever happens to its name. What is not for everybody
// exists for its owner only, but for the name, which others cannot take. Threads: any. Owns
// regions.
class RegionStore {
 public:
  explicit RegionStore(RegionStoreOptions options);
  ~RegionStore();
  RegionStore(const RegionStore&) = delete;
  RegionStore& operator=(const RegionStore&) = delete;

  bool enabled() const { return options_.enabled; }
  absl::Duration lease() const { return options_.lease; }

  // Opens memory for requests that say `name`. Errors as Region::Open's; INVALID_ARGUMENT: no
  // name; ALREADY_EXISTS: the name is taken; RESOURCE_EXHAUSTED: too many, of all or of the owner;
  // FAILED_PRECONDITION: not enabled, or the caller is on another host.
  absl::Status Register(const std::string& name, RegionPlace place, const RegionCaller& caller,
                        const RegionTerms& terms = {}, const Region::Paths& paths = {});

  // Forgets a name. `released` runs once when no call uses the region any more, perhaps before
  // this returns. NOT_FOUND, and it never runs: no such name.
  absl::Status Unregister(const std::string& name, const RegionCaller& caller,
                          absl::AnyInvocable<void()> released = nullptr);
  // Forgets all that came over the caller's own connection.
  void UnregisterAll(const RegionCaller& caller);

  // The region, whose time begins anew. NOT_FOUND. Messages begin with `path`.
  absl::StatusOr<std::shared_ptr<const Region>> Find(const std::string& name,
                                                     const RegionCaller& caller,
                                                     const std::string& path);

  // What the caller may use, by name. Renews nothing.
  std::vector<NamedRegion> List(const RegionCaller& caller);

  // What is open: regions, and what calls still use of those that are forgotten.
  OwnerQuotas::Stats stats();

 private:
  using Held = HeldRegion<const Region>;
  struct Entry {
    RegionNames::Name name;
    std::shared_ptr<Held> held;
    RegionCaller owner;
    RegionTerms terms;
    absl::Time used;
  };
  using Entries = std::map<std::string, Entry>;

  // Takes out what `drop` says, to be closed without the lock.
  template <typename Drop>
  Entries Take(Drop drop) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CloseExpired();
  // Those whose time is over.
  Entries TakeExpired() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const RegionStoreOptions options_;
  const std::shared_ptr<OwnerQuotas> quotas_;
  Mutex mu_;
  Entries entries_ ABSL_GUARDED_BY(mu_);
};

// The regions that one caller may use.
struct CallerRegions {
  RegionStore* store = nullptr;  // nullptr: none; must outlive the caller's calls
  RegionCaller caller = {};

  bool enabled() const { return store != nullptr && store->enabled(); }
  absl::StatusOr<std::shared_ptr<const Region>> Find(const std::string& name,
                                                     const std::string& path) const {
    return store->Find(name, caller, path);
  }
};

}  // namespace phasor::memory

#endif  // PHASOR_SERVER_MEMORY_REGION_STORE_H_
