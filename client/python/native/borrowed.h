// SPDX-License-Identifier: Apache-2.0
// Borrowed: the Python objects whose memory a call uses.
#ifndef PHASOR_CLIENT_PYTHON_NATIVE_BORROWED_H_
#define PHASOR_CLIENT_PYTHON_NATIVE_BORROWED_H_

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>  // every source must see it, or casts of strings differ

#include <vector>

namespace phasor::python {

namespace nb = nanobind;

// Owns references to Python objects until a call is done. It may be moved and destroyed on any
// thread: references that are dropped without the interpreter lock wait in a list for DropWaiting.
class Borrowed {
 public:
  Borrowed() = default;
  Borrowed(Borrowed&& other) noexcept : objects_(std::move(other.objects_)) {
    other.objects_.clear();
  }
  Borrowed& operator=(Borrowed&& other) noexcept {
    objects_.swap(other.objects_);
    return *this;
  }
  ~Borrowed();

  // Needs the interpreter lock.
  void Keep(nb::object object) { objects_.push_back(object.release().ptr()); }

  // Drops the references that waited for the interpreter lock, which the caller holds.
  static void DropWaiting();

 private:
  std::vector<PyObject*> objects_;
};

}  // namespace phasor::python

#endif  // PHASOR_CLIENT_PYTHON_NATIVE_BORROWED_H_
