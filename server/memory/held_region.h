// SPDX-License-Identifier: Apache-2.0
// HeldRegion: a region with its share of a quota.
#ifndef PHASOR_SERVER_MEMORY_HELD_REGION_H_
#define PHASOR_SERVER_MEMORY_HELD_REGION_H_

#include <memory>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "server/memory/owner_quotas.h"

namespace phasor::memory {

// A region and its owner's share of the quota, which is returned when the region is closed. The
// store and calls hold it together.
template <typename R>
struct HeldRegion {
  HeldRegion(OwnerQuotas::Share s, std::shared_ptr<R> r)
      : share(std::move(s)), region(std::move(r)) {}
  HeldRegion(const HeldRegion&) = delete;
  HeldRegion& operator=(const HeldRegion&) = delete;
  ~HeldRegion() {
    region.reset();
    { const OwnerQuotas::Share given_back(std::move(share)); }
    if (released != nullptr) released();
  }

  // The reference that a call holds.
  static std::shared_ptr<R> Use(const std::shared_ptr<HeldRegion>& held) {
    return std::shared_ptr<R>(held, held->region.get());
  }

  OwnerQuotas::Share share;
  std::shared_ptr<R> region;
  absl::AnyInvocable<void()> released;  // set by whoever forgets the name
};

}  // namespace phasor::memory

#endif  // PHASOR_SERVER_MEMORY_HELD_REGION_H_
