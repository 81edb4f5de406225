// SPDX-License-Identifier: Apache-2.0
// What the native module needs of Python: functions and tables of client/python/phasor/_arrays.py
// and _errors.py.
#ifndef PHASOR_CLIENT_PYTHON_NATIVE_HELPERS_H_
#define PHASOR_CLIENT_PYTHON_NATIVE_HELPERS_H_

#include <nanobind/nanobind.h>

#include <exception>
#include <string_view>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/python/native/gil.h"
#include "kernels/base/text.h"

namespace phasor::python {

namespace nb = nanobind;

// Borrowed pointers that live as long as the process: Setup leaks one reference each, so that no
// destructor runs after the interpreter has ended.
struct Helpers {
  PyObject* kinds = nullptr;         // dict: type of an array -> Kind
  PyObject* find_kind = nullptr;     // function(type) -> Kind, fills in `kinds`
  PyObject* dtypes = nullptr;        // dict: dtype of numpy or torch -> Dtype
  PyObject* find_dtype = nullptr;    // function(dtype) -> Dtype or None, fills in `dtypes`
  PyObject* contiguous = nullptr;    // function(array) -> dense copy in C order
  PyObject* positions = nullptr;     // function(object) -> numpy array of int64 or float64, dense
  PyObject* finish = nullptr;        // function(numpy array, Dtype, like) -> result
  PyObject* cuda_array = nullptr;    // function(array): what __cuda_array_interface__ says of it
  PyObject* torch_stream = nullptr;  // function(tensor): CUDA's stream that torch works on
  PyObject* written = nullptr;       // function(tensor): tells torch that it was written
  PyObject* error = nullptr;         // function(code, message) -> exception
};
Helpers& TheHelpers();

// Calls a helper.
template <typename... Arguments>
nb::object Call(PyObject* function, const Arguments&... arguments) {
  return TakingLock([&] { return nb::object(nb::handle(function)(arguments...)); });
}

// Throws the Python exception of a status, which is not OK. Needs the interpreter lock.
[[noreturn]] void Raise(const absl::Status& status);
nb::object ToException(const absl::Status& status);
// What `make` makes, or the exception that it raises: of several results, one that cannot be made
// must not take the others along.
template <typename Make>
nb::object ObjectOrException(Make make) {
  try {
    return make();
  } catch (nb::python_error& error) {
    return nb::borrow(error.value());
  } catch (const std::exception& error) {  // no memory, above all
    return nb::handle(PyExc_RuntimeError)(error.what());
  }
}
[[noreturn]] void RaiseInvalid(std::string_view path, std::string_view message);

// Throws a TypeError that has the type of `value`.
[[noreturn]] void RaiseType(nb::handle value, std::string_view name, std::string_view wanted);

// A number, bool or text of Python. Raises TypeError if it is none, or an integer of more bits.
template <typename T>
T ValueOf(nb::handle value, std::string_view name) {
  T result;
  if (nb::try_cast(value, result)) return result;
  if constexpr (std::is_same_v<T, bool>) RaiseType(value, name, "a bool");
  if constexpr (std::is_floating_point_v<T>) RaiseType(value, name, "a number");
  if constexpr (std::is_integral_v<T>) {
    RaiseType(value, name, StrCat("an integer of ", sizeof(T) * 8, " bits"));
  }
  RaiseType(value, name, "a str");
}

template <typename T>
T ValueOrRaise(absl::StatusOr<T> value) {
  if (!value.ok()) Raise(value.status());
  return *std::move(value);
}

}  // namespace phasor::python

#endif  // PHASOR_CLIENT_PYTHON_NATIVE_HELPERS_H_
