// SPDX-License-Identifier: Apache-2.0
// Keeps references to Python objects, also where no interpreter lock is held.
#include "client/python/native/borrowed.h"

#include <atomic>
#include <mutex>
#include <utility>

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
