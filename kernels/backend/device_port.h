// SPDX-License-Identifier: Apache-2.0
// Memory of other processes on the device of a backend, and how that device fares. Jobs name such
// memory by its address; nothing but a backend may touch what is there.
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

// What another process gives of an allocation: a cudaIpcMemHandle_t.
inline constexpr size_t kIpcHandleBytes = 64;
using IpcHandle = std::array<std::byte, kIpcHandleBytes>;

// An allocation of another process, open here for as long as this lives, which must be less than
// the backend does. Whoever gives its addresses to jobs keeps it until they have run. Threads: any.
class DeviceAllocation {
 public:
  virtual ~DeviceAllocation() = default;
  // Its first byte, an address of the device that no memory of the host has.
  virtual std::byte* data() const = 0;
  // All of it, as the driver knows it.
  virtual int64_t bytes() const = 0;
  // False for good once the device was lost, and what the memory held with it.
  virtual bool usable() const = 0;
  // Copies between the host and bytes [offset, offset + bytes), which are inside. ABORTED: not
  // usable; UNAVAILABLE: the copy was refused, and may work later.
  virtual absl::Status Read(int64_t offset, int64_t bytes, std::byte* out) const = 0;
  virtual absl::Status Write(int64_t offset, int64_t bytes, const std::byte* in) const = 0;
};

// Memory of the host that whoever gave this counts as taken until it goes.
using HostMemoryShare = std::shared_ptr<const void>;
// Asked for `bytes` before they are allocated; must not block. Threads: any.
using CopyBudget = std::function<absl::StatusOr<HostMemoryShare>(int64_t bytes)>;

struct DeviceState {
  enum class Kind {
    kWorking,
    kWaiting,  // lost, and tried again in a fresh context after a while
    kLost,     // lost, and not used again by this process
  };
  Kind kind = Kind::kWorking;
  std::string error;     // that it was lost with last; empty: never
  int64_t losses = 0;    // since the backend was made
  int64_t revivals = 0;  // fresh contexts that were made
  int64_t wait_ms = 0;   // kWaiting: from the loss to the next attempt
  friend bool operator==(const DeviceState&, const DeviceState&) = default;
};

// Threads: any.
class DevicePort {
 public:
  virtual ~DevicePort() = default;
  // As its maker says it, and "GPU-" and 32 hexadecimal digits in the usual groups.
  virtual std::string device_name() const = 0;
  virtual std::string device_uuid() const = 0;

  // Opens an allocation; one handle is opened once, however many ask. INVALID_ARGUMENT: the driver
  // does not know the handle, or its memory is on another device; UNAVAILABLE: the device is lost,
  // which this does not change, or calls still hold what it had there before.
  virtual absl::StatusOr<std::shared_ptr<const DeviceAllocation>> Open(const IpcHandle& handle) = 0;

  // Who counts the copies that the CPU needs to compute on the device's memory in its place; an
  // empty function: nobody. An error of it is the job's, which is then as if it had not begun. Not
  // while jobs run.
  virtual void SetCopyBudget(CopyBudget budget) = 0;

  virtual DeviceState device_state() const = 0;
  // Makes a fresh context, which may take seconds, if the device is lost, its wait is over and
  // nobody uses it. Calls that are for the device do so too.
  virtual void Retry() = 0;
  // `changed` is called after the kind of the state has changed, from any thread, several at once
  // and without locks, so that it may use the device. One watches; another function, or an empty
  // one, ends that and waits for calls that go on: not from inside one.
  virtual void WatchDevice(std::function<void()> changed) = 0;
};

}  // namespace phasor

#endif  // PHASOR_KERNELS_BACKEND_DEVICE_PORT_H_
