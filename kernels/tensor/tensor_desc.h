// SPDX-License-Identifier: Apache-2.0
// The type and shape of a tensor, and the bytes that it takes. Threads: pure functions.
#ifndef PHASOR_KERNELS_TENSOR_TENSOR_DESC_H_
#define PHASOR_KERNELS_TENSOR_TENSOR_DESC_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/base/dtype.h"

namespace phasor {

// A tensor's type and layout. Strides are in elements; empty means dense row major; the last one is
// 1.
struct TensorDesc {
  Dtype dtype = Dtype::kFloat32;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;
  friend bool operator==(const TensorDesc&, const TensorDesc&) = default;
};

// The type and shape of a dense tensor, whose few extents need no memory of their own.
struct DenseDesc {
  Dtype dtype = Dtype::kFloat32;
  absl::InlinedVector<int64_t, 4> shape;
};

// All errors are INVALID_ARGUMENT. Their messages begin with `path` ("item.add_to").

// Extents must be in [0, 2^40].
absl::Status CheckExtents(const TensorDesc& tensor, std::string_view path);
// Checks for FLOAT64, FLOAT32, FLOAT16 or BFLOAT16. `path` is the path of the dtype.
absl::Status CheckComputeDtype(Dtype dtype, std::string_view path);

// For errors: "[2, 3]".
std::string ShapeText(absl::Span<const int64_t> shape);
// Whether an extent is 0.
bool IsEmpty(const TensorDesc& tensor);
// Dense row-major strides in elements. DenseBytes must accept the shape.
std::vector<int64_t> DenseStrides(const std::vector<int64_t>& shape);
// Whether the elements lie in row-major order without holes. Needs as many strides as extents.
bool IsDense(const TensorDesc& tensor);

// Product of the extents times the element size. Fails above 2^62. Extents must be >= 0.
absl::StatusOr<int64_t> DenseBytes(const TensorDesc& tensor, std::string_view path);
absl::StatusOr<int64_t> DenseBytes(const DenseDesc& tensor, std::string_view path);
// Bytes from the first to the last element of a strided view; 0 if an extent is 0. Strides must be
// >= 0 and the view must not overlap itself.
absl::StatusOr<int64_t> SpannedBytes(const TensorDesc& tensor, std::string_view path);

}  // namespace phasor

#endif  // PHASOR_KERNELS_TENSOR_TENSOR_DESC_H_
