// SPDX-License-Identifier: Apache-2.0
// Access to memory of other processes on a backend's device, and the state of that device. Jobs
// refer to such memory by its address; only a backend may read or write it.
#ifndef PHASOR_KERNELS_BACKEND_DEVICE_PORT_H_
#define PHASOR_KERNELS_BACKEND_DEVICE_PORT_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace phasor {

// A cudaIpcMemHandle_t: what another process gives for one of its allocations.
inline constexpr size_t kIpcHandleBytes = 64;
using IpcHandle = std::array<std::byte, kIpcHandleBytes>;

// An allocation of another process. It is open as long as this object lives, which must not outlive
// the backend. Keep it until all jobs that use its addresses have run. Threads: any.
class DeviceAllocation {
 public:
  virtual ~DeviceAllocation() = default;
  // Its first byte, in the device's address space; never equal to an address of host memory.
  virtual std::byte* data() const = 0;
  // As much as is mapped from there on: the whole allocation, and more if it is part of a block.
  virtual int64_t bytes() const = 0;
  // False for ever once the device was lost; its contents are lost then too.
  virtual bool usable() const = 0;
  // Copy between the host and bytes [offset, offset + bytes), which must be inside. ABORTED: not
  // usable. UNAVAILABLE: the copy was refused and may work later.
  virtual absl::Status Read(int64_t offset, int64_t bytes, std::byte* out) const = 0;
  virtual absl::Status Write(int64_t offset, int64_t bytes, const std::byte* in) const = 0;
};

// Holds host memory in the budget of whoever returned it, until the last reference goes.
using HostMemoryShare = std::shared_ptr<const void>;
// Called with `bytes` before they are allocated. Must not block. Threads: any.
using CopyBudget = std::function<absl::StatusOr<HostMemoryShare>(int64_t bytes)>;

// The state of a device.
struct DeviceState {
  enum class Kind {
    kWorking,
    kWaiting,  // lost; tried again in a fresh context after a while
    kLost,     // lost; this process does not use it again
  };
  Kind kind = Kind::kWorking;
  std::string error;     // the error of the last loss; empty: never lost
  int64_t losses = 0;    // since the backend was made
  int64_t revivals = 0;  // fresh contexts made
  int64_t wait_ms = 0;   // kWaiting: from the loss to the next attempt
  friend bool operator==(const DeviceState&, const DeviceState&) = default;
};

// What a backend with a device did with the jobs it was given, counted since it was made.
struct DeviceCounts {
  bool usable = true;               // false: the device is lost, and everything runs on the CPU
  int64_t jobs = 0;                 // the device computed them wholly
  int64_t jobs_not_for_it = 0;      // on the CPU: small, not supported, or the device is not usable
  int64_t jobs_that_it_failed = 0;  // begun on the device, computed by the CPU
  int64_t jobs_sooner_on_cpu = 0;   // on the CPU: in host memory, where it is faster
};

// One device of a backend: opens memory on it and reports its state. Threads: any.
class DevicePort {
 public:
  virtual ~DevicePort() = default;
  // The number by which the vendor's runtime knows it in this process, from 0.
  virtual int device_number() const = 0;
  // The vendor's name, and "GPU-" with 32 hexadecimal digits in the usual groups.
  virtual std::string device_name() const = 0;
  virtual std::string device_uuid() const = 0;

  // Opens an allocation. Callers that open the same handle share one opening. INVALID_ARGUMENT: the
  // driver does not know the handle, or the memory is on another device. UNAVAILABLE: the device is
  // lost (Open does not bring it back), or calls still hold memory that they had there before the
  // loss.
  virtual absl::StatusOr<std::shared_ptr<const DeviceAllocation>> Open(const IpcHandle& handle) = 0;

  // Whether a byte of [begin, begin + bytes), bytes > 0, is in an open allocation. Allocations that
  // were lost count as long as they exist.
  virtual bool Holds(const std::byte* begin, int64_t bytes) const = 0;

  // Copies bytes from open allocations to the host. The caller must know that they are there and
  // keep them open. ABORTED, UNAVAILABLE: as in DeviceAllocation.
  virtual absl::Status Read(const std::byte* from, int64_t bytes, std::byte* out) const = 0;

  // Sets who counts the host copies that the CPU needs when it computes on the device's memory in
  // the device's place; an empty function: nobody counts. An error of `budget` becomes the job's
  // error, and the job then has changed nothing. Must not be called while jobs run.
  virtual void SetCopyBudget(CopyBudget budget) = 0;

  virtual DeviceState device_state() const = 0;
  virtual DeviceCounts device_counts() const = 0;
  // Makes a fresh context if the device is lost, its wait is over and nobody uses it. May take
  // seconds. Calls for the device do the same.
  virtual void Retry() = 0;
  // Sets the one function that is called after the kind of the state has changed. It may be called
  // from any thread, several at once, and may use the device, because no locks are held. Another
  // function, or an empty one, replaces it and waits for calls in progress; do not call this from
  // inside one.
  virtual void WatchDevice(std::function<void()> changed) = 0;
};

}  // namespace phasor

#endif  // PHASOR_KERNELS_BACKEND_DEVICE_PORT_H_
