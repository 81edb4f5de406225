// SPDX-License-Identifier: Apache-2.0
// Names of regions, of the host's memory and of the device's: one set, because clients forget both
// by name alone.
#ifndef PHASOR_SERVER_MEMORY_REGION_NAMES_H_
#define PHASOR_SERVER_MEMORY_REGION_NAMES_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "server/base/mutex.h"

namespace phasor::memory {

inline constexpr size_t kMaxRegionNameBytes = 255;

// Lives as long as any name of it. Threads: any.
class RegionNames : public std::enable_shared_from_this<RegionNames> {
 public:
  explicit RegionNames(size_t max_names = 1024) : max_names_(max_names) {}

  // A taken name, free again when this goes.
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

  // INVALID_ARGUMENT: empty or too long; ALREADY_EXISTS; RESOURCE_EXHAUSTED: too many of all
  // owners.
  absl::StatusOr<Name> Take(const std::string& name);

  // `give_back` is called before a name is taken: names whose time is over should be free by then.
  // An empty function ends it. Not while names are taken.
  void BeforeTaking(std::function<void()> give_back) { before_taking_ = std::move(give_back); }

 private:
  void GiveBack(const std::string& name);

  const size_t max_names_;
  std::function<void()> before_taking_;  // or none
  Mutex mu_;
  std::set<std::string> taken_ ABSL_GUARDED_BY(mu_);
};

}  // namespace phasor::memory

#endif  // PHASOR_SERVER_MEMORY_REGION_NAMES_H_
