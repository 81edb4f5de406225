// SPDX-License-Identifier: Apache-2.0
// Reads inputs and gives them their bytes. Order of checks: each input by itself, the number of raw
// entries, their lengths.
#include "server/oip/input_tensors.h"

#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/match.h"
#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"
#include "kernels/tensor/tensor_desc.h"
#include "server/oip/datatype.h"
#include "server/oip/typed_contents.h"

namespace phasor::oip {
namespace {

constexpr char kRegion[] = "shared_memory_region";
constexpr char kByteSize[] = "shared_memory_byte_size";
constexpr char kOffset[] = "shared_memory_offset";
constexpr char kClassification[] = "classification";  // Triton's: the classes instead of the tensor

absl::StatusOr<int64_t> ReadInteger(const inference::InferParameter& parameter,
                                    const std::string& path) {
  if (parameter.has_int64_param()) return parameter.int64_param();
  if (parameter.has_uint64_param() && static_cast<int64_t>(parameter.uint64_param()) >= 0) {
    return static_cast<int64_t>(parameter.uint64_param());
  }
  return Invalid(path, ": of another type; must be an int64_param");
}

// The type and shape for error messages: "INT64 [2, 3]".
std::string Describe(const InputTensor& input) {
  return StrCat(DatatypeOf(input.dtype), " ", ShapeText(input.shape));
}

absl::Status ReadTypeAndShape(const inference::ModelInferRequest::InferInputTensor& wire,
                              InputTensor* input) {
  const auto dtype = DtypeOf(wire.datatype());
  if (!dtype.has_value()) {
    return Invalid(input->path, ".datatype: '", Shown(wire.datatype()), "'; must be ",
                   kAcceptedDatatypes);
  }
  input->name = wire.name();
  input->dtype = *dtype;
  input->shape.assign(wire.shape().begin(), wire.shape().end());
  const TensorDesc tensor{input->dtype, input->shape, {}};
  PHASOR_RETURN_IF_ERROR(CheckExtents(tensor, input->path));
  PHASOR_ASSIGN_OR_RETURN(input->bytes, DenseBytes(tensor, input->path));
  return absl::OkStatus();
}

absl::Status ReadTyped(const inference::ModelInferRequest::InferInputTensor& wire,
                       InputTensor* input) {
  const int64_t elements = input->bytes / SizeOf(input->dtype);
  PHASOR_ASSIGN_OR_RETURN(input->numbers,
                          BytesOf(wire.contents(), input->dtype, elements, input->path));
  if (!input->numbers.empty()) input->segments = {absl::MakeConstSpan(input->numbers)};
  return absl::OkStatus();
}

// Refuses parameters that ask for something else than these three. Any other name is a note of the
// caller's library to itself, such as KServe's binary_data_size, and is ignored. Of several wrong
// names the error shows the first in order, so that the same request always gets the same error.
absl::Status CheckKnown(const InferParameters& parameters, const std::string& path) {
  std::set<std::string_view> wrong;
  for (const auto& [name, value] : parameters) {
    const bool of_regions = absl::StartsWith(name, "shared_memory") && name != kRegion &&
                            name != kByteSize && name != kOffset;
    if (of_regions || name == kClassification) wrong.insert(name);
  }
  if (wrong.empty()) return absl::OkStatus();
  return Invalid(path, ".", Shown(*wrong.begin()), ": no such parameter; must be ", kRegion, ", ",
                 kByteSize, " or ", kOffset);
}

absl::StatusOr<InputTensor> ReadInput(const inference::ModelInferRequest::InferInputTensor& wire,
                                      std::string path) {
  InputTensor input;
  input.path = std::move(path);
  PHASOR_RETURN_IF_ERROR(ReadTypeAndShape(wire, &input));
  PHASOR_ASSIGN_OR_RETURN(input.range,
                          ReadRegionRange(wire.parameters(), StrCat(input.path, ".parameters")));
  if (input.range.in_message()) {
    if (wire.has_contents()) PHASOR_RETURN_IF_ERROR(ReadTyped(wire, &input));
    return input;
  }
  if (wire.has_contents()) {
    return Invalid(input.path, ".contents: set beside shared memory; must be one of the two");
  }
  if (input.range.bytes != input.bytes) {
    return Invalid(input.path, ".parameters.", kByteSize, ": ", input.range.bytes, "; must be ",
                   input.bytes, " for ", Describe(input));
  }
  return input;
}

// Gives each input that needs one its entry of raw_input_contents.
absl::Status AssignRaw(const std::vector<bool>& needs_raw, absl::Span<const PieceList> raw,
                       std::vector<InputTensor>* inputs) {
  size_t next = 0;
  for (size_t i = 0; i < inputs->size(); ++i) {
    if (!needs_raw[i]) continue;
    InputTensor& input = (*inputs)[i];
    const int64_t got = PieceBytes(raw[next]);
    if (got != input.bytes) {
      return Invalid(input.path, ": raw_input_contents[", next, "] has ", got, " bytes; must be ",
                     input.bytes, " for ", Describe(input));
    }
    input.segments = raw[next++];
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckTensorCount(int count, const char* field) {
  if (count <= kMaxTensors) return absl::OkStatus();
  return Invalid(field, ": ", count, " tensors; must be at most ", kMaxTensors);
}

absl::StatusOr<RegionRange> ReadRegionRange(const InferParameters& parameters,
                                            const std::string& path) {
  PHASOR_RETURN_IF_ERROR(CheckKnown(parameters, path));
  RegionRange range;
  const auto find = [&](const char* name) {
    const auto found = parameters.find(name);
    return found == parameters.end() ? nullptr : &found->second;
  };
  const inference::InferParameter* const name = find(kRegion);
  const inference::InferParameter* const bytes = find(kByteSize);
  const inference::InferParameter* const offset = find(kOffset);
  if (name == nullptr) {
    if (bytes == nullptr && offset == nullptr) return range;
    return Invalid(path, ".", kRegion, ": not set; must be given with the other two");
  }
  if (!name->has_string_param() || name->string_param().empty()) {
    return Invalid(path, ".", kRegion,
                   ": of another type; must be a string_param with the region's name");
  }
  range.name = name->string_param();
  if (bytes == nullptr) return Invalid(path, ".", kByteSize, ": not set; must be given");
  PHASOR_ASSIGN_OR_RETURN(range.bytes, ReadInteger(*bytes, StrCat(path, ".", kByteSize)));
  if (offset == nullptr) return range;
  PHASOR_ASSIGN_OR_RETURN(range.offset, ReadInteger(*offset, StrCat(path, ".", kOffset)));
  return range;
}

memory::SharedTensor SharedTensorOf(const RegionRange& range, Dtype dtype, const std::string& path,
                                    const memory::CallerMemory& memory) {
  const memory::Stores& stores = memory.stores;
  memory::SharedTensor tensor;
  tensor.on_device = stores.devices != nullptr && stores.devices->Has(range.name, memory.caller);
  tensor.name = range.name;
  tensor.offset = range.offset;
  tensor.reserved_bytes = range.bytes;
  tensor.dtype = dtype;
  tensor.path = path;
  tensor.offset_path = StrCat(path, ".parameters");
  tensor.name_path = StrCat(tensor.offset_path, ".", kRegion);
  return tensor;
}

absl::StatusOr<std::vector<InputTensor>> ReadInputs(const inference::ModelInferRequest& request,
                                                    absl::Span<const PieceList> raw) {
  PHASOR_RETURN_IF_ERROR(CheckTensorCount(request.inputs_size(), "inputs"));
  std::vector<InputTensor> inputs;
  // Pieces point into the elements, so they must not move.
  inputs.reserve(static_cast<size_t>(request.inputs_size()));
  std::vector<bool> needs_raw;
  std::set<std::string> names;
  size_t in_message = 0;
  bool typed = false;
  for (const auto& wire : request.inputs()) {
    std::string path = StrCat("inputs[", inputs.size(), "]");
    if (!names.insert(wire.name()).second) {
      return Invalid(path, ".name: '", Shown(wire.name()), "' twice; must be given once");
    }
    PHASOR_ASSIGN_OR_RETURN(InputTensor input, ReadInput(wire, std::move(path)));
    typed = typed || wire.has_contents();
    needs_raw.push_back(input.range.in_message() && !wire.has_contents());
    in_message += needs_raw.back() ? 1 : 0;
    inputs.push_back(std::move(input));
  }
  if (typed && !raw.empty()) {
    return Invalid("raw_input_contents: set beside typed contents; must be one of the two");
  }
  if (raw.size() != in_message) {
    return Invalid("raw_input_contents: ", raw.size(), " entries; must be ", in_message,
                   ", one for each input that is not in shared memory");
  }
  PHASOR_RETURN_IF_ERROR(AssignRaw(needs_raw, raw, &inputs));
  return inputs;
}

}  // namespace phasor::oip
