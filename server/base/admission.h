// SPDX-License-Identifier: Apache-2.0
// Admission by bytes: calls take what they will need before anything is allocated.
#ifndef PHASOR_SERVER_BASE_ADMISSION_H_
#define PHASOR_SERVER_BASE_ADMISSION_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace phasor {

// Bytes taken from a budget, given back by the destructor. Keeps the budget alive.
class Permit {
 public:
  Permit() = default;
  Permit(Permit&& other) noexcept
      : budget_(std::move(other.budget_)), bytes_(std::exchange(other.bytes_, 0)) {}
  Permit& operator=(Permit&& other) noexcept;
  ~Permit();

  int64_t bytes() const { return bytes_; }
  // Splits off at most `bytes` >= 0 into a permit of their own.
  Permit Split(int64_t bytes);

 private:
  friend class Admission;
  using Budget = std::atomic<int64_t>;  // bytes taken
  Permit(std::shared_ptr<Budget> budget, int64_t bytes)
      : budget_(std::move(budget)), bytes_(bytes) {}

  std::shared_ptr<Budget> budget_;
  int64_t bytes_ = 0;
};

// Threads: any.
class Admission {
 public:
  explicit Admission(int64_t limit_bytes)
      : limit_(limit_bytes),
        taken_(std::make_shared<Permit::Budget>(0)),
        held_(std::make_shared<Permit::Budget>(0)) {}

  // UNAVAILABLE: too much is taken at the moment. RESOURCE_EXHAUSTED: `bytes` >= 0 is more than the
  // whole limit, so trying again cannot help. `held`: the part of `bytes` that a permit of Hold,
  // which ends afterwards, counts already.
  absl::StatusOr<Permit> Take(int64_t bytes, int64_t held = 0);

  // Counts what calls that wait for room have in memory, or are about to have, whether or not there
  // is room. Take finds that much less, but always half of the limit, and all of it while nothing
  // is taken: what waits is admitted at last.
  Permit Hold(int64_t bytes);

  // A new limit; what is taken beyond it is given back in its time.
  void SetLimit(int64_t limit_bytes) { limit_.store(limit_bytes, std::memory_order_relaxed); }

  // What is held too, with which it may be more than the limit.
  int64_t taken_bytes() const {
    return taken_->load(std::memory_order_relaxed) + held_->load(std::memory_order_relaxed);
  }
  int64_t limit_bytes() const { return limit_.load(std::memory_order_relaxed); }
  // What is left; less than 0 after a new limit or while much is held.
  int64_t room_bytes() const { return limit_bytes() - taken_bytes(); }

 private:
  std::atomic<int64_t> limit_;
  const std::shared_ptr<Permit::Budget> taken_;
  const std::shared_ptr<Permit::Budget> held_;
};

}  // namespace phasor

#endif  // PHASOR_SERVER_BASE_ADMISSION_H_
