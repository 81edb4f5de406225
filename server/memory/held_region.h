// SPDX-License-Identifier: Apache-2.0
// A region as its store keeps it.
#ifndef PHASOR_SERVER_MEMORY_HELD_REGION_H_
#define PHASOR_SERVER_MEMORY_HELD_REGION_H_

#include <memory>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "server/memory/owner_quotas.h"

namespace phasor::memory {

// A region of its owner's quota, which has it back once the region is closed. Calls share it with
// the store.
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

  // What a call holds.
  static std::shared_ptr<R> Use(const std::shared_ptr<HeldRegion>& held) {
    return std::shared_ptr<R>(held, held->region.get());
  }

  OwnerQuotas::Share share;
  std::shared_ptr<R> region;
  absl::AnyInvocable<void()> released;  // written by whoever forgets the name, before it lets go
};

}  // namespace phasor::memory

#endif  // PHASOR_SERVER_MEMORY_HELD_REGION_H_
