// SPDX-License-Identifier: Apache-2.0
// What every connection does with a call: turn it into a request, check that the caller's memory
// holds what its shapes say, and move strided tensors. Threads: pure functions.
#ifndef PHASOR_CLIENT_COMMON_CALLS_H_
#define PHASOR_CLIENT_COMMON_CALLS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/connection.h"
#include "kernels/backend/batch.h"
#include "kernels/request/bias.h"
#include "kernels/request/request.h"

namespace phasor::client_internal {

// Path of the only item of a unary call, and of item i of a batch.
inline constexpr std::string_view kItemPath = "item";
std::string BatchItemPath(size_t i);

// The request that `call` stands for. INVALID_ARGUMENT: memory smaller than a shape, strides where
// there may be none, inputs and outputs that differ, memory of a GPU that was not registered with
// `connection` (nullptr: any). FAILED_PRECONDITION: such memory that was released. All else is the
// service's to check.
absl::StatusOr<EncodeRequest> ToRequest(const EncodeCall& call, std::string_view path,
                                        const void* connection = nullptr);
absl::StatusOr<RopeRequest> ToRequest(const RopeCall& call, std::string_view path,
                                      const void* connection = nullptr);
absl::StatusOr<BiasRequest> ToRequest(const BiasCall& call, std::string_view path);

// INVALID_ARGUMENT unless `values` is a dense table in enough memory.
absl::Status CheckTableValues(const TensorView& values, std::string_view path);

// INVALID_ARGUMENT: a second base, which the wire has no place for and must not lose.
absl::Status CheckBase(const Spec& spec, std::string_view path);

// Bytes of a position tensor, exactly as many as its shape says; empty for other positions. Only
// after ToRequest.
absl::Span<const std::byte> PositionBytes(const PositionList& positions);

// Product of the extents.
int64_t ElementCount(const TensorDesc& tensor);
// Whether all but the first dimension are.
bool RowsAreDense(TensorDesc tensor);
// Distances in elements: the strides, or those of a dense tensor.
std::vector<int64_t> StridesOf(const TensorDesc& tensor);
// The same of a tensor to rotate, in bytes. Rank 3 or 4.
RotaryStrides RotaryStridesOf(const TensorDesc& tensor, RopeLayout layout);

// INVALID_ARGUMENT unless `output` can take a dense `result`: same type, and same shape or one
// dimension of as many elements.
absl::Status CheckOutput(const MutableTensorView& output, const TensorDesc& result,
                         std::string_view path);

// Copies all elements of a tensor of any strides from or to dense memory.
void CopyToDense(const TensorView& from, std::byte* to);
void CopyFromDense(const std::byte* from, const MutableTensorView& to);

}  // namespace phasor::client_internal

#endif  // PHASOR_CLIENT_COMMON_CALLS_H_
