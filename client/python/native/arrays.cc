// SPDX-License-Identifier: Apache-2.0
// Finds the memory, shape and type of arrays of Python without copying them.
#include "client/python/native/arrays.h"

#include <nanobind/ndarray.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/python/native/helpers.h"
#include "kernels/base/text.h"

namespace phasor::python {
namespace {

// The struct of numpy's array interface, version 3 (`__array_struct__`).
struct ArrayInterface {
  int two;
  int nd;
  char typekind;
  int itemsize;
  int flags;
  Py_intptr_t* shape;
  Py_intptr_t* strides;
  void* data;
  PyObject* descr;
};
constexpr int kAligned = 0x100, kNotSwapped = 0x200, kWriteable = 0x400;

// An array before its strides are looked at. Strides are in elements.
struct RawArray {
  std::optional<Dtype> dtype;  // not set: none of Phasor's
  int64_t item_bytes = 0;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;
  std::byte* data = nullptr;
  bool writable = false;
  bool irregular = false;  // strides or addresses that are no multiples of the element size
};

std::string TypeName(nb::handle object) {
  return nb::cast<std::string>(nb::type_name(object.type()));
}

[[noreturn]] void RaiseDtype(nb::handle array, std::string_view path) {
  const nb::object dtype = nb::getattr(array, "dtype", array.type());
  const std::string name = nb::cast<std::string>(nb::str(nb::handle(dtype)));
  RaiseInvalid(StrCat(path, ".dtype"),
               StrCat(name, " is no type of Phasor; use float64, float32, float16 or bfloat16"));
}

// Types that kind and size tell; other sizes have several types.
std::optional<Dtype> PlainDtype(const ArrayInterface& array) {
  if (array.typekind == 'f' && array.itemsize == 4) return Dtype::kFloat32;
  if (array.typekind == 'f' && array.itemsize == 8) return Dtype::kFloat64;
  if (array.typekind == 'i' && array.itemsize == 8) return Dtype::kInt64;
  if (array.typekind == 'i' && array.itemsize == 4) return Dtype::kInt32;
  return std::nullopt;
}

RawArray FromNumpy(nb::handle object, std::string_view path, Borrowed& borrowed) {
  const nb::object capsule = object.attr("__array_struct__");
  const auto* array =
      static_cast<const ArrayInterface*>(PyCapsule_GetPointer(capsule.ptr(), nullptr));
  if (array == nullptr) throw nb::python_error();
  RawArray raw;
  raw.dtype = PlainDtype(*array);
  if (!raw.dtype.has_value()) raw.dtype = FindDtype(object.attr("dtype"));
  if (!raw.dtype.has_value() && nb::cast<bool>(object.attr("dtype").attr("hasobject"))) {
    RaiseDtype(object, path);  // its bytes are pointers
  }
  if ((array->flags & kNotSwapped) == 0) {
    RaiseInvalid(StrCat(path, ".dtype"), "bytes in another order than this machine's; convert it");
  }
  raw.item_bytes = array->itemsize;
  raw.data = static_cast<std::byte*>(array->data);
  raw.writable = (array->flags & kWriteable) != 0;
  raw.irregular = (array->flags & kAligned) == 0;
  for (int i = 0; i < array->nd; ++i) {
    raw.shape.push_back(array->shape[i]);
    raw.strides.push_back(array->strides[i] / array->itemsize);
    raw.irregular = raw.irregular || array->strides[i] % array->itemsize != 0;
  }
  borrowed.Keep(nb::borrow(object));
  return raw;
}

std::vector<int64_t> Integers(nb::handle tuple) {
  std::vector<int64_t> values;
  for (nb::handle value : tuple) values.push_back(nb::cast<int64_t>(value));
  return values;
}

RawArray FromTorch(nb::handle tensor, std::string_view path, Borrowed& borrowed) {
  if (!nb::cast<bool>(tensor.attr("is_cpu"))) {
    const nb::object place = tensor.attr("device");
    const std::string device = nb::cast<std::string>(nb::str(nb::handle(place)));
    throw nb::type_error(StrCat(path, ": lies on ", device,
                                ", and nothing copies it to the host unasked; pass tensor.cpu()")
                             .c_str());
  }
  if (nb::cast<bool>(tensor.attr("requires_grad"))) {
    RaiseInvalid(path, "requires grad; use phasor.torch.apply_rope, or pass tensor.detach()");
  }
  if (nb::cast<bool>(tensor.attr("is_neg")())) {
    RaiseInvalid(path, "a view with negated values; pass tensor.resolve_neg()");
  }
  RawArray raw;
  raw.dtype = FindDtype(tensor.attr("dtype"));
  raw.item_bytes = nb::cast<int64_t>(tensor.attr("element_size")());
  raw.shape = Integers(tensor.attr("shape"));
  raw.strides = Integers(tensor.attr("stride")());
  raw.data = reinterpret_cast<std::byte*>(nb::cast<uintptr_t>(tensor.attr("data_ptr")()));
  raw.writable = true;
  borrowed.Keep(nb::borrow(tensor));
  return raw;
}

std::optional<Dtype> FromDlpack(nb::dlpack::dtype dtype) {
  using Code = nb::dlpack::dtype_code;
  if (dtype.lanes != 1) return std::nullopt;
  const auto is = [&](Code code, int bits) {
    return dtype.code == static_cast<uint8_t>(code) && dtype.bits == bits;
  };
  if (is(Code::Float, 64)) return Dtype::kFloat64;
  if (is(Code::Float, 32)) return Dtype::kFloat32;
  if (is(Code::Float, 16)) return Dtype::kFloat16;
  if (is(Code::Bfloat, 16)) return Dtype::kBFloat16;
  if (is(Code::Float8_E4M3FN, 8)) return Dtype::kFloat8E4M3;
  if (is(Code::Float8_E5M2, 8)) return Dtype::kFloat8E5M2;
  if (is(Code::Int, 32)) return Dtype::kInt32;
  if (is(Code::Int, 64)) return Dtype::kInt64;
  return std::nullopt;
}

// Everything else that has DLPack or the buffer protocol.
RawArray FromOther(nb::handle object, std::string_view path, Access access, Kind kind,
                   Borrowed& borrowed) {
  using ReadOnly = nb::ndarray<nb::ro>;
  using Writable = nb::ndarray<>;
  ReadOnly array;
  Writable writable;
  const bool may_write = kind != Kind::kReadOnly && nb::try_cast(object, writable);
  if (may_write) array = ReadOnly(writable);
  if (!may_write && !nb::try_cast(object, array)) {
    throw nb::type_error(
        StrCat(path, ": ", TypeName(object), "; must be an array (numpy, torch, DLPack, buffer)")
            .c_str());
  }
  if (array.device_type() != nb::device::cpu::value) {
    throw nb::type_error(
        StrCat(path, ": not in host memory, and nothing copies it there unasked").c_str());
  }
  if (access == Access::kWrite && !may_write) {
    RaiseInvalid(path, StrCat(TypeName(object), " is read-only; pass a writable array"));
  }
  RawArray raw;
  raw.dtype = FromDlpack(array.dtype());
  raw.item_bytes = static_cast<int64_t>(array.itemsize());
  for (size_t i = 0; i < array.ndim(); ++i) {
    raw.shape.push_back(static_cast<int64_t>(array.shape(i)));
    raw.strides.push_back(array.stride(i));
  }
  raw.data = static_cast<std::byte*>(const_cast<void*>(static_cast<const void*>(array.data())));
  raw.writable = may_write;
  auto* const kept = new ReadOnly(std::move(array));
  borrowed.Keep(nb::capsule(kept, [](void* p) noexcept { delete static_cast<ReadOnly*>(p); }));
  return raw;
}

// Gives dimensions of one element the stride that a dense tensor would have there, and drops the
// strides of a dense tensor. Returns whether the service accepts the strides.
bool Normalise(RawArray& raw) {
  int64_t dense = 1, running = 1;
  bool is_dense = true, accepted = !raw.irregular;
  for (size_t d = raw.shape.size(); d-- > 0;) {
    if (raw.shape[d] == 0) {
      raw.strides.clear();
      return true;
    }
    if (raw.shape[d] == 1) raw.strides[d] = d + 1 == raw.shape.size() ? 1 : running;
    if (raw.shape[d] > 1 && raw.strides[d] <= 0) accepted = false;
    if (d + 1 == raw.shape.size() && raw.strides[d] != 1) accepted = false;
    is_dense = is_dense && raw.strides[d] == dense;
    dense *= raw.shape[d];
    running = raw.strides[d] * raw.shape[d];
  }
  if (is_dense) raw.strides.clear();
  return accepted;
}

// Bytes from the first element to the end of the last one. The strides are not negative.
int64_t Spanned(const RawArray& raw) {
  int64_t last = 0, dense = 1;
  for (size_t d = raw.shape.size(); d-- > 0;) {
    if (raw.shape[d] == 0) return 0;
    last += (raw.shape[d] - 1) * (raw.strides.empty() ? dense : raw.strides[d]);
    dense *= raw.shape[d];
  }
  return (last + 1) * raw.item_bytes;
}

RawArray ReadArray(nb::handle array, std::string_view path, Access access, Borrowed& borrowed) {
  const Kind kind = KindOf(array);
  if (kind == Kind::kNumpy) return FromNumpy(array, path, borrowed);
  if (kind == Kind::kTorch) return FromTorch(array, path, borrowed);
  return FromOther(array, path, access, kind, borrowed);
}

RawArray ToRaw(nb::handle array, std::string_view path, Access access, Borrowed& borrowed) {
  RawArray raw = ReadArray(array, path, access, borrowed);
  if (access == Access::kWrite && !raw.writable) {
    RaiseInvalid(path, "a read-only array; pass a writable one");
  }
  return raw;
}

nb::dlpack::dtype PlainDlpack(Dtype dtype) {
  using Code = nb::dlpack::dtype_code;
  const auto bits = static_cast<uint8_t>(SizeOf(dtype) * 8);
  switch (dtype) {
    case Dtype::kFloat64:
    case Dtype::kFloat32:
    case Dtype::kFloat16:
      return {static_cast<uint8_t>(Code::Float), bits, 1};
    case Dtype::kInt32:
    case Dtype::kInt64:
      return {static_cast<uint8_t>(Code::Int), bits, 1};
    default:  // types that numpy has no name for: their bits
      return {static_cast<uint8_t>(Code::UInt), bits, 1};
  }
}

}  // namespace

std::optional<Dtype> FindDtype(nb::handle dtype) {
  PyObject* const known = PyDict_GetItemWithError(TheHelpers().dtypes, dtype.ptr());
  if (known != nullptr) return static_cast<Dtype>(PyLong_AsLong(known));
  if (PyErr_Occurred() != nullptr) throw nb::python_error();
  const nb::object code = Call(TheHelpers().find_dtype, dtype);
  if (code.is_none()) return std::nullopt;
  return static_cast<Dtype>(nb::cast<int>(code));
}

Kind KindOf(nb::handle object) {
  PyObject* const type = reinterpret_cast<PyObject*>(Py_TYPE(object.ptr()));
  PyObject* const known = PyDict_GetItemWithError(TheHelpers().kinds, type);
  if (known != nullptr) return static_cast<Kind>(PyLong_AsLong(known));
  if (PyErr_Occurred() != nullptr) throw nb::python_error();
  return static_cast<Kind>(nb::cast<int>(Call(TheHelpers().find_kind, type)));
}

MutableTensorView Import(nb::handle array, std::string_view path, Access access,
                         Borrowed& borrowed) {
  RawArray raw = ToRaw(array, path, access, borrowed);
  if (!raw.dtype.has_value()) RaiseDtype(array, path);
  if (!Normalise(raw)) {
    if (access == Access::kWrite) {
      RaiseInvalid(StrCat(path, ".strides"),
                   "the last dimension is not contiguous, or elements overlap or run backwards; "
                   "pass another array as out");
    }
    const nb::object dense = Call(TheHelpers().contiguous, array);
    raw = ToRaw(dense, path, access, borrowed);
    Normalise(raw);
  }
  const int64_t bytes = Spanned(raw);
  return {{*raw.dtype, std::move(raw.shape), std::move(raw.strides)}, raw.data, bytes};
}

std::optional<MutableTensorView> ImportOptional(nb::handle array, std::string_view path,
                                                Access access, Borrowed& borrowed) {
  if (array.is_none()) return std::nullopt;
  return Import(array, path, access, borrowed);
}

absl::Span<std::byte> ImportBytes(nb::handle array, std::string_view path, Access access,
                                  Borrowed& borrowed) {
  RawArray raw = ToRaw(array, path, access, borrowed);
  if (!Normalise(raw) || !raw.strides.empty()) {
    RaiseInvalid(StrCat(path, ".strides"), "not contiguous; pass the whole array that holds it");
  }
  return {raw.data, static_cast<size_t>(Spanned(raw))};
}

nb::object ToArray(EncodeResult result, nb::handle like, int64_t batch) {
  if (batch > 0) {
    std::vector<int64_t>& rows = result.output.shape;
    rows[0] /= batch;
    rows.insert(rows.begin(), batch);
  }
  auto bytes = std::make_unique<Bytes>(std::move(result.bytes));
  std::byte* const data = bytes->data();
  nb::capsule owner(bytes.release(), [](void* p) noexcept { delete static_cast<Bytes*>(p); });
  const std::vector<size_t> shape(result.output.shape.begin(), result.output.shape.end());
  static std::byte nothing;  // numpy wants an address also for no elements
  const nb::ndarray<nb::numpy> array(data == nullptr ? &nothing : data, shape.size(), shape.data(),
                                     owner, nullptr, PlainDlpack(result.output.dtype));
  return nb::handle(TheHelpers().finish)(array, static_cast<int>(result.output.dtype), like);
}

nb::object BytesArray(std::byte* data, int64_t size, nb::object owner) {
  const size_t shape = static_cast<size_t>(size);
  static std::byte nothing;
  const nb::ndarray<nb::numpy, uint8_t> array(data == nullptr ? &nothing : data, 1, &shape, owner);
  return nb::cast(array);
}

void MarkWritten(nb::handle arrays) {
  for (nb::handle array : arrays) {
    if (KindOf(array) == Kind::kTorch) Call(TheHelpers().written, array);
  }
}

}  // namespace phasor::python
