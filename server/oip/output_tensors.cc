// SPDX-License-Identifier: Apache-2.0
// Matches the outputs that a request names with those of the item.
#include "server/oip/output_tensors.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_join.h"
#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"

namespace phasor::oip {
namespace {

std::string NamesOfResults(const std::vector<OutputTensor>& results) {
  return absl::StrJoin(results, ", ", [](std::string* out, const OutputTensor& result) {
    out->append(result.name);
  });
}

absl::Status NoSuchOutput(const std::string& path, const std::string& name,
                          const std::vector<OutputTensor>& results) {
  return Invalid(path, ".name: '", Shown(name),
                 "' is not an output of this request; must be one of ", NamesOfResults(results));
}

absl::StatusOr<OutputTensor> ReadOutput(
    const inference::ModelInferRequest::InferRequestedOutputTensor& wire, OutputTensor output,
    const std::string& path) {
  output.path = path;
  PHASOR_ASSIGN_OR_RETURN(output.range,
                          ReadRegionRange(wire.parameters(), StrCat(path, ".parameters")));
  if (!output.range.in_message() && output.range.bytes < output.bytes) {
    return Invalid(path, ".parameters.shared_memory_byte_size: ", output.range.bytes,
                   "; must be at least ", output.bytes, " bytes to hold the results");
  }
  return output;
}

}  // namespace

absl::StatusOr<std::vector<OutputTensor>> ReadOutputs(const inference::ModelInferRequest& request,
                                                      absl::Span<const TensorSlot> of_model,
                                                      const std::vector<OutputTensor>& results) {
  if (request.outputs().empty()) return results;
  PHASOR_RETURN_IF_ERROR(CheckTensorCount(request.outputs_size(), "outputs"));
  std::vector<OutputTensor> outputs;
  std::set<std::string> names;
  for (int i = 0; i < request.outputs_size(); ++i) {
    const auto& wire = request.outputs(i);
    const auto is_named = [&](const auto& tensor) { return tensor.name == wire.name(); };
    const std::string path = StrCat("outputs[", i, "]");
    if (!names.insert(wire.name()).second) {
      return Invalid(path, ".name: '", Shown(wire.name()), "' twice; must be given once");
    }
    const auto found = std::find_if(results.begin(), results.end(), is_named);
    if (found == results.end()) {
      if (std::any_of(of_model.begin(), of_model.end(), is_named)) continue;
      return NoSuchOutput(path, wire.name(), results);
    }
    PHASOR_ASSIGN_OR_RETURN(OutputTensor output, ReadOutput(wire, *found, path));
    outputs.push_back(std::move(output));
  }
  if (outputs.empty()) return NoSuchOutput("outputs[0]", request.outputs(0).name(), results);
  return outputs;
}

}  // namespace phasor::oip
