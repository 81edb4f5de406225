// SPDX-License-Identifier: Apache-2.0
// Tensors as the client sees them: views of the caller's memory, and arrays that results own.
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

// 16-bit elements as they are stored; arithmetic on them is the caller's.
struct Float16 {
  uint16_t bits = 0;
  friend bool operator==(const Float16&, const Float16&) = default;
};
struct BFloat16 {
  uint16_t bits = 0;
  friend bool operator==(const BFloat16&, const BFloat16&) = default;
};
// 8-bit results, which nothing is computed in.
struct Float8E4M3 {
  uint8_t bits = 0;
  friend bool operator==(const Float8E4M3&, const Float8E4M3&) = default;
};
struct Float8E5M2 {
  uint8_t bits = 0;
  friend bool operator==(const Float8E5M2&, const Float8E5M2&) = default;
};
float ToFloat(Float16 x);  // all exact
float ToFloat(BFloat16 x);
float ToFloat(Float8E4M3 x);
float ToFloat(Float8E5M2 x);

template <typename T>
struct DtypeOf;  // not defined: T is no element type
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

// Where a tensor on a GPU is (DeviceMemory::View makes them).
struct DevicePlace {
  std::shared_ptr<const DeviceRegistration> memory = {};  // nullptr: it is in the host's memory
  int64_t offset_bytes = 0;
  friend bool operator==(const DevicePlace&, const DevicePlace&) = default;
};

// A tensor in the caller's memory, read only. Borrows `data`; `bytes` is how much memory is there,
// so that a shape that does not fit is an error and not an overrun.
struct TensorView {
  TensorDesc desc;
  const std::byte* data = nullptr;
  int64_t bytes = 0;
  DevicePlace device = {};  // instead of `data`, if it says a place
};

// A tensor in the caller's memory that a call may write. Borrows `data`.
struct MutableTensorView {
  TensorDesc desc;
  std::byte* data = nullptr;
  int64_t bytes = 0;
  DevicePlace device = {};                                             // as TensorView's
  operator TensorView() const { return {desc, data, bytes, device}; }  // NOLINT: of the same
};

// Views of a contiguous container (vector, span, array). `strides` are in elements, empty for dense
// row major. The container must outlive the view.
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

// Memory that a result owns: 64-byte aligned, not initialised.
// Threads: a plain value. Owns the memory.
class Bytes {
 public:
  Bytes() = default;
  // RESOURCE_EXHAUSTED: the system has no such memory. size >= 0.
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

// How a result came to be. Results with equal fingerprint and numerics version have equal bytes.
struct RunInfo {
  std::string spec_fingerprint;
  uint32_t numerics_version = 0;
  std::string backend;
  friend bool operator==(const RunInfo&, const RunInfo&) = default;
};

// A dense row-major array.
// Threads: a plain value, movable. Owns its elements.
template <Element T>
class Array {
 public:
  Array() = default;
  // Takes `bytes`, which hold as many elements as `shape` says.
  Array(std::vector<int64_t> shape, Bytes bytes, RunInfo info = {})
      : shape_(std::move(shape)), bytes_(std::move(bytes)), info_(std::move(info)) {}

  // Zeros. INVALID_ARGUMENT: a negative extent or more than 2^62 bytes; RESOURCE_EXHAUSTED: no
  // such memory.
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
  // How a result came to be; empty for arrays that no call made.
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
