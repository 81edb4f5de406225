// SPDX-License-Identifier: Apache-2.0
// Checks shapes and strides of tensors and computes how many bytes they take.
#include "kernels/tensor/tensor_desc.h"

#include <algorithm>

#include "absl/strings/str_join.h"
#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"

namespace phasor {
namespace {

constexpr int64_t kMaxBytes = int64_t{1} << 62;
constexpr int64_t kMaxExtent = int64_t{1} << 40;

absl::Status TooLarge(std::string_view path) {
  return Invalid(path, ": shape times element size passes 2^62 bytes; must be less");
}

absl::Status CheckStrideValues(const TensorDesc& tensor, std::string_view path) {
  if (tensor.strides.size() != tensor.shape.size()) {
    return Invalid(path, ".strides: ", tensor.strides.size(),
                   " entries; must be none or one per dimension (", tensor.shape.size(), ")");
  }
  for (size_t i = 0; i < tensor.strides.size(); ++i) {
    if (tensor.strides[i] >= 0) continue;
    return Invalid(path, ".strides[", i, "]: ", tensor.strides[i], " is negative; must be >= 0");
  }
  if (!tensor.strides.empty() && tensor.strides.back() != 1) {
    return Invalid(path, ".strides[", tensor.strides.size() - 1, "]: ", tensor.strides.back(),
                   "; the last must be 1");
  }
  return absl::OkStatus();
}

// The number of elements from the first to the last of a view that is not empty. In order of
// ascending stride, each dimension must step over everything that the ones before it span: then no
// two indices meet.
absl::StatusOr<int64_t> SpannedElements(const TensorDesc& tensor, std::string_view path) {
  std::vector<size_t> order;
  for (size_t i = 0; i < tensor.shape.size(); ++i) {
    if (tensor.shape[i] > 1) order.push_back(i);
  }
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return tensor.strides[a] < tensor.strides[b]; });
  int64_t spanned = 1;
  for (const size_t i : order) {
    if (tensor.strides[i] < spanned) {
      return Invalid(path, ".strides[", i, "]: ", tensor.strides[i],
                     " makes elements overlap; must be at least ", spanned);
    }
    int64_t step = 0;
    if (__builtin_mul_overflow(tensor.strides[i], tensor.shape[i] - 1, &step) ||
        __builtin_add_overflow(spanned, step, &spanned) || spanned > kMaxBytes) {
      return TooLarge(path);
    }
  }
  return spanned;
}

absl::Status CheckShape(absl::Span<const int64_t> shape, std::string_view path) {
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] >= 0 && shape[i] <= kMaxExtent) continue;
    return Invalid(path, ".shape[", i, "]: ", shape[i], " is out of range; must be in [0, 2^40]");
  }
  return absl::OkStatus();
}

bool IsEmptyShape(absl::Span<const int64_t> shape) {
  return std::find(shape.begin(), shape.end(), 0) != shape.end();
}

absl::StatusOr<int64_t> DenseBytesOf(Dtype dtype, absl::Span<const int64_t> shape,
                                     std::string_view path) {
  PHASOR_RETURN_IF_ERROR(CheckShape(shape, path));
  if (IsEmptyShape(shape)) return 0;
  int64_t bytes = SizeOf(dtype);
  for (const int64_t extent : shape) {
    if (__builtin_mul_overflow(bytes, extent, &bytes) || bytes > kMaxBytes) return TooLarge(path);
  }
  return bytes;
}

}  // namespace

absl::Status CheckExtents(const TensorDesc& tensor, std::string_view path) {
  return CheckShape(tensor.shape, path);
}

std::string ShapeText(absl::Span<const int64_t> shape) {
  return StrCat("[", absl::StrJoin(shape, ", "), "]");
}

bool IsEmpty(const TensorDesc& tensor) { return IsEmptyShape(tensor.shape); }

std::vector<int64_t> DenseStrides(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;)
    strides[i - 1] = strides[i] * std::max<int64_t>(shape[i], 1);
  return strides;
}

bool IsDense(const TensorDesc& tensor) {
  if (tensor.strides.empty()) return true;
  const std::vector<int64_t> dense = DenseStrides(tensor.shape);
  for (size_t d = 0; d < dense.size(); ++d) {
    if (tensor.shape[d] > 1 && tensor.strides[d] != dense[d]) return false;
  }
  return true;
}

absl::Status CheckComputeDtype(Dtype dtype, std::string_view path) {
  if (IsComputeDtype(dtype)) return absl::OkStatus();
  return Invalid(path, ": ", Name(dtype), "; must be FLOAT64, FLOAT32, FLOAT16 or BFLOAT16");
}

absl::StatusOr<int64_t> DenseBytes(const TensorDesc& tensor, std::string_view path) {
  return DenseBytesOf(tensor.dtype, tensor.shape, path);
}

absl::StatusOr<int64_t> DenseBytes(const DenseDesc& tensor, std::string_view path) {
  return DenseBytesOf(tensor.dtype, tensor.shape, path);
}

absl::StatusOr<int64_t> SpannedBytes(const TensorDesc& tensor, std::string_view path) {
  if (tensor.strides.empty()) return DenseBytes(tensor, path);
  PHASOR_RETURN_IF_ERROR(CheckExtents(tensor, path));
  PHASOR_RETURN_IF_ERROR(CheckStrideValues(tensor, path));
  if (IsEmpty(tensor)) return 0;
  PHASOR_ASSIGN_OR_RETURN(const int64_t elements, SpannedElements(tensor, path));
  int64_t bytes = 0;
  if (__builtin_mul_overflow(elements, SizeOf(tensor.dtype), &bytes) || bytes > kMaxBytes) {
    return TooLarge(path);
  }
  return bytes;
}

}  // namespace phasor
