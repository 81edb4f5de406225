// SPDX-License-Identifier: Apache-2.0
// Ends registrations of GPU memory without the interpreter lock.
#include "client/python/native/device_memory.h"

#include <nanobind/nanobind.h>

#include "client/python/native/waiting.h"

namespace phasor::python {

NativeDeviceMemory::NativeDeviceMemory(DeviceMemory memory)
    : memory_(std::move(memory)), generation_(ForkGeneration()) {}

NativeDeviceMemory::~NativeDeviceMemory() {
  if (generation_ != ForkGeneration()) {
    new DeviceMemory(std::move(memory_));  // its connection is the parent's
    return;
  }
  const WithoutLock without;
  memory_.Release().IgnoreError();
}

}  // namespace phasor::python
