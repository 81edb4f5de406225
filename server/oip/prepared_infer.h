// SPDX-License-Identifier: Apache-2.0
// Turns a request of this protocol into an item of the engine. phasor.v1 makes an equal item of the
// same tensors, so both give the same bytes.
#ifndef PHASOR_SERVER_OIP_PREPARED_INFER_H_
#define PHASOR_SERVER_OIP_PREPARED_INFER_H_

#include <cstdint>
#include <string>
#include <string_view>
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

// What a request is checked against, and what checking needs.
struct PrepareContext {
  const ModelSet* models = nullptr;
  PlanProvider plans;
  int64_t max_message_bytes = 0;
  const TableSource* tables = nullptr;  // nullptr: the server keeps no tables
  memory::CallerMemory memory = {};
};

// Pairs of a field's path in errors of the engine, and its path in the request. The first match is
// used.
using PathNames = std::vector<std::pair<std::string, std::string>>;

// A checked request.
struct PreparedInfer {
  ModelRef model;
  std::string id;
  std::vector<InputTensor> inputs;
  engine::Item item;  // has the segments of inputs in the message
  std::vector<OutputTensor> outputs;
  PathNames paths;
  absl::Duration timeout = absl::InfiniteDuration();
  memory::Bound bound;       // the item's tensors in shared memory
  int64_t server_bytes = 0;  // of the server's own memory, besides the message
};

// The fields of a request that name its model. Those of ModelInfer are model_name and
// model_version.
struct ModelPaths {
  std::string_view name = "name";
  std::string_view version = "version";
};

// The model of that name and version. NOT_FOUND: there is none. INVALID_ARGUMENT: the version is
// not a number.
absl::StatusOr<ModelRef> FindVersion(const ModelSet& models, const std::string& name,
                                     const std::string& version, const ModelPaths& paths = {});

// Checks everything but the values of positions and slots. NOT_FOUND: model, region or table.
// INVALID_ARGUMENT, OUT_OF_RANGE and others: as PrepareEncode, PrepareRope and PrepareBias.
// RESOURCE_EXHAUSTED: the response would be too large. Borrows `raw`.
absl::StatusOr<PreparedInfer> PrepareInfer(const inference::ModelInferRequest& request,
                                           absl::Span<const PieceList> raw,
                                           const PrepareContext& context);

// Replaces the path of an error by that of the request ("item.positions.tensor.shape" becomes
// "inputs[0].shape"), and names of types and inputs by those of the protocol (FLOAT32 by FP32).
absl::Status RenamePath(const absl::Status& status, const PathNames& paths);

}  // namespace phasor::oip

#endif  // PHASOR_SERVER_OIP_PREPARED_INFER_H_
