// SPDX-License-Identifier: Apache-2.0
// Turns Python's integers, ranges, lists and arrays into positions.
#include "client/python/native/positions.h"

#include <string>
#include <utility>
#include <vector>

#include "client/python/native/arrays.h"
#include "client/python/native/helpers.h"
#include "kernels/base/text.h"

namespace phasor::python {
namespace {

// The integer, or raises InvalidArgument if it has more than 64 bits.
int64_t Integer(nb::handle value, std::string_view path) {
  int overflow = 0;
  const nb::object index = nb::steal(PyNumber_Index(value.ptr()));
  if (!index.is_valid()) throw nb::python_error();
  const long long integer = PyLong_AsLongLongAndOverflow(index.ptr(), &overflow);
  if (overflow != 0) {
    RaiseInvalid(path, StrCat(nb::cast<std::string>(nb::str(value)),
                              " does not fit 64 bits; positions are in [-2^63, 2^63)"));
  }
  return integer;
}

IntegerRange Range(nb::handle range, std::string_view path) {
  return {.start = Integer(range.attr("start"), path),
          .step = Integer(range.attr("step"), path),
          .count = PyObject_Length(range.ptr())};
}

// Numbers of a list or tuple; nullopt if it has other elements.
std::optional<PositionList> FromNumbers(nb::handle list, std::string_view path) {
  PyObject* const* const items = PySequence_Fast_ITEMS(list.ptr());
  const auto count = static_cast<size_t>(PySequence_Fast_GET_SIZE(list.ptr()));
  bool real = false;
  for (size_t i = 0; i < count; ++i) {
    if (PyFloat_CheckExact(items[i]))
      real = true;
    else if (!PyLong_CheckExact(items[i]))
      return std::nullopt;
  }
  if (!real) {
    std::vector<int64_t> integers(count);
    for (size_t i = 0; i < count; ++i) integers[i] = Integer(items[i], path);
    return PositionList(std::move(integers));
  }
  std::vector<double> reals(count);
  for (size_t i = 0; i < count; ++i) {
    reals[i] = PyFloat_AsDouble(items[i]);
    if (PyErr_Occurred() != nullptr) throw nb::python_error();
  }
  return PositionList(std::move(reals));
}

bool IsPositionDtype(Dtype dtype) {
  return dtype == Dtype::kInt64 || dtype == Dtype::kInt32 || dtype == Dtype::kFloat32 ||
         dtype == Dtype::kFloat64;
}

// Nested lists and arrays of any other type: numpy converts them.
PositionList Converted(nb::handle positions, const char* path, Borrowed& borrowed) {
  const nb::object array = Call(TheHelpers().positions, positions);
  return PositionList(TensorView(Import(array, path, Access::kRead, borrowed)));
}

// Whether the module reads the type of this array without a conversion.
bool HasPositionDtype(nb::handle array) {
  const std::optional<Dtype> dtype = FindDtype(nb::getattr(array, "dtype", nb::none()));
  return dtype.has_value() && IsPositionDtype(*dtype);
}

PositionList FromArray(nb::handle array, const char* path, Borrowed& borrowed) {
  if (!HasPositionDtype(array)) return Converted(array, path, borrowed);
  MutableTensorView view = Import(array, path, Access::kRead, borrowed);
  if (!view.desc.strides.empty() || view.desc.shape.empty()) {
    return Converted(array, path, borrowed);
  }
  return PositionList(TensorView(std::move(view)));
}

AxisRange Axis(nb::handle axis, std::string_view path) {
  if (PyRange_Check(axis.ptr())) return Range(axis, path);
  if (PyLong_Check(axis.ptr())) return IntegerRange{0, 1, Integer(axis, path)};
  if (!PyTuple_Check(axis.ptr()) || PyTuple_Size(axis.ptr()) != 3) {
    throw nb::type_error(
        StrCat(path, ": must be a range, a count, or (start, step, count)").c_str());
  }
  return RealRange{ValueOf<double>(axis[0], path), ValueOf<double>(axis[1], path),
                   Integer(axis[2], path)};
}

}  // namespace

PositionList ImportPositions(nb::handle positions, const char* path, Borrowed& borrowed) {
  PyObject* const object = positions.ptr();
  if (PyRange_Check(object)) return Range(positions, path);
  if (PyBool_Check(object) || positions.is_none()) {
    throw nb::type_error(
        StrCat(path, ": must be an int, a range, a list, an array, a Grid or a Ragged").c_str());
  }
  if (PyLong_Check(object)) return IntegerRange{Integer(positions, path), 1, 1};
  if (PyFloat_Check(object)) return PositionList(std::vector<double>{PyFloat_AsDouble(object)});
  if (PyList_Check(object) || PyTuple_Check(object)) {
    if (auto numbers = FromNumbers(positions, path)) return *std::move(numbers);
    return Converted(positions, path, borrowed);
  }
  if (nb::isinstance<PositionList>(positions)) return nb::cast<PositionList>(positions);
  if (nb::hasattr(positions, "_positions")) {
    return nb::cast<PositionList>(positions.attr("_positions"));
  }
  if (PyIndex_Check(object) && !nb::hasattr(positions, "shape")) {
    return IntegerRange{Integer(positions, path), 1, 1};
  }
  return FromArray(positions, path, borrowed);
}

std::optional<PositionList> ImportOptionalPositions(nb::handle positions, const char* path,
                                                    Borrowed& borrowed) {
  if (positions.is_none()) return std::nullopt;
  return ImportPositions(positions, path, borrowed);
}

PositionList MakeGrid(nb::sequence axes) {
  PositionGrid grid;
  for (nb::handle axis : axes) {
    grid.axes.push_back(Axis(axis, StrCat("positions.grid.axes[", grid.axes.size(), "]")));
  }
  return grid;
}

PositionList MakeRagged(nb::sequence lengths, nb::sequence offsets) {
  RaggedPositions ragged;
  for (nb::handle n : lengths) ragged.lengths.push_back(Integer(n, "positions.ragged.lengths"));
  for (nb::handle n : offsets) ragged.offsets.push_back(Integer(n, "positions.ragged.offsets"));
  return ragged;
}

}  // namespace phasor::python
