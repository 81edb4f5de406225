// SPDX-License-Identifier: Apache-2.0
// Everything about the layers of a model that a caller may want to know. Threads: pure functions.
#ifndef PHASOR_KERNELS_PLAN_MODEL_DETAILS_H_
#define PHASOR_KERNELS_PLAN_MODEL_DETAILS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/spec/model_layers.h"
#include "kernels/spec/spec.h"

namespace phasor {

// A spec that layers share.
struct ModelSpec {
  Spec spec;  // with every field set; it resolves to itself
  std::string fingerprint;
  double amplitude = 1.0;  // factor of sine and cosine
  int64_t width = 0;       // lanes of a head
  friend bool operator==(const ModelSpec&, const ModelSpec&) = default;
};

struct ModelDetails {
  std::vector<ModelSpec> specs;  // all differ
  std::vector<ModelPart> parts;
};

// Resolves the model that `spec.config_json` describes. INVALID_ARGUMENT: as ResolveModel and
// CheckedAmplitude.
absl::StatusOr<ModelDetails> DetailsOfModel(const Spec& spec, std::string_view path = "spec");

}  // namespace phasor

#endif  // PHASOR_KERNELS_PLAN_MODEL_DETAILS_H_
