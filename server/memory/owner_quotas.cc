// SPDX-License-Identifier: Apache-2.0
// Counts pieces and bytes per owner.
#include "server/memory/owner_quotas.h"

#include <algorithm>

#include "kernels/base/text.h"

namespace phasor::memory {

absl::StatusOr<OwnerQuotas::Share> OwnerQuotas::Take(const std::string& owner, int64_t bytes,
                                                     int64_t max_pieces) {
  const int64_t most = std::min(max_pieces, limits_.max_pieces);
  MutexLock lock(&mu_);
  const auto found = owners_.find(owner);
  const Stats has = found == owners_.end() ? Stats() : found->second;
  if (has.pieces >= most) {
    return absl::ResourceExhaustedError(
        StrCat(what_, ": ", has.pieces, " are held already; must be at most ", most));
  }
  if (bytes > limits_.max_bytes - has.bytes) {
    return absl::ResourceExhaustedError(StrCat(what_, ": ", bytes, " bytes beside ", has.bytes,
                                               "; must be at most ", limits_.max_bytes,
                                               " together"));
  }
  owners_[owner] = {has.pieces + 1, has.bytes + bytes};
  return Share(shared_from_this(), owner, bytes);
}

void OwnerQuotas::GiveBack(const std::string& owner, int64_t bytes) {
  MutexLock lock(&mu_);
  Stats& has = owners_[owner];
  has.bytes -= bytes;
  if (--has.pieces == 0) owners_.erase(owner);
}

OwnerQuotas::Stats OwnerQuotas::all() const {
  MutexLock lock(&mu_);
  Stats all;
  for (const auto& [owner, has] : owners_) {
    all.pieces += has.pieces;
    all.bytes += has.bytes;
  }
  return all;
}

}  // namespace phasor::memory
