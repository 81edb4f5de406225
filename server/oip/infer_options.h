// SPDX-License-Identifier: Apache-2.0
// Reads the parameters of a request: fields of the model's spec, options of the call, and
// parameters that clients add by themselves.
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

// Most parameters of a request, checked before any is read. The fields of a spec and the options of
// a call are fewer than 100 together.
inline constexpr size_t kMaxParameters = 256;

// What the parameters of a request set.
struct InferOptions {
  Spec spec;      // of encodings and rotations: the model's, with the request's fields merged in
  BiasSpec bias;  // of biases, likewise
  Direction direction = Direction::kForward;
  RopeLayout layout = RopeLayout::kTokensHeads;
  std::optional<Dtype> output_dtype;
  double embedding_scale = 1.0;
  std::optional<int64_t> heads;                       // of a bias
  std::string table;                                  // of a bias: name of a stored table
  absl::Duration timeout = absl::InfiniteDuration();  // in the queue, from the request's arrival
};

// Reads all parameters, and ignores those that clients of other servers of the protocol add by
// themselves. INVALID_ARGUMENT: there are more than kMaxParameters, or one is unknown or
// has the wrong type. Whether the values fit together is checked later. Threads: pure function.
absl::StatusOr<InferOptions> ReadOptions(const Model& model, const InferParameters& parameters);

}  // namespace phasor::oip

#endif  // PHASOR_SERVER_OIP_INFER_OPTIONS_H_
