// SPDX-License-Identifier: Apache-2.0
// Buffers for chunks in flight: a few, made when they are first needed and kept.
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

// Threads: any. Owns the slots; borrows the driver.
class Slots {
 public:
  Slots(Driver* driver, int most) : driver_(*driver), most_(most) {}
  ~Slots();
  Slots(const Slots&) = delete;
  Slots& operator=(const Slots&) = delete;

  // A slot of at least `bytes`; waits for one if all are taken, or returns nullptr if not `wait`.
  // The driver's errors when one cannot be made or grown.
  absl::StatusOr<Slot*> Take(int64_t bytes, bool wait);
  // The slot's stream has been synchronized, or the device is lost.
  void Give(Slot* slot);
  // Lets go of everything without giving it back: it went with its context. No slot is taken.
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
