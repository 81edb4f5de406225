// SPDX-License-Identifier: Apache-2.0
// Arrays of Python as tensors: numpy, torch, and everything with DLPack or the buffer protocol.
// All functions need the interpreter lock.
#ifndef PHASOR_CLIENT_PYTHON_NATIVE_ARRAYS_H_
#define PHASOR_CLIENT_PYTHON_NATIVE_ARRAYS_H_

#include <nanobind/nanobind.h>

#include <optional>
#include <string>

#include "client/connection.h"
#include "client/python/native/borrowed.h"
#include "client/tensor.h"

namespace phasor::python {

// What an array is to this module. _arrays.py has the same numbers.
enum class Kind : int { kNone = 0, kNumpy = 1, kTorch = 2, kReadOnly = 3, kOther = 4, kCuda = 5 };
Kind KindOf(nb::handle object);

enum class Access { kRead, kWrite };

// The name of an argument, or of one of several: "out[1]".
struct ArgName {
  ArgName(const char* of, int i = -1) : name(of), index(i) {}  // NOLINT: a text is a name
  std::string Text() const {
    return index < 0 ? name : std::string(name) + "[" + std::to_string(index) + "]";
  }

  const char* name;
  int index;
};

// Reads arrays of numpy by the layout of its objects from now on, if `sample`, a float32 array of
// shape [2, 3], has the layout that all versions have had so far.
void LearnNumpyLayout(nb::handle sample);

// The type that a dtype object of numpy, ml_dtypes or torch stands for, or nullopt.
std::optional<Dtype> FindDtype(nb::handle dtype);

// The memory of `array`, which `borrowed` keeps alive. For reading, an array whose last dimension
// is not contiguous, or that has negative strides, is copied. Raises InvalidArgument: for writing,
// such an array or a read-only one; an element type that Phasor does not have. Raises TypeError:
// not an array, or not in host memory.
MutableTensorView Import(nb::handle array, ArgName path, Access access, Borrowed& borrowed);

// The same for an array that may also lie on a GPU, where the client of `borrowed` has a server.
// Waits for the work on the GPU that makes the array. Raises FailedPrecondition: the server cannot
// be given that memory.
MutableTensorView ImportTensor(nb::handle array, ArgName path, Access access, Borrowed& borrowed);

// The same for None, which is nullopt.
std::optional<MutableTensorView> ImportOptional(nb::handle array, ArgName path, Access access,
                                                Borrowed& borrowed);

// All bytes of `array`, whatever its type, which `borrowed` keeps alive. Raises InvalidArgument:
// not contiguous; for writing, a read-only array. Raises TypeError and FailedPrecondition as
// ImportTensor.
KeyPool ImportBytes(nb::handle array, ArgName path, Access access, Borrowed& borrowed);

// The rows that a call made, as an array of the kind of `like`, or of numpy if that is None.
// Takes the memory over. If `batch` is not 0, the rows are divided into so many entries.
nb::object ToArray(EncodeResult result, nb::handle like, int64_t batch = 0);

// A writable numpy array of bytes over memory that `owner` keeps.
nb::object BytesArray(std::byte* data, int64_t size, nb::object owner);

// Tells torch that the tensors were written. Other arrays have no such count.
void MarkWritten(nb::handle arrays);

}  // namespace phasor::python

#endif  // PHASOR_CLIENT_PYTHON_NATIVE_ARRAYS_H_
