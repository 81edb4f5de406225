// SPDX-License-Identifier: Apache-2.0
// What every connection does with a call: turns it into a request, checks that the caller's memory
// holds what its shapes say, and copies strided tensors. Threads: pure functions.
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
#include "kernels/request/move_keys.h"
#include "kernels/request/request.h"

namespace phasor::client_internal {

// Field path of the only item of a unary call, and of item i of a batch.
inline constexpr std::string_view kItemPath = "item";
std::string BatchItemPath(size_t i);

// The request that `call` describes. `path` is the field path of errors.
// INVALID_ARGUMENT: memory smaller than its shape; strides where none are allowed; an input and
// output that differ; GPU memory that was not registered with `connection`, or any GPU memory if
// `connection` is nullptr. FAILED_PRECONDITION: GPU memory that was released. The service checks
// everything else.
absl::StatusOr<EncodeRequest> ToRequest(const EncodeCall& call, std::string_view path,
                                        const void* connection = nullptr);
absl::StatusOr<RopeRequest> ToRequest(const RopeCall& call, std::string_view path,
                                      const void* connection = nullptr);
absl::StatusOr<BiasRequest> ToRequest(const BiasCall& call, std::string_view path);
// INVALID_ARGUMENT also: pools overlap.
absl::StatusOr<MoveRequest> ToRequest(const MoveCall& call, std::string_view path,
                                      const void* connection = nullptr);

// INVALID_ARGUMENT: strided or GPU memory, or memory smaller than the shape of the positions.
absl::Status CheckPositions(const PositionList& positions, std::string_view path);

// INVALID_ARGUMENT: a pool that a call of a batch writes overlaps a pool of another call.
absl::Status CheckPoolsApart(const std::vector<MoveCall>& calls);

// INVALID_ARGUMENT: `values` is not a dense table, or its memory is too small.
absl::Status CheckTableValues(const TensorView& values, std::string_view path);

// The bytes of a position tensor, exactly as many as its shape needs; empty for other kinds of
// positions. ToRequest must have accepted the call.
absl::Span<const std::byte> PositionBytes(const PositionList& positions);

// Product of the extents.
int64_t ElementCount(const TensorDesc& tensor);
// Whether all dimensions but the first are dense.
bool RowsAreDense(TensorDesc tensor);
// The strides in elements; those of a dense tensor if none are set.
std::vector<int64_t> StridesOf(const TensorDesc& tensor);
// The strides in bytes of a tensor to rotate. Rank 3 or 4.
RotaryStrides RotaryStridesOf(const TensorDesc& tensor, RopeLayout layout);

// INVALID_ARGUMENT: `output` cannot hold a dense `result`. It must have the same type, and either
// the same shape or one dimension of as many elements.
absl::Status CheckOutput(const MutableTensorView& output, const TensorDesc& result,
                         std::string_view path);

// Copies all elements between a tensor of any strides and dense memory.
void CopyToDense(const TensorView& from, std::byte* to);
void CopyFromDense(const std::byte* from, const MutableTensorView& to);

}  // namespace phasor::client_internal

#endif  // PHASOR_CLIENT_COMMON_CALLS_H_
