// SPDX-License-Identifier: Apache-2.0
// Per-owner quotas, in pieces and bytes, on memory that clients share.
#ifndef PHASOR_SERVER_MEMORY_OWNER_QUOTAS_H_
#define PHASOR_SERVER_MEMORY_OWNER_QUOTAS_H_

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/base/mutex.h"

namespace phasor::memory {

// Limits of each owner.
struct OwnerLimits {
  int64_t max_bytes = int64_t{8} << 30;
  int64_t max_pieces = 256;
};

// The quotas of all owners. Lives as long as any share of it. Threads: any.
class OwnerQuotas : public std::enable_shared_from_this<OwnerQuotas> {
 public:
  // `what` is the name of a piece in messages, e.g. "lease".
  OwnerQuotas(OwnerLimits limits, std::string what) : limits_(limits), what_(std::move(what)) {}

  // One counted piece. The destructor returns it to the quota.
  class Share {
   public:
    Share(std::shared_ptr<OwnerQuotas> quotas, std::string owner, int64_t bytes)
        : quotas_(std::move(quotas)), owner_(std::move(owner)), bytes_(bytes) {}
    Share(Share&&) = default;
    Share& operator=(Share&&) = delete;
    ~Share() {
      if (quotas_ != nullptr) quotas_->GiveBack(owner_, bytes_);
    }

   private:
    std::shared_ptr<OwnerQuotas> quotas_;  // nullptr: moved from
    std::string owner_;
    int64_t bytes_;
  };

  // Counts a piece of `bytes` for `owner`. `max_pieces` limits this owner, if it is lower than the
  // common limit. RESOURCE_EXHAUSTED: a limit is reached.
  absl::StatusOr<Share> Take(const std::string& owner, int64_t bytes,
                             int64_t max_pieces = std::numeric_limits<int64_t>::max());

  struct Stats {
    int64_t pieces = 0;
    int64_t bytes = 0;
  };
  // Sum over all owners.
  Stats all() const;

 private:
  void GiveBack(const std::string& owner, int64_t bytes);

  const OwnerLimits limits_;
  const std::string what_;
  mutable Mutex mu_;
  std::map<std::string, Stats> owners_ ABSL_GUARDED_BY(mu_);
};

}  // namespace phasor::memory

#endif  // PHASOR_SERVER_MEMORY_OWNER_QUOTAS_H_
