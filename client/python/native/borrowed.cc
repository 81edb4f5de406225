// SPDX-License-Identifier: Apache-2.0
// Keeps references to Python objects, also where no interpreter lock is held, and registers memory
// of GPUs.
#include "client/python/native/borrowed.h"

#include <atomic>
#include <mutex>
#include <vector>

#include "client/python/native/device_memory.h"
#include "client/python/native/helpers.h"

namespace phasor::python {
namespace {

// References without an owner. Never destroyed, because calls may end while the process does.
struct Waiting {
  std::mutex mutex;
  std::vector<PyObject*> objects;
  std::atomic<bool> any = false;
};
Waiting& TheWaiting() {
  static auto* const waiting = new Waiting;
  return *waiting;
}

}  // namespace

Borrowed::~Borrowed() {
  if (objects_.empty()) return;
  if (Py_IsInitialized() && PyGILState_Check()) {
    for (PyObject* object : objects_) Py_DECREF(object);
    return;
  }
  Waiting& waiting = TheWaiting();
  std::lock_guard lock(waiting.mutex);
  waiting.objects.insert(waiting.objects.end(), objects_.begin(), objects_.end());
  waiting.any = true;
}

std::optional<DevicePlace> Borrowed::Place(nb::handle array, uintptr_t address, nb::handle stream,
                                           std::string_view path) {
  if (!devices_.is_valid()) return std::nullopt;
  const nb::object place = Call(nb::object(devices_.attr("place")).ptr(), client_, array, address,
                                stream, nb::str(path.data(), path.size()));
  const nb::object memory = place[0];
  Keep(memory);
  return nb::cast<const NativeDeviceMemory&>(memory)
      .memory()
      .View({}, nb::cast<int64_t>(place[1]))
      .device;
}

void Borrowed::DropWaiting() {
  Waiting& waiting = TheWaiting();
  if (!waiting.any.load(std::memory_order_relaxed)) return;
  std::vector<PyObject*> objects;
  {
    std::lock_guard lock(waiting.mutex);
    objects.swap(waiting.objects);
    waiting.any = false;
  }
  for (PyObject* object : objects) Py_DECREF(object);
}

}  // namespace phasor::python
