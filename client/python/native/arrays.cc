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
  bool dense = false;      // known to be, and so has no strides
  bool on_gpu = false;
  nb::object stream;  // on a GPU: whose work makes the array; not set: it is made
  nb::handle object;  // the array or, if it had to be copied, its copy
};

std::string TypeName(nb::handle object) {
  return nb::cast<std::string>(nb::type_name(object.type()));
}

[[noreturn]] void RaiseDtype(nb::handle array, ArgName path) {
  const nb::object dtype = nb::getattr(array, "dtype", array.type());
  const std::string name = nb::cast<std::string>(nb::str(nb::handle(dtype)));
  RaiseInvalid(StrCat(path.Text(), ".dtype"),
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

// The first members of numpy's arrays (PyArrayObject_fields), which its macros compile into every
// extension.
struct NumpyArray {
  PyObject_HEAD;
  void* data;
  int nd;
  Py_intptr_t* shape;
  Py_intptr_t* strides;
  PyObject* base;
  PyObject* descr;
  int flags;
};
constexpr int kCContiguous = 0x1;
bool numpy_layout_known = false;

// What most arrays of numpy are: dense, aligned, of a type of Phasor. Not set: something else.
std::optional<RawArray> FromDenseNumpy(nb::handle object) {
  const auto* array = reinterpret_cast<const NumpyArray*>(object.ptr());
  constexpr int kPlain = kCContiguous | kAligned;
  if (!numpy_layout_known || (array->flags & kPlain) != kPlain) return std::nullopt;
  PyObject* const code = PyDict_GetItemWithError(TheHelpers().dtypes, array->descr);
  if (code == nullptr) {
    PyErr_Clear();
    return std::nullopt;
  }
  RawArray raw;
  raw.dtype = static_cast<Dtype>(PyLong_AsLong(code));
  raw.item_bytes = SizeOf(*raw.dtype);
  raw.shape.assign(array->shape, array->shape + array->nd);
  raw.data = static_cast<std::byte*>(array->data);
  raw.writable = (array->flags & kWriteable) != 0;
  raw.dense = true;
  return raw;
}

RawArray FromNumpy(nb::handle object, ArgName path, Borrowed& borrowed) {
  if (auto raw = FromDenseNumpy(object)) {
    borrowed.Keep(nb::borrow(object));
    return *std::move(raw);
  }
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
  if (array->itemsize == 0) RaiseDtype(object, path);  // strides cannot be divided by it
  if ((array->flags & kNotSwapped) == 0) {
    if (nb::cast<bool>(object.attr("dtype").attr("isnative"))) RaiseDtype(object, path);  // fields
    RaiseInvalid(StrCat(path.Text(), ".dtype"),
                 "bytes in another order than this machine's; convert it");
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

[[noreturn]] void RaiseOnGpu(nb::handle array, ArgName path) {
  const nb::object place = nb::getattr(array, "device", nb::str("a GPU"));
  const std::string device = nb::cast<std::string>(nb::str(nb::handle(place)));
  throw nb::type_error(StrCat(path.Text(), ": lies on ", device,
                              ", and nothing copies it to the host unasked; pass a copy there, as "
                              "tensor.cpu(), or rotate it at a server that has the GPU")
                           .c_str());
}

RawArray FromTorch(nb::handle tensor, ArgName path, Borrowed& borrowed) {
  RawArray raw;
  if (!nb::cast<bool>(tensor.attr("is_cpu"))) {
    if (!nb::cast<bool>(tensor.attr("is_cuda"))) RaiseOnGpu(tensor, path);
    raw.on_gpu = true;
    raw.stream = Call(TheHelpers().torch_stream, tensor);
  }
  if (nb::cast<bool>(tensor.attr("requires_grad"))) {
    RaiseInvalid(path.Text(),
                 "requires grad; use phasor.torch.apply_rope, or pass tensor.detach()");
  }
  if (nb::cast<bool>(tensor.attr("is_neg")())) {
    RaiseInvalid(path.Text(), "a view with negated values; pass tensor.resolve_neg()");
  }
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

// An array with __cuda_array_interface__, whose strides are in bytes.
RawArray FromCuda(nb::handle object, Borrowed& borrowed) {
  const nb::object values = Call(TheHelpers().cuda_array, object);
  RawArray raw;
  raw.on_gpu = true;
  raw.data = reinterpret_cast<std::byte*>(nb::cast<uintptr_t>(values[0]));
  if (!values[1].is_none()) raw.dtype = static_cast<Dtype>(nb::cast<int>(values[1]));
  raw.item_bytes = nb::cast<int64_t>(values[2]);
  raw.shape = Integers(values[3]);
  int64_t dense = raw.item_bytes;
  raw.strides.resize(raw.shape.size());
  for (size_t d = raw.shape.size(); d-- > 0; dense *= raw.shape[d]) raw.strides[d] = dense;
  if (!values[4].is_none()) raw.strides = Integers(values[4]);
  for (int64_t& stride : raw.strides) {
    raw.irregular = raw.irregular || stride % raw.item_bytes != 0;
    stride /= raw.item_bytes;
  }
  raw.writable = nb::cast<bool>(values[5]);
  if (!values[6].is_none()) raw.stream = values[6];
  borrowed.Keep(nb::borrow(object));
  return raw;
}

// Everything else that has DLPack or the buffer protocol.
RawArray FromOther(nb::handle object, ArgName path, Access access, Kind kind, Borrowed& borrowed) {
  using ReadOnly = nb::ndarray<nb::ro>;
  using Writable = nb::ndarray<>;
  ReadOnly array;
  Writable writable;
  const bool may_write = kind != Kind::kReadOnly && nb::try_cast(object, writable);
  if (may_write) array = ReadOnly(writable);
  if (!may_write && !nb::try_cast(object, array)) {
    throw nb::type_error(StrCat(path.Text(), ": ", TypeName(object),
                                "; must be an array (numpy, torch, DLPack, buffer)")
                             .c_str());
  }
  const bool on_gpu = array.device_type() == nb::device::cuda::value;
  if (!on_gpu && array.device_type() != nb::device::cpu::value) RaiseOnGpu(object, path);
  if (access == Access::kWrite && !may_write) {
    RaiseInvalid(path.Text(), StrCat(TypeName(object), " is read-only; pass a writable array"));
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
  raw.on_gpu = on_gpu;
  if (on_gpu) raw.stream = nb::int_(1);  // DLPack makes CUDA's default stream wait for the array
  auto* const kept = new ReadOnly(std::move(array));
  borrowed.Keep(nb::capsule(kept, [](void* p) noexcept { delete static_cast<ReadOnly*>(p); }));
  return raw;
}

// Gives dimensions of one element the stride that a dense tensor would have there, and drops the
// strides of a dense tensor. Returns whether the service accepts the strides.
bool Normalise(RawArray& raw) {
  if (raw.dense) return true;
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

RawArray ReadArray(nb::handle array, ArgName path, Access access, Borrowed& borrowed) {
  const Kind kind = KindOf(array);
  if (kind == Kind::kNumpy) return FromNumpy(array, path, borrowed);
  if (kind == Kind::kTorch) return FromTorch(array, path, borrowed);
  if (kind == Kind::kCuda) return FromCuda(array, borrowed);
  return FromOther(array, path, access, kind, borrowed);
}

RawArray ToRaw(nb::handle array, ArgName path, Access access, Borrowed& borrowed) {
  RawArray raw = ReadArray(array, path, access, borrowed);
  raw.object = array;
  if (access == Access::kWrite && !raw.writable) {
    RaiseInvalid(path.Text(), "a read-only array; pass a writable one");
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

void LearnNumpyLayout(nb::handle sample) {
  const nb::object capsule = sample.attr("__array_struct__");
  const auto* told =
      static_cast<const ArrayInterface*>(PyCapsule_GetPointer(capsule.ptr(), nullptr));
  if (told == nullptr) throw nb::python_error();
  const auto* array = reinterpret_cast<const NumpyArray*>(sample.ptr());
  const nb::object descr = sample.attr("dtype");
  constexpr int kFlags = kCContiguous | kAligned | kWriteable;
  numpy_layout_known = array->data == told->data && array->nd == 2 && array->shape[0] == 2 &&
                       array->shape[1] == 3 && array->strides[1] == 4 &&
                       array->descr == descr.ptr() && (array->flags & kFlags) == kFlags;
}

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
  return static_cast<Kind>(nb::cast<int>(Call(TheHelpers().find_kind, nb::handle(type))));
}

namespace {

// An array with strides that the service accepts: `array`, or a copy for reading.
RawArray ToTensor(nb::handle array, ArgName path, Access access, Borrowed& borrowed) {
  RawArray raw = ToRaw(array, path, access, borrowed);
  if (!raw.dtype.has_value()) RaiseDtype(array, path);
  if (!Normalise(raw)) {
    if (access == Access::kWrite) {
      RaiseInvalid(StrCat(path.Text(), ".strides"),
                   "the last dimension is not contiguous, or elements overlap or run backwards; "
                   "pass another array as out");
    }
    const nb::object dense = Call(TheHelpers().contiguous, array);
    raw = ToRaw(dense, path, access, borrowed);
    Normalise(raw);
  }
  return raw;
}

MutableTensorView HostView(RawArray raw) {
  const int64_t bytes = Spanned(raw);
  return {{*raw.dtype, std::move(raw.shape), std::move(raw.strides)}, raw.data, bytes};
}

DevicePlace PlaceOnGpu(const RawArray& raw, ArgName path, Borrowed& borrowed) {
  const nb::object stream = raw.stream.is_valid() ? raw.stream : nb::none();
  auto place =
      borrowed.Place(raw.object, reinterpret_cast<uintptr_t>(raw.data), stream, path.Text());
  if (!place.has_value()) RaiseOnGpu(raw.object, path);
  return *std::move(place);
}

}  // namespace

MutableTensorView Import(nb::handle array, ArgName path, Access access, Borrowed& borrowed) {
  RawArray raw = ToTensor(array, path, access, borrowed);
  if (raw.on_gpu) RaiseOnGpu(array, path);
  return HostView(std::move(raw));
}

MutableTensorView ImportTensor(nb::handle array, ArgName path, Access access, Borrowed& borrowed) {
  RawArray raw = ToTensor(array, path, access, borrowed);
  const int64_t bytes = Spanned(raw);
  if (!raw.on_gpu || bytes == 0) return HostView(std::move(raw));
  DevicePlace place = PlaceOnGpu(raw, path, borrowed);
  return {
      {*raw.dtype, std::move(raw.shape), std::move(raw.strides)}, nullptr, bytes, std::move(place)};
}

std::optional<MutableTensorView> ImportOptional(nb::handle array, ArgName path, Access access,
                                                Borrowed& borrowed) {
  if (array.is_none()) return std::nullopt;
  return ImportTensor(array, path, access, borrowed);
}

KeyPool ImportBytes(nb::handle array, ArgName path, Access access, Borrowed& borrowed) {
  RawArray raw = ToRaw(array, path, access, borrowed);
  if (!Normalise(raw) || !raw.strides.empty()) {
    RaiseInvalid(StrCat(path.Text(), ".strides"),
                 "not contiguous; pass the whole array that holds it");
  }
  const int64_t bytes = Spanned(raw);
  if (!raw.on_gpu || bytes == 0) return {raw.data, static_cast<size_t>(bytes)};
  return {PlaceOnGpu(raw, path, borrowed), bytes};
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
  return Call(TheHelpers().finish, array, static_cast<int>(result.output.dtype), like);
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
