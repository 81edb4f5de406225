// SPDX-License-Identifier: Apache-2.0
#include "kernels/plan/model_details.h"

#include <utility>

#include "kernels/base/status_macros.h"
#include "kernels/plan/plan.h"

namespace phasor {

absl::StatusOr<ModelDetails> DetailsOfModel(const Spec& spec, std::string_view path) {
  PHASOR_ASSIGN_OR_RETURN(ResolvedModel model, ResolveModel(spec, path));
  ModelDetails details{.parts = std::move(model.parts)};
  for (const ResolvedSpec& one : model.specs) {
    ModelSpec& out = details.specs.emplace_back();
    PHASOR_ASSIGN_OR_RETURN(out.amplitude, CheckedAmplitude(one));
    out.spec = ToSpec(one);
    out.fingerprint = Fingerprint(one);
    out.width = one.head_dim;
  }
  return details;
}

}  // namespace phasor
