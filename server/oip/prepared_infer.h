// SPDX-License-Identifier: Apache-2.0
// A request of this protocol as an item of the engine: the same value that our own API makes of the
// same tensors, hence the same bytes.
#ifndef PHASOR_SERVER_OIP_PREPARED_INFER_H_
#define PHASOR_SERVER_OIP_PREPARED_INFER_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "inference/grpc_service.pb.h"
#include "kernels/request/request.h"
#include "kernels/tensor/table.h"
#include "server/engine/call.h"
#include "server/memory/binding.h"
#include "server/oip/input_tensors.h"
#include "server/oip/model_catalogue.h"
#include "server/oip/output_tensors.h"

namespace phasor::oip {

// What a request is checked against.
struct PrepareContext {
  const ModelSet* models = nullptr;
  PlanProvider plans;
  int64_t max_message_bytes = 0;
  const TableSource* tables = nullptr;  // nullptr: none are kept
  memory::CallerMemory memory = {};
};

// Paths of engine messages, and what they are called in the request; the first match counts.
using PathNames = std::vector<std::pair<std::string, std::string>>;

struct PreparedInfer {
  ModelRef model;
  std::string id;
  std::vector<InputTensor> inputs;
  engine::Item item;  // holds the segments of inputs that are in the message
  std::vector<OutputTensor> outputs;
  PathNames paths;
  absl::Duration timeout = absl::InfiniteDuration();
  memory::Bound bound;       // what the item uses of shared memory
  int64_t server_bytes = 0;  // of the server's own memory, beside the message
};

// The model of that name and version. NOT_FOUND: none; INVALID_ARGUMENT: the version is no number.
absl::StatusOr<ModelRef> FindVersion(const ModelSet& models, const std::string& name,
                                     const std::string& version);

// Checks everything but the numbers. NOT_FOUND: model, region, table; INVALID_ARGUMENT,
// OUT_OF_RANGE and others as PrepareEncode, PrepareRope and PrepareBias; RESOURCE_EXHAUSTED: the
// answer would be too large. Borrows `raw`.
absl::StatusOr<PreparedInfer> PrepareInfer(const inference::ModelInferRequest& request,
                                           absl::Span<const engine::Segments> raw,
                                           const PrepareContext& context);

// `status` with its path as the request has it: "item.positions.tensor.shape" is "inputs[0].shape".
absl::Status RenamePath(const absl::Status& status, const PathNames& paths);

}  // namespace phasor::oip

#endif  // PHASOR_SERVER_OIP_PREPARED_INFER_H_
