// SPDX-License-Identifier: Apache-2.0
// Finds out why caches do not fit their specification: tries the neighbours one by one, then in
// pairs, and says which one fits.
#ifndef PHASOR_CLIENT_CLI_CACHE_DIAGNOSIS_H_
#define PHASOR_CLIENT_CLI_CACHE_DIAGNOSIS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/cli/cache/check.h"
#include "client/cli/cache/neighbours.h"

namespace phasor::cli {

// A layer and its outcome under the given specification.
struct CheckedLayer {
  LayerCase layer;
  LayerOutcome outcome;
};

// What is known of some layers.
struct Diagnosis {
  std::vector<int64_t> layers;
  std::vector<std::string> kinds;  // of the changes, see Change; empty: no neighbour
  std::string says;                // a sentence
  bool fits = false;               // with the changes
  double relative_rms = 0;         // with the changes, or without if there are none
};

// Layers with one specification are taken together. `layers` do not fit.
absl::StatusOr<std::vector<Diagnosis>> Diagnose(const Client& client,
                                                absl::Span<const CheckedLayer> layers,
                                                const ModelSpecs& model);

// What else is known of layers that fit: which neighbours fit as well, because the offsets are too
// near to tell them apart, and which fit so much better that the specification must be wrong.
struct Doubts {
  std::vector<Diagnosis> wrong;
  std::vector<std::string> also_fit;
};
absl::StatusOr<Doubts> FindDoubts(const Client& client, absl::Span<const CheckedLayer> layers,
                                  const ModelSpecs& model);

// "layer 3" or "layers 0-3, 7".
std::string LayersText(const std::vector<int64_t>& layers);

}  // namespace phasor::cli

#endif  // PHASOR_CLIENT_CLI_CACHE_DIAGNOSIS_H_
