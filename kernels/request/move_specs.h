// SPDX-License-Identifier: Apache-2.0
// Finds the rotation of every layer of a move: that of its spec, or that of its number in a model.
// Threads: pure functions.
#ifndef PHASOR_KERNELS_REQUEST_MOVE_SPECS_H_
#define PHASOR_KERNELS_REQUEST_MOVE_SPECS_H_

#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/request/move_keys.h"
#include "kernels/request/request.h"

namespace phasor {

// How one layer turns; nullptr: it is copied.
struct LayerTurn {
  const Plan* plan = nullptr;
  const Plan* from_plan = nullptr;
};

struct MoveSpecs {
  std::vector<PreparedMove::Spec> specs;           // of the request
  std::vector<LayerTurn> layers;                   // of the request
  std::vector<std::shared_ptr<const Plan>> plans;  // those of the layers
};

// `path` is that of the request. The layers' indices of specs and layouts are valid.
// INVALID_ARGUMENT: as PrepareMove, about specs and model_layer. FAILED_PRECONDITION: a pin
// differs.
absl::StatusOr<MoveSpecs> PrepareMoveSpecs(const MoveRequest& request, PlanProvider plans,
                                           std::string_view path);

}  // namespace phasor

#endif  // PHASOR_KERNELS_REQUEST_MOVE_SPECS_H_
