// SPDX-License-Identifier: Apache-2.0
// Checks of calls that write keys and values into pages of a cache, and where tokens go.
// Parts of kernels/request/request.h. Threads: pure functions.
#ifndef PHASOR_KERNELS_REQUEST_PAGED_CACHE_H_
#define PHASOR_KERNELS_REQUEST_PAGED_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "kernels/request/request.h"

namespace phasor {

// Makes `dtype` the type of what becomes of `tensor`. UNIMPLEMENTED: one that it cannot become;
// INVALID_ARGUMENT: `inv_scale`, whose path is `scale_path`, is not finite and > 0, or is not used.
absl::Status SetOutputType(Dtype dtype, std::optional<float> inv_scale, std::string_view dtype_path,
                           std::string_view scale_path, PreparedRope::Tensor& tensor);

// Checks the paged cache of a request against its tensors, which are prepared, the values last, and
// fills in what concerns it. INVALID_ARGUMENT, and as SetOutputType.
absl::Status PreparePages(const RopeRequest& request, std::string_view path, PreparedRope& out);

// Memory that SetSlots takes at most for each token.
inline constexpr int64_t kBytesPerSlot = 3 * sizeof(int64_t);

// Computes the offsets of prepared.pages from a slot mapping of slot_mapping_bytes.
// INVALID_ARGUMENT: a slot that is none of the cache's nor -1, or that two tokens have.
absl::Status SetSlots(const std::byte* slot_mapping, std::string_view path, PreparedRope& prepared);

}  // namespace phasor

#endif  // PHASOR_KERNELS_REQUEST_PAGED_CACHE_H_
