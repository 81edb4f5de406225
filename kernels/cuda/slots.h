// SPDX-License-Identifier: Apache-2.0
// Buffers for chunks in flight. Made when they are first needed, then kept.
#ifndef PHASOR_KERNELS_CUDA_SLOTS_H_
#define PHASOR_KERNELS_CUDA_SLOTS_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/cuda/driver.h"

namespace phasor::cuda {

// A stream and four buffers of `capacity` bytes.
struct Slot {
  Stream stream = nullptr;
  std::byte* host_in = nullptr;
  std::byte* host_out = nullptr;
  std::byte* device_in = nullptr;
  std::byte* device_out = nullptr;
  int64_t capacity = 0;
};

// Lends slots to callers, at most `most` of them. Owns the slots, borrows the driver. Threads: any.
class Slots {
 public:
  Slots(Driver* driver, int most) : driver_(*driver), most_(most) {}
  ~Slots();
  Slots(const Slots&) = delete;
  Slots& operator=(const Slots&) = delete;

  // Takes a slot of at least `bytes`. If all are taken, waits for one, or returns nullptr if `wait`
  // is false. Returns the driver's errors if a slot cannot be made or grown.
  absl::StatusOr<Slot*> Take(int64_t bytes, bool wait);
  // Gives a slot back. Its stream must have been synchronized, or the device must be lost.
  void Give(Slot* slot);
  // Drops all slots without freeing them, because they ended with their context. No slot may be
  // taken.
  void Forget();

 private:
  absl::Status Grow(Slot& slot, int64_t bytes);
  void Clear(Slot& slot);

  Driver& driver_;
  const int most_;
  std::mutex mutex_;
  std::condition_variable given_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::vector<Slot*> free_;
};

}  // namespace phasor::cuda

#endif  // PHASOR_KERNELS_CUDA_SLOTS_H_
