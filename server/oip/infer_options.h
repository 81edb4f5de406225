// SPDX-License-Identifier: Apache-2.0
// Parameters of a request: fields of the model's spec, how to run it, and what clients add.
#ifndef PHASOR_SERVER_OIP_INFER_OPTIONS_H_
#define PHASOR_SERVER_OIP_INFER_OPTIONS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/plan/bias_rule.h"
#include "kernels/request/request.h"
#include "kernels/spec/spec.h"
#include "server/oip/input_tensors.h"
#include "server/oip/model_catalogue.h"

namespace phasor::oip {

// Most parameters of a request, which are known before any is read. All fields of a spec and all
// that say how to run are fewer than 100.
inline constexpr size_t kMaxParameters = 256;

struct InferOptions {
  Spec spec;      // encodings and rotations: the model's and the fields that override it
  BiasSpec bias;  // biases, the same
  Direction direction = Direction::kForward;
  RopeLayout layout = RopeLayout::kTokensHeads;
  std::optional<Dtype> output_dtype;
  double embedding_scale = 1.0;
  std::optional<int64_t> heads;                       // of a bias
  std::string table;                                  // of a bias: name of a stored table
  absl::Duration timeout = absl::InfiniteDuration();  // in the queue, from the request's arrival
};

// Reads them all. INVALID_ARGUMENT: more than kMaxParameters, one that is not known or has another
// type. Whether the values make sense together is checked later. Threads: pure function.
absl::StatusOr<InferOptions> ReadOptions(const Model& model, const InferParameters& parameters);

}  // namespace phasor::oip

#endif  // PHASOR_SERVER_OIP_INFER_OPTIONS_H_
