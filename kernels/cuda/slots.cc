// SPDX-License-Identifier: Apache-2.0
// Chooses, grows and frees the buffers of chunks in flight.
#include "kernels/cuda/slots.h"

#include <algorithm>
#include <utility>

#include "kernels/base/status_macros.h"

namespace phasor::cuda {
namespace {

// Sizes are powers of two from this one on, so that slots seldom grow.
constexpr int64_t kLeastBytes = 1 << 20;

int64_t RoundUp(int64_t bytes) {
  int64_t size = kLeastBytes;
  while (size < bytes) size *= 2;
  return size;
}

}  // namespace

Slots::~Slots() {
  for (const auto& slot : slots_) Clear(*slot);
}

void Slots::Clear(Slot& slot) {
  if (slot.stream != nullptr) driver_.DestroyStream(std::exchange(slot.stream, nullptr));
  if (slot.host_in != nullptr) driver_.FreePinned(slot.host_in);
  if (slot.host_out != nullptr) driver_.FreePinned(slot.host_out);
  if (slot.device_in != nullptr) driver_.Free(slot.device_in);
  if (slot.device_out != nullptr) driver_.Free(slot.device_out);
  slot.host_in = slot.host_out = slot.device_in = slot.device_out = nullptr;
  slot.capacity = 0;
}

absl::Status Slots::Grow(Slot& slot, int64_t bytes) {
  if (slot.stream != nullptr && slot.capacity >= bytes) return absl::OkStatus();
  Clear(slot);
  PHASOR_ASSIGN_OR_RETURN(slot.stream, driver_.CreateStream());
  const int64_t size = RoundUp(bytes);
  PHASOR_ASSIGN_OR_RETURN(slot.host_in, driver_.AllocatePinned(size));
  PHASOR_ASSIGN_OR_RETURN(slot.host_out, driver_.AllocatePinned(size));
  PHASOR_ASSIGN_OR_RETURN(slot.device_in, driver_.Allocate(size));
  PHASOR_ASSIGN_OR_RETURN(slot.device_out, driver_.Allocate(size));
  slot.capacity = size;
  return absl::OkStatus();
}

absl::StatusOr<Slot*> Slots::Take(int64_t bytes, bool wait) {
  Slot* slot = nullptr;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    const auto can_take = [&] { return !free_.empty() || static_cast<int>(slots_.size()) < most_; };
    if (!can_take() && !wait) return nullptr;
    given_.wait(lock, can_take);
    if (free_.empty()) {
      slot = slots_.emplace_back(std::make_unique<Slot>()).get();
    } else {
      // Take the smallest slot that is large enough, else the largest.
      const auto best = std::min_element(free_.begin(), free_.end(), [&](Slot* a, Slot* b) {
        const bool a_fits = a->capacity >= bytes, b_fits = b->capacity >= bytes;
        if (a_fits != b_fits) return a_fits;
        return a_fits ? a->capacity < b->capacity : a->capacity > b->capacity;
      });
      slot = *best;
      free_.erase(best);
    }
  }
  if (absl::Status grown = Grow(*slot, bytes); !grown.ok()) {
    Clear(*slot);
    Give(slot);
    return grown;
  }
  return slot;
}

void Slots::Give(Slot* slot) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    free_.push_back(slot);
  }
  given_.notify_one();
}

void Slots::Forget() {
  const std::lock_guard<std::mutex> lock(mutex_);
  free_.clear();
  slots_.clear();
}

}  // namespace phasor::cuda
