// SPDX-License-Identifier: Apache-2.0
// Reads which outputs a request wants, in which order and where.
#ifndef PHASOR_SERVER_OIP_OUTPUT_TENSORS_H_
#define PHASOR_SERVER_OIP_OUTPUT_TENSORS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "inference/grpc_service.pb.h"
#include "kernels/base/dtype.h"
#include "server/oip/input_tensors.h"
#include "server/oip/model_catalogue.h"

namespace phasor::oip {

// One output that a request gets, and where its bytes go.
struct OutputTensor {
  std::string name;
  std::string path;  // e.g. "outputs[0]"
  Dtype dtype = Dtype::kFloat32;
  std::vector<int64_t> shape;
  int64_t bytes = 0;
  size_t index = 0;   // among the outputs of the item
  RegionRange range;  // its bytes are a capacity; no region: in the message
};

// The outputs of `results` that the request names, in its order; all of them if it names none.
// Clients name all outputs of a model, so outputs that need an optional input which is not given
// are left out. INVALID_ARGUMENT: a name is unknown or given twice, no named output can be computed
// from the given inputs, a parameter is wrong, or a range is too small. Does not look up regions.
absl::StatusOr<std::vector<OutputTensor>> ReadOutputs(const inference::ModelInferRequest& request,
                                                      absl::Span<const TensorSlot> of_model,
                                                      const std::vector<OutputTensor>& results);

}  // namespace phasor::oip

#endif  // PHASOR_SERVER_OIP_OUTPUT_TENSORS_H_
