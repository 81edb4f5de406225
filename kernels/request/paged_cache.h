// SPDX-License-Identifier: Apache-2.0
// Checks of requests that write keys and values into the pages of a cache, and the offsets at which
// their tokens are written. Used by kernels/request/request.h. Threads: pure functions.
#ifndef PHASOR_KERNELS_REQUEST_PAGED_CACHE_H_
#define PHASOR_KERNELS_REQUEST_PAGED_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "kernels/request/request.h"

namespace phasor {

// Sets the output type of `tensor`. UNIMPLEMENTED: it cannot be converted to `dtype`.
// INVALID_ARGUMENT: `dtype` is no type of tensors to rotate and not FLOAT8; or `inv_scale`, with
// path `scale_path`, is not finite and > 0, or has no use.
absl::Status SetOutputType(Dtype dtype, std::optional<float> inv_scale, std::string_view dtype_path,
                           std::string_view scale_path, PreparedRope::Tensor& tensor);

// Checks the paged cache of a request against its prepared tensors, of which the values are last.
// Fills in the fields of `out` that concern the cache. INVALID_ARGUMENT: the two do not fit. Also
// errors as SetOutputType.
absl::Status PreparePages(const RopeRequest& request, std::string_view path, PreparedRope& out);

// Upper limit for the memory that SetSlots allocates per token.
inline constexpr int64_t kBytesPerSlot = 3 * sizeof(int64_t);

// Computes the offsets of prepared.pages from a slot mapping of slot_mapping_bytes bytes.
// INVALID_ARGUMENT: a slot is neither in the cache nor -1, or two tokens have the same slot.
absl::Status SetSlots(const std::byte* slot_mapping, std::string_view path, PreparedRope& prepared);

}  // namespace phasor

#endif  // PHASOR_KERNELS_REQUEST_PAGED_CACHE_H_
