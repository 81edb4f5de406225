// SPDX-License-Identifier: Apache-2.0
// The allocations of other processes that are open on the device, and the addresses that are
// theirs.
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

// Where an address points.
enum class Place {
  kHost,
  kDevice,
  kGone,  // into an allocation of a context that was lost
};

// Opens allocations and looks up addresses. Its allocations must end before it does. Threads: any.
class DeviceMemory {
 public:
  // Borrows both.
  DeviceMemory(Driver* driver, DeviceLife* life) : driver_(*driver), life_(*life) {}

  // See DevicePort::Open.
  absl::StatusOr<std::shared_ptr<const DeviceAllocation>> Open(const IpcHandle& handle);

  Place PlaceOf(const std::byte* address) const;
  // See DevicePort::Holds.
  bool Holds(const std::byte* begin, int64_t bytes) const;
  // See DevicePort::Read.
  absl::Status Read(const std::byte* from, int64_t bytes, std::byte* out) const;

 private:
  class Allocation;

  absl::StatusOr<std::shared_ptr<const DeviceAllocation>> OpenNew(const IpcHandle& handle);
  // Records an allocation. Returns false if one of another context overlaps it: the meaning of an
  // address must not change while calls know it.
  bool Add(const Allocation* allocation);
  void Remove(const Allocation* allocation);
  // Copies between the host and memory of a context, in the direction whose host side is set.
  absl::Status Copy(int64_t context, std::byte* at, int64_t bytes, std::byte* out,
                    const std::byte* in) const;

  Driver& driver_;
  DeviceLife& life_;
  std::mutex open_mutex_;  // one handle is opened at a time; nothing else waits for it
  std::map<IpcHandle, std::weak_ptr<const Allocation>> open_;  // guarded by open_mutex_
  mutable std::shared_mutex ranges_mutex_;
  std::multimap<const std::byte*, const Allocation*> ranges_;  // by first byte
};

}  // namespace phasor::cuda

#endif  // PHASOR_KERNELS_CUDA_DEVICE_MEMORY_H_
