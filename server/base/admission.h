// SPDX-License-Identifier: Apache-2.0
// Admission by bytes: a call reserves the bytes that it will need before anything is allocated.
#ifndef PHASOR_SERVER_BASE_ADMISSION_H_
#define PHASOR_SERVER_BASE_ADMISSION_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace phasor {

// Bytes reserved from a budget. The destructor returns them. Keeps the budget alive.
// Threads: a plain value; permits of one budget may belong to different threads.
class Permit {
 public:
  Permit() = default;
  Permit(Permit&& other) noexcept
      : budget_(std::move(other.budget_)), bytes_(std::exchange(other.bytes_, 0)) {}
  Permit& operator=(Permit&& other) noexcept;
  ~Permit();

  int64_t bytes() const { return bytes_; }
  // Moves at most `bytes` >= 0 to a new permit.
  Permit Split(int64_t bytes);

 private:
  friend class Admission;
  using Budget = std::atomic<int64_t>;  // reserved bytes
  Permit(std::shared_ptr<Budget> budget, int64_t bytes)
      : budget_(std::move(budget)), bytes_(bytes) {}

  std::shared_ptr<Budget> budget_;
  int64_t bytes_ = 0;
};

// A budget of bytes. Threads: any.
class Admission {
 public:
  explicit Admission(int64_t limit_bytes)
      : limit_(limit_bytes),
        taken_(std::make_shared<Permit::Budget>(0)),
        held_(std::make_shared<Permit::Budget>(0)) {}

  // Reserves `bytes` >= 0. UNAVAILABLE: too much is reserved at the moment. RESOURCE_EXHAUSTED:
  // `bytes` is more than the whole limit, so a retry cannot help. `held`: the part of `bytes` that
  // a permit of Hold already counts. That permit must end afterwards.
  absl::StatusOr<Permit> Take(int64_t bytes, int64_t held = 0);

  // Counts memory that waiting calls hold or will soon hold, whether or not there is room. Take
  // then finds less room, but never less than half of the limit, and all of it while nothing is
  // taken. So a waiting call is always admitted at last.
  Permit Hold(int64_t bytes);

  // Sets a new limit. If more is taken at the moment, it is returned as its permits end.
  void SetLimit(int64_t limit_bytes) { limit_.store(limit_bytes, std::memory_order_relaxed); }

  // Taken and held bytes together. This may be more than the limit.
  int64_t taken_bytes() const {
    return taken_->load(std::memory_order_relaxed) + held_->load(std::memory_order_relaxed);
  }
  int64_t limit_bytes() const { return limit_.load(std::memory_order_relaxed); }
  // Bytes left. Negative after the limit was lowered, or while much is held.
  int64_t room_bytes() const { return limit_bytes() - taken_bytes(); }

 private:
  std::atomic<int64_t> limit_;
  const std::shared_ptr<Permit::Budget> taken_;
  const std::shared_ptr<Permit::Budget> held_;
};

}  // namespace phasor

#endif  // PHASOR_SERVER_BASE_ADMISSION_H_
