// SPDX-License-Identifier: Apache-2.0
// Regions of host memory by name, with an owner and a lifetime. Does not use gRPC.
#ifndef PHASOR_SERVER_MEMORY_REGION_STORE_H_
#define PHASOR_SERVER_MEMORY_REGION_STORE_H_

#include <cstdint>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/base/steady_time.h"
#include "server/base/mutex.h"
#include "server/memory/held_region.h"
#include "server/memory/owner_quotas.h"
#include "server/memory/region.h"
#include "server/memory/region_names.h"

namespace phasor::memory {

struct RegionStoreOptions {
  bool enabled = false;  // otherwise every registration is refused
  std::shared_ptr<RegionNames> names = std::make_shared<RegionNames>();
  OwnerLimits owner_limits = {};
  absl::Duration lease = absl::Hours(1);  // a region is forgotten after this time without use
  std::function<absl::Time()> now = &SteadyNow;
  // Whether a connection is still open. ForgetConnection follows when one closes.
  std::function<bool(const std::string& peer)> is_open = [](const std::string&) { return true; };
};

// The caller of a request.
struct RegionCaller {
  std::string peer = {};      // its connection, by a name that no later one has
  std::string identity = {};  // its identity; empty: unknown
  int64_t max_regions = std::numeric_limits<int64_t>::max();
  bool remote = false;  // on another host, so that it cannot share memory

  const std::string& owner() const { return identity.empty() ? peer : identity; }
};

// How long a region is kept, and for whom.
struct RegionTerms {
  bool for_everybody = false;                     // anyone who knows the name may use and forget it
  absl::Duration ttl = absl::InfiniteDuration();  // at most the store's lease
};

// FAILED_PRECONDITION: shared memory is off, or the caller is on another host.
absl::Status CheckMayShare(bool enabled, const RegionCaller& caller);
// Whether `caller` may use a region that `owner` registered.
bool MayUse(const RegionCaller& caller, const RegionCaller& owner, const RegionTerms& terms);
// Whether only the connection that registered a region may use it.
bool BelongsToConnection(const RegionCaller& owner, const RegionTerms& terms);

// Regions by name. Each entry has an owner, terms, and whether the connection that registered it
// has closed (departed). Functions that remove return what they removed, so that it can be closed
// without the store's lock.
template <typename Entry>
struct RegionEntries : std::map<std::string, Entry> {
  // Removes the entries for which `drop` returns true.
  template <typename Drop>
  RegionEntries Take(Drop drop) {
    RegionEntries taken;
    for (auto entry = this->begin(); entry != this->end();) {
      const auto next = std::next(entry);
      if (drop(entry->second)) taken.insert(this->extract(entry));
      entry = next;
    }
    return taken;
  }
  // Removes those that the caller registered over its connection.
  RegionEntries TakeOf(const RegionCaller& caller) {
    return Take([&](const Entry& entry) {
      return entry.owner.peer == caller.peer && MayUse(caller, entry.owner, entry.terms);
    });
  }
  // Removes those that only the connection could use, which has closed.
  RegionEntries TakeOfConnection(const std::string& peer) {
    return Take([&](Entry& entry) {
      if (entry.owner.peer != peer) return false;
      entry.departed = true;
      return BelongsToConnection(entry.owner, entry.terms);
    });
  }
  RegionEntries TakeDeparted() {
    return Take([](const Entry& entry) { return entry.departed; });
  }
};

struct NamedRegion {
  std::string name;
  RegionPlace place;
  absl::Duration ttl;
};

// The host regions of all clients. Owns them. A call keeps the region that it uses open, also if
// its name is forgotten. Unless it is for everybody, only the owner can see a region; but its name
// is taken for all others too. Threads: any.
class RegionStore {
 public:
  explicit RegionStore(RegionStoreOptions options);
  ~RegionStore();
  RegionStore(const RegionStore&) = delete;
  RegionStore& operator=(const RegionStore&) = delete;

  bool enabled() const { return options_.enabled; }
  absl::Duration lease() const { return options_.lease; }

  // Opens memory that requests can use as `name`. Errors of Region::Open. INVALID_ARGUMENT: not a
  // name. ALREADY_EXISTS: the name is in use. RESOURCE_EXHAUSTED: too many regions in all, or of
  // this owner. FAILED_PRECONDITION: as CheckMayShare.
  absl::Status Register(const std::string& name, RegionPlace place, const RegionCaller& caller,
                        const RegionTerms& terms = {}, const Region::Paths& paths = {});

  // Forgets a name. `released` runs once, when no call uses the region any more, possibly before
  // this returns. NOT_FOUND: no such name; `released` then never runs.
  absl::Status Unregister(const std::string& name, const RegionCaller& caller,
                          absl::AnyInvocable<void()> released = nullptr);
  // Forgets all regions that the caller registered over its connection.
  void UnregisterAll(const RegionCaller& caller);
  // The connection has closed: forgets the regions that it alone could use. Those for everybody
  // stay until their lease ends or all names are taken.
  void ForgetConnection(const std::string& peer);

  // Returns the region and renews its lifetime. NOT_FOUND: no such region. Messages begin with
  // `path`.
  absl::StatusOr<std::shared_ptr<const Region>> Find(const std::string& name,
                                                     const RegionCaller& caller,
                                                     const std::string& path);

  // The regions that the caller may use, ordered by name. Does not renew their lifetime.
  std::vector<NamedRegion> List(const RegionCaller& caller);

  // The open regions, including forgotten ones that calls still use.
  OwnerQuotas::Stats stats();

 private:
  using Held = HeldRegion<const Region>;
  struct Entry {
    RegionNames::Name name;
    std::shared_ptr<Held> held;
    RegionCaller owner;
    RegionTerms terms;
    absl::Time used;
    bool departed = false;  // the connection that registered it has closed
  };
  using Entries = RegionEntries<Entry>;

  // Closes expired regions, and departed ones if the names are `full`.
  void CloseUnneeded(bool full);
  // Removes the expired entries.
  Entries TakeExpired() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const RegionStoreOptions options_;
  const std::shared_ptr<OwnerQuotas> quotas_;
  Mutex mu_;
  Entries entries_ ABSL_GUARDED_BY(mu_);
  // Until then all entries need not be looked at. Uses only delay their ends.
  absl::Time none_expires_before_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();
};

}  // namespace phasor::memory

#endif  // PHASOR_SERVER_MEMORY_REGION_STORE_H_
