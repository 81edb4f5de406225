// SPDX-License-Identifier: Apache-2.0
// RegionNames: the names of host and GPU regions together. They share one set, because clients
// unregister both kinds by name alone.
#ifndef PHASOR_SERVER_MEMORY_REGION_NAMES_H_
#define PHASOR_SERVER_MEMORY_REGION_NAMES_H_

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "server/base/mutex.h"

namespace phasor::memory {

inline constexpr size_t kMaxRegionNameBytes = 255;

// The names in use. Lives as long as any of its names. Threads: any.
class RegionNames : public std::enable_shared_from_this<RegionNames> {
 public:
  explicit RegionNames(size_t max_names = 1024) : max_names_(max_names) {}

  // A name in use. The destructor frees it.
  class Name {
   public:
    Name(std::shared_ptr<RegionNames> names, std::string name)
        : names_(std::move(names)), name_(std::move(name)) {}
    Name(Name&&) = default;
    Name& operator=(Name&&) = delete;
    ~Name() {
      if (names_ != nullptr) names_->GiveBack(name_);
    }

   private:
    std::shared_ptr<RegionNames> names_;  // nullptr: moved from
    std::string name_;
  };

  // Reserves a name. INVALID_ARGUMENT: empty or too long. ALREADY_EXISTS: in use.
  // RESOURCE_EXHAUSTED: there are too many names of all owners together. `path` is the name's field
  // in the request.
  absl::StatusOr<Name> Take(const std::string& name, std::string_view path = "name");

  // Sets a function of `store` that is called before a name is reserved. It frees the names of
  // expired regions and, if all names are taken (`full`), of those that only departed callers used.
  // An empty function removes it. Must not run while names are being reserved.
  using GiveBackNames = std::function<void(bool full)>;
  void BeforeTaking(const void* store, GiveBackNames give_back);

 private:
  void GiveBack(const std::string& name);
  bool Full();

  const size_t max_names_;
  std::map<const void*, GiveBackNames> before_taking_;  // by store
  Mutex mu_;
  std::set<std::string> taken_ ABSL_GUARDED_BY(mu_);
};

}  // namespace phasor::memory

#endif  // PHASOR_SERVER_MEMORY_REGION_NAMES_H_
