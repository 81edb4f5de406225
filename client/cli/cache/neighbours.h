// SPDX-License-Identifier: Apache-2.0
// What an engine may have done instead of what its model says: the neighbours of a specification
// and of a layout, each one change away.
#ifndef PHASOR_CLIENT_CLI_CACHE_NEIGHBOURS_H_
#define PHASOR_CLIENT_CLI_CACHE_NEIGHBOURS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "client/cli/cache/check.h"
#include "kernels/spec/spec.h"

namespace phasor::cli {

// One change. Threads: a plain value.
struct Change {
  std::string kind;  // "rope_theta", "scaling", "pairing", "window", "amplitude", "spec",
                     // "rotation", "values", "layout", "hadamard", "distance" or "rows"
  std::string says;  // completes "the keys fit with ..."
  // Changes the layer. False: it cannot be changed so, or stays as it was.
  std::function<bool(LayerCase*)> apply;
};

// The specifications of a model, each with the first layer that has it.
using ModelSpecs = std::vector<std::pair<int64_t, ResolvedSpec>>;

// The neighbours of a layer. `amplitude`: of its specification; 1 if it has none.
std::vector<Change> NeighboursOf(const LayerCase& layer, double amplitude, const ModelSpecs& model);

// Whether two changes of these kinds may be tried together.
bool Combine(const std::string& a, const std::string& b);

}  // namespace phasor::cli

#endif  // PHASOR_CLIENT_CLI_CACHE_NEIGHBOURS_H_
