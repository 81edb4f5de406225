// SPDX-License-Identifier: Apache-2.0
// Allocations of other processes that are open on the device, and which addresses are theirs.
#ifndef PHASOR_KERNELS_CUDA_DEVICE_MEMORY_H_
#define PHASOR_KERNELS_CUDA_DEVICE_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend/device_port.h"
#include "kernels/cuda/device_life.h"
#include "kernels/cuda/driver.h"

namespace phasor::cuda {

// Where an address leads.
enum class Place {
  kHost,
  kDevice,
  kGone,  // to an allocation of a context that was lost
};

// Threads: any. Allocations that it gave must end before it does.
class DeviceMemory {
 public:
  // Borrows both.
  DeviceMemory(Driver* driver, DeviceLife* life) : driver_(*driver), life_(*life) {}

  // As DevicePort::Open.
  absl::StatusOr<std::shared_ptr<const DeviceAllocation>> Open(const IpcHandle& handle);

  Place PlaceOf(const std::byte* address) const;

 private:
  class Allocation;

  absl::StatusOr<std::shared_ptr<const DeviceAllocation>> OpenNew(const IpcHandle& handle);
  // That nothing of another context lies there: addresses must not change their meaning while calls
  // know them. Then the allocation is there.
  bool Add(const Allocation* allocation);
  void Remove(const Allocation* allocation);
  absl::Status Copy(const Allocation& allocation, int64_t offset, int64_t bytes, std::byte* out,
                    const std::byte* in);

  Driver& driver_;
  DeviceLife& life_;
  std::mutex open_mutex_;  // one opens at a time; nothing else waits for it
  std::map<IpcHandle, std::weak_ptr<const Allocation>> open_;  // of open_mutex_
  mutable std::shared_mutex ranges_mutex_;
  std::multimap<const std::byte*, const Allocation*> ranges_;  // by first byte
};

}  // namespace phasor::cuda

#endif  // PHASOR_KERNELS_CUDA_DEVICE_MEMORY_H_
