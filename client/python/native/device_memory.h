// SPDX-License-Identifier: Apache-2.0
// NativeDeviceMemory: memory of a GPU that is registered with a server, as a Python object.
#ifndef PHASOR_CLIENT_PYTHON_NATIVE_DEVICE_MEMORY_H_
#define PHASOR_CLIENT_PYTHON_NATIVE_DEVICE_MEMORY_H_

#include "client/device_memory.h"

namespace phasor::python {

// Owns a registration. Its end unregisters the memory and waits until no call uses it; in a child
// of fork() it does nothing, because the registration is the parent's. Needs the interpreter lock,
// and gives it up while it waits.
class NativeDeviceMemory {
 public:
  explicit NativeDeviceMemory(DeviceMemory memory);
  NativeDeviceMemory(NativeDeviceMemory&&) = default;
  ~NativeDeviceMemory();

  const DeviceMemory& memory() const { return memory_; }

 private:
  DeviceMemory memory_;
  int generation_;
};

}  // namespace phasor::python

#endif  // PHASOR_CLIENT_PYTHON_NATIVE_DEVICE_MEMORY_H_
