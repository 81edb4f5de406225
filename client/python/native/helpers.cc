// SPDX-License-Identifier: Apache-2.0
// Calls the Python side of the package, and raises its exceptions.
#include "client/python/native/helpers.h"

#include "kernels/base/invalid.h"
#include "kernels/base/text.h"

namespace phasor::python {

Helpers& TheHelpers() {
  static auto* const helpers = new Helpers;
  return *helpers;
}

nb::object ToException(const absl::Status& status) {
  // Of a server, or of a proxy before it: may be anything.
  const auto message = status.message();
  const nb::object text = nb::steal(PyUnicode_DecodeUTF8(
      message.data(), static_cast<Py_ssize_t>(message.size()), /*errors=*/"replace"));
  if (!text.is_valid()) throw nb::python_error();
  return Call(TheHelpers().error, static_cast<int>(status.code()), text);
}

void Raise(const absl::Status& status) {
  const nb::object exception = ToException(status);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
  throw nb::python_error();
}

void RaiseInvalid(std::string_view path, std::string_view message) {
  Raise(InvalidAt(path, message));
}

void RaiseType(nb::handle value, std::string_view name, std::string_view wanted) {
  const char* const type = Py_TYPE(value.ptr())->tp_name;
  throw nb::type_error(StrCat(name, ": ", type, "; must be ", wanted).c_str());
}

}  // namespace phasor::python
