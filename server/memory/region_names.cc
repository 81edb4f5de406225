// SPDX-License-Identifier: Apache-2.0
// Reserves and frees names of regions.
#include "server/memory/region_names.h"

#include "kernels/base/invalid.h"
#include "kernels/base/text.h"

namespace phasor::memory {

absl::StatusOr<RegionNames::Name> RegionNames::Take(const std::string& name,
                                                    std::string_view path) {
  if (name.empty() || name.size() > kMaxRegionNameBytes) {
    return InvalidAt(path, name.size(), " bytes; must be 1 to ", kMaxRegionNameBytes);
  }
  const bool full = Full();
  for (const auto& [store, give_back] : before_taking_) give_back(full);
  MutexLock lock(&mu_);
  if (taken_.contains(name)) {
    return absl::AlreadyExistsError(StrCat(path, ": shared memory region '", name,
                                           "' already in manager; must be a free name"));
  }
  if (taken_.size() >= max_names_) {
    return absl::ResourceExhaustedError(
        StrCat(path, ": too many regions; must be at most ", max_names_));
  }
  taken_.insert(name);
  return Name(shared_from_this(), name);
}

void RegionNames::BeforeTaking(const void* store, GiveBackNames give_back) {
  before_taking_.erase(store);
  if (give_back) before_taking_.emplace(store, std::move(give_back));
}

bool RegionNames::Full() {
  MutexLock lock(&mu_);
  return taken_.size() >= max_names_;
}

void RegionNames::GiveBack(const std::string& name) {
  MutexLock lock(&mu_);
  taken_.erase(name);
}

}  // namespace phasor::memory
