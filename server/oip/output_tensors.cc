// SPDX-License-Identifier: Apache-2.0
// See output_tensors.h.
#include "server/oip/output_tensors.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_join.h"
#include "kernels/status_macros.h"
#include "kernels/text.h"

namespace phasor::oip {
namespace {

std::string NamesOfResults(const std::vector<OutputTensor>& results) {
  return absl::StrJoin(results, ", ", [](std::string* out, const OutputTensor& result) {
    out->append(result.name);
  });
}

absl::StatusOr<OutputTensor> ReadOutput(
    const inference::ModelInferRequest::InferRequestedOutputTensor& wire,
    const std::vector<OutputTensor>& results, const NamedMemory& memory, const std::string& path) {
  const auto found = std::find_if(results.begin(), results.end(), [&](const OutputTensor& result) {
    return result.name == wire.name();
  });
  if (found == results.end()) {
    return absl::InvalidArgumentError(StrCat(path, ".name: '", wire.name(),
                                             "' is not an output of this request, must be one of ",
                                             NamesOfResults(results)));
  }
  OutputTensor output = *found;
  output.path = path;
  PHASOR_ASSIGN_OR_RETURN(output.range, ReadRegionRange(wire.parameters(), memory, /*write=*/true,
                                                        StrCat(path, ".parameters")));
  if (!output.range.in_message() && output.range.bytes < output.bytes) {
    return absl::InvalidArgumentError(
        StrCat(path, ".parameters.shared_memory_byte_size: ", output.range.bytes,
               ", should be at least ", output.bytes, " bytes to hold the results"));
  }
  return output;
}

}  // namespace

absl::StatusOr<std::vector<OutputTensor>> ReadOutputs(const inference::ModelInferRequest& request,
                                                      const std::vector<OutputTensor>& results,
                                                      const NamedMemory& memory) {
  if (request.outputs().empty()) return results;
  std::vector<OutputTensor> outputs;
  std::set<std::string> names;
  for (const auto& wire : request.outputs()) {
    const std::string path = StrCat("outputs[", outputs.size(), "]");
    if (!names.insert(wire.name()).second) {
      return absl::InvalidArgumentError(
          StrCat(path, ".name: '", wire.name(), "' twice, must be given once"));
    }
    PHASOR_ASSIGN_OR_RETURN(OutputTensor output, ReadOutput(wire, results, memory, path));
    outputs.push_back(std::move(output));
  }
  return outputs;
}

}  // namespace phasor::oip
