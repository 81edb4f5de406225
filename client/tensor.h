// SPDX-License-Identifier: Apache-2.0
// Tensors of the client: views of the caller's memory, and arrays that results own.
#ifndef PHASOR_CLIENT_TENSOR_H_
#define PHASOR_CLIENT_TENSOR_H_

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/base/dtype.h"
#include "kernels/request/request.h"

namespace phasor {

// 16-bit floats, as stored. This library offers no arithmetic on them.
struct Float16 {
  uint16_t bits = 0;
  friend bool operator==(const Float16&, const Float16&) = default;
};
struct BFloat16 {
  uint16_t bits = 0;
  friend bool operator==(const BFloat16&, const BFloat16&) = default;
};
// 8-bit floats, which occur as results only.
struct Float8E4M3 {
  uint8_t bits = 0;
  friend bool operator==(const Float8E4M3&, const Float8E4M3&) = default;
};
struct Float8E5M2 {
  uint8_t bits = 0;
  friend bool operator==(const Float8E5M2&, const Float8E5M2&) = default;
};
float ToFloat(Float16 x);  // all four are exact
float ToFloat(BFloat16 x);
float ToFloat(Float8E4M3 x);
float ToFloat(Float8E5M2 x);

template <typename T>
struct DtypeOf;  // not defined: T is not an element type
template <>
struct DtypeOf<double> : std::integral_constant<Dtype, Dtype::kFloat64> {};
template <>
struct DtypeOf<float> : std::integral_constant<Dtype, Dtype::kFloat32> {};
template <>
struct DtypeOf<Float16> : std::integral_constant<Dtype, Dtype::kFloat16> {};
template <>
struct DtypeOf<BFloat16> : std::integral_constant<Dtype, Dtype::kBFloat16> {};
template <>
struct DtypeOf<Float8E4M3> : std::integral_constant<Dtype, Dtype::kFloat8E4M3> {};
template <>
struct DtypeOf<Float8E5M2> : std::integral_constant<Dtype, Dtype::kFloat8E5M2> {};
template <>
struct DtypeOf<int32_t> : std::integral_constant<Dtype, Dtype::kInt32> {};
template <>
struct DtypeOf<int64_t> : std::integral_constant<Dtype, Dtype::kInt64> {};

template <typename T>
concept Element = requires {
  DtypeOf<T>::value;
};
// Types that Encode and ApplyRoPE compute in.
template <typename T>
concept ComputeElement = Element<T> && IsComputeDtype(DtypeOf<T>::value);

class DeviceRegistration;

// A tensor's place in GPU memory. DeviceMemory::View makes it.
struct DevicePlace {
  std::shared_ptr<const DeviceRegistration> memory = {};  // nullptr: the tensor is in host memory
  int64_t offset_bytes = 0;
  friend bool operator==(const DevicePlace&, const DevicePlace&) = default;
};

// Memory that holds keys: of this process, or of a GPU (DeviceMemory::Pool). Borrows it.
class KeyPool {
 public:
  KeyPool() = default;
  KeyPool(absl::Span<std::byte> memory) : memory_(memory) {}  // NOLINT: a span is a pool
  KeyPool(std::byte* data, size_t size) : memory_(data, size) {}
  // For DeviceMemory.
  KeyPool(DevicePlace device, int64_t bytes) : device_(std::move(device)), device_bytes_(bytes) {}

  bool on_device() const { return device_.memory != nullptr; }
  // Of this process; empty: the pool is on a GPU.
  absl::Span<std::byte> memory() const { return memory_; }
  const DevicePlace& device() const { return device_; }
  int64_t bytes() const {
    return on_device() ? device_bytes_ : static_cast<int64_t>(memory_.size());
  }

 private:
  absl::Span<std::byte> memory_;
  DevicePlace device_;
  int64_t device_bytes_ = 0;
};

// A tensor in the caller's memory, for reading. Borrows `data`. `bytes` is the size of the memory
// there: a shape that needs more is an error, never an overrun.
struct TensorView {
  TensorDesc desc;
  const std::byte* data = nullptr;
  int64_t bytes = 0;
  DevicePlace device = {};  // used instead of `data` if its memory is set
};

// A tensor in the caller's memory that a call may write. Borrows `data`. Same fields as TensorView.
struct MutableTensorView {
  TensorDesc desc;
  std::byte* data = nullptr;
  int64_t bytes = 0;
  DevicePlace device = {};
  operator TensorView() const { return {desc, data, bytes, device}; }  // NOLINT: of the same
};

// Views of a contiguous container: vector, span or array. `strides` are in elements; empty means
// dense in row-major order. The container must outlive the view.
template <typename C, typename T = std::remove_cv_t<
                          std::remove_pointer_t<decltype(std::data(std::declval<const C&>()))>>>
requires Element<T> TensorView View(const C& values, std::vector<int64_t> shape,
                                    std::vector<int64_t> strides = {}) {
  return {{DtypeOf<T>::value, std::move(shape), std::move(strides)},
          reinterpret_cast<const std::byte*>(std::data(values)),
          static_cast<int64_t>(std::size(values) * sizeof(T))};
}
template <typename C, typename T = std::remove_pointer_t<decltype(std::data(std::declval<C&>()))>>
requires(Element<T> && !std::is_const_v<T>) MutableTensorView
    MutableView(C&& values, std::vector<int64_t> shape, std::vector<int64_t> strides = {}) {
  return {{DtypeOf<T>::value, std::move(shape), std::move(strides)},
          reinterpret_cast<std::byte*>(std::data(values)),
          static_cast<int64_t>(std::size(values) * sizeof(T))};
}

// 64-byte aligned, uninitialised memory of a result. Owns the memory. Threads: a plain value.
class Bytes {
 public:
  Bytes() = default;
  // size >= 0. RESOURCE_EXHAUSTED: the memory cannot be allocated.
  static absl::StatusOr<Bytes> Allocate(int64_t size);

  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  int64_t size() const { return size_; }

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::unique_ptr<std::byte[], Free> data_;
  int64_t size_ = 0;
};

// How a result was computed. Results of equal input, fingerprint and numerics version have equal
// bytes.
struct RunInfo {
  std::string spec_fingerprint;
  uint32_t numerics_version = 0;
  std::string backend;
  friend bool operator==(const RunInfo&, const RunInfo&) = default;
};

// A dense array in row-major order. Owns its elements. Threads: a plain value; movable.
template <Element T>
class Array {
 public:
  Array() = default;
  // Takes over `bytes`, whose size must fit `shape`.
  Array(std::vector<int64_t> shape, Bytes bytes, RunInfo info = {})
      : shape_(std::move(shape)), bytes_(std::move(bytes)), info_(std::move(info)) {}

  // An array of zeros. INVALID_ARGUMENT: a negative extent, or more than 2^62 bytes.
  // RESOURCE_EXHAUSTED: the memory cannot be allocated.
  static absl::StatusOr<Array> Zeros(std::vector<int64_t> shape);

  const std::vector<int64_t>& shape() const { return shape_; }
  size_t size() const { return static_cast<size_t>(bytes_.size()) / sizeof(T); }
  T* data() { return reinterpret_cast<T*>(bytes_.data()); }
  const T* data() const { return reinterpret_cast<const T*>(bytes_.data()); }
  absl::Span<T> span() { return {data(), size()}; }
  absl::Span<const T> span() const { return {data(), size()}; }
  // Entry i of the first dimension; 0 <= i < shape()[0].
  absl::Span<T> row(int64_t i) { return span().subspan(i * row_size(), row_size()); }
  absl::Span<const T> row(int64_t i) const { return span().subspan(i * row_size(), row_size()); }

  MutableTensorView view() {
    return {{DtypeOf<T>::value, shape_, {}}, bytes_.data(), bytes_.size()};
  }
  TensorView view() const {
    return {{DtypeOf<T>::value, shape_, {}}, bytes_.data(), bytes_.size()};
  }
  // How the array was computed. Empty if no call made it.
  const RunInfo& info() const { return info_; }

 private:
  size_t row_size() const { return shape_.empty() || shape_[0] == 0 ? 0 : size() / shape_[0]; }

  std::vector<int64_t> shape_;
  Bytes bytes_;
  RunInfo info_;
};

namespace client_internal {
absl::StatusOr<Bytes> ZeroBytes(const TensorDesc& desc);
}  // namespace client_internal

template <Element T>
absl::StatusOr<Array<T>> Array<T>::Zeros(std::vector<int64_t> shape) {
  auto bytes = client_internal::ZeroBytes({DtypeOf<T>::value, shape, {}});
  if (!bytes.ok()) return bytes.status();
  return Array(std::move(shape), *std::move(bytes));
}

}  // namespace phasor

#endif  // PHASOR_CLIENT_TENSOR_H_
