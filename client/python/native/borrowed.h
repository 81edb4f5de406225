// SPDX-License-Identifier: Apache-2.0
// Borrowed: the Python objects whose memory a call uses.
#ifndef PHASOR_CLIENT_PYTHON_NATIVE_BORROWED_H_
#define PHASOR_CLIENT_PYTHON_NATIVE_BORROWED_H_

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>  // every source must see it, or casts of strings differ

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/container/inlined_vector.h"
#include "client/tensor.h"

namespace phasor::python {

namespace nb = nanobind;

// Owns references to Python objects until a call is done. It may be moved and destroyed on any
// thread: references that are dropped without the interpreter lock wait in a list for DropWaiting.
class Borrowed {
 public:
  Borrowed() = default;
  // For calls of a client whose server can be given memory of a GPU: the native client, and its
  // Devices of _devices.py, both of which outlive the calls of Place.
  Borrowed(nb::handle client, nb::handle devices) : client_(client), devices_(devices) {}
  Borrowed(Borrowed&& other) noexcept
      : client_(other.client_), devices_(other.devices_), objects_(std::move(other.objects_)) {
    other.objects_.clear();
  }
  Borrowed& operator=(Borrowed&& other) noexcept {
    objects_.swap(other.objects_);
    return *this;
  }
  ~Borrowed();

  // Needs the interpreter lock.
  void Keep(nb::object object) { objects_.push_back(object.release().ptr()); }
  // Takes the references of another call, too.
  void Take(Borrowed other) {
    objects_.insert(objects_.end(), other.objects_.begin(), other.objects_.end());
    other.objects_.clear();
  }

  // Registers the memory of `array`, which begins at `address` on a GPU, and waits for the work of
  // `stream`. Not set: no server can be given it. Needs the interpreter lock. Raises
  // FailedPrecondition, InvalidArgument and what registering raises.
  std::optional<DevicePlace> Place(nb::handle array, uintptr_t address, nb::handle stream,
                                   std::string_view path);

  // Drops the references that waited for the interpreter lock, which the caller holds.
  static void DropWaiting();

 private:
  nb::handle client_, devices_;
  absl::InlinedVector<PyObject*, 8> objects_;
};

}  // namespace phasor::python

#endif  // PHASOR_CLIENT_PYTHON_NATIVE_BORROWED_H_
