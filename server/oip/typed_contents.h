// SPDX-License-Identifier: Apache-2.0
// Converts typed contents (elements as numbers of a message) to the bytes that kernels read.
#ifndef PHASOR_SERVER_OIP_TYPED_CONTENTS_H_
#define PHASOR_SERVER_OIP_TYPED_CONTENTS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "inference/grpc_service.pb.h"
#include "kernels/base/dtype.h"

namespace phasor::oip {

// INVALID_ARGUMENT: the type has no typed contents, the elements are of another type, or there are
// not `elements` of them. Threads: pure function.
absl::StatusOr<std::vector<std::byte>> BytesOf(const inference::InferTensorContents& contents,
                                               Dtype dtype, int64_t elements,
                                               const std::string& path);

}  // namespace phasor::oip

#endif  // PHASOR_SERVER_OIP_TYPED_CONTENTS_H_
