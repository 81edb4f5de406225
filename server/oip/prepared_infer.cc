// SPDX-License-Identifier: Apache-2.0
// Prepares inferences. Order of checks: model, parameters, inputs, how they fit together, outputs,
// size of the response.
#include "server/oip/prepared_infer.h"

#include <algorithm>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "kernels/base/invalid.h"
#include "kernels/base/nearest_name.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"
#include "kernels/request/prepared.h"
#include "kernels/tensor/tensor_desc.h"
#include "server/engine/run_call.h"
#include "server/oip/datatype.h"
#include "server/oip/infer_options.h"

namespace phasor::oip {
namespace {

// Upper limit for the bytes of a response besides its elements, per output.
constexpr int64_t kOutputHeaderBytes = 512;

// Turns one request into an item.
class Preparer {
 public:
  Preparer(const Model& model, const InferOptions& options, const PrepareContext& context,
           PreparedInfer* out)
      : model_(model), options_(options), context_(context), out_(*out) {}

  absl::Status Prepare() {
    PHASOR_RETURN_IF_ERROR(FindRoles());
    MakePaths();
    switch (model_.kind) {
      case ModelKind::kEncoding:
        return RenamePath(PrepareEncoding(), out_.paths);
      case ModelKind::kRotary:
        return RenamePath(PrepareRotary(), out_.paths);
      case ModelKind::kBias:
        return RenamePath(PrepareBiasModel(), out_.paths);
    }
    return absl::InternalError("model: of no kind");
  }

  const std::vector<OutputTensor>& results() const { return results_; }

 private:
  // Finds the role of every input, and checks that no required input is missing.
  absl::Status FindRoles() {
    for (InputTensor& input : out_.inputs) {
      const auto slot = std::find_if(model_.inputs.begin(), model_.inputs.end(),
                                     [&](const TensorSlot& s) { return s.name == input.name; });
      if (slot == model_.inputs.end()) {
        return Invalid(input.path, ".name: '", Shown(input.name), "' is not an input of '",
                       model_.name, "'; must be one of ", NamesOf(model_.inputs));
      }
      input.role = slot->role;
      input.index = slot->index;
    }
    for (const TensorSlot& slot : model_.inputs) {
      if (slot.optional || Find(slot.role, slot.index) != nullptr) continue;
      return Invalid("inputs: ", slot.name, " is missing; '", model_.name, "' takes ",
                     NamesOf(model_.inputs));
    }
    return absl::OkStatus();
  }

  const InputTensor* Find(Role role, int index = 0) const {
    for (const InputTensor& input : out_.inputs) {
      if (input.role == role && input.index == index) return &input;
    }
    return nullptr;
  }

  void AddPath(const std::string& engine_path, const InputTensor& input) {
    out_.paths.emplace_back(engine_path + ".dtype", input.path + ".datatype");
    out_.paths.emplace_back(engine_path, input.path);
  }

  void MakePaths() {
    for (const InputTensor& input : out_.inputs) {
      const std::string path = StrCat("item.", FieldOf(input.role, input.index));
      AddPath(path + ".tensor", input);
      AddPath(path, input);
      // Without the parameter, the output has the type of what it is added to.
      if (input.role == Role::kAddTo && !options_.output_dtype.has_value()) {
        out_.paths.emplace_back("item.output_dtype", input.path + ".datatype");
      }
    }
    for (const TensorSlot& slot : model_.inputs) {
      if (Find(slot.role, slot.index) != nullptr) continue;
      out_.paths.emplace_back(StrCat("item.", FieldOf(slot.role, slot.index)),
                              StrCat("inputs.", slot.name));
    }
    out_.paths.emplace_back("item.spec", "parameters");
    out_.paths.emplace_back("item", "parameters");
  }

  static Positions PositionsOf(const InputTensor& input) {
    return PositionTensor{input.dtype, input.shape};
  }
  std::optional<Positions> OptionalPositions(Role role) const {
    const InputTensor* const input = Find(role);
    if (input == nullptr) return std::nullopt;
    return PositionsOf(*input);
  }

  static TensorDesc DescOf(const InputTensor& input) { return {input.dtype, input.shape, {}}; }

  absl::Status PrepareEncoding() {
    const InputTensor& positions = *Find(Role::kPositions);
    const InputTensor* const embeddings = Find(Role::kAddTo);
    EncodeRequest request;
    request.spec = options_.spec;
    request.positions = PositionsOf(positions);
    request.embedding_scale = options_.embedding_scale;
    request.output_dtype =
        options_.output_dtype.value_or(embeddings == nullptr ? Dtype::kFloat32 : embeddings->dtype);
    if (embeddings != nullptr) request.add_to = RowsOf(*embeddings);
    PHASOR_ASSIGN_OR_RETURN(PreparedEncode prepared,
                            PrepareEncode(request, context_.plans, "item", context_.tables));
    // The rows, in the shape of the positions.
    std::vector<int64_t> shape = positions.shape;
    if (prepared.positions.axes > 1) shape.pop_back();
    shape.push_back(prepared.output.shape.back());
    if (embeddings != nullptr && embeddings->shape != shape) {
      return Invalid(embeddings->path, ".shape: ", ShapeText(embeddings->shape), "; must be ",
                     ShapeText(shape), ", that of the positions and the columns");
    }
    AddResult("ENCODING", prepared.output.dtype, std::move(shape), prepared.output_bytes);
    out_.item = engine::Item(std::move(prepared));
    return absl::OkStatus();
  }

  // Joins all dimensions but the last one into one.
  static TensorDesc RowsOf(const InputTensor& input) {
    TensorDesc rows{input.dtype, {1, 1}, {}};
    for (size_t i = 0; i + 1 < input.shape.size(); ++i) {
      // If a dimension is 0, the others may be so large that their product overflows. -1 rows fit
      // no tensor, so the request is then refused.
      const bool overflows = __builtin_mul_overflow(rows.shape[0], input.shape[i], &rows.shape[0]);
      if (overflows) return {input.dtype, {-1, 0}, {}};
    }
    if (!input.shape.empty()) rows.shape[1] = input.shape.back();
    return rows;
  }

  absl::Status PrepareRotary() {
    const InputTensor& q = *Find(Role::kTensor);
    const InputTensor* const k = Find(Role::kTensor, 1);
    RopeRequest request;
    request.spec = options_.spec;
    request.positions = PositionsOf(*Find(Role::kPositions));
    request.from_positions = OptionalPositions(Role::kFromPositions);
    request.direction = options_.direction;
    request.layout = options_.layout;
    request.tensors.push_back(DescOf(q));
    if (k != nullptr) request.tensors.push_back(DescOf(*k));
    PHASOR_ASSIGN_OR_RETURN(PreparedRope prepared, PrepareRope(request, context_.plans, "item"));
    out_.item = engine::Item(std::move(prepared));
    AddResult("Q_OUT", q.dtype, q.shape, q.bytes);
    if (k != nullptr) AddResult("K_OUT", k->dtype, k->shape, k->bytes);
    return absl::OkStatus();
  }

  absl::Status PrepareBiasModel() {
    const InputTensor* const scores = Find(Role::kAddTo);
    const InputTensor* const table = Find(Role::kTableValues);
    BiasRequest request;
    request.spec = options_.bias;
    request.heads = options_.heads.value_or(DefaultHeads(scores, table));
    request.query_positions = OptionalPositions(Role::kQueryPositions);
    request.key_positions = OptionalPositions(Role::kKeyPositions);
    request.table = options_.table;
    if (table != nullptr) request.table_values = DescOf(*table);
    if (scores != nullptr) request.add_to = DescOf(*scores);
    request.output_dtype =
        options_.output_dtype.value_or(scores == nullptr ? model_.outputs[0].dtype : scores->dtype);
    PHASOR_ASSIGN_OR_RETURN(PreparedBias prepared, PrepareBias(request, context_.tables, "item"));
    AddResult("BIAS", prepared.output.dtype, prepared.output.shape, prepared.output_bytes);
    out_.item = engine::Item(std::move(prepared));
    return absl::OkStatus();
  }

  // The number of heads of the given tensor; 1 for buckets; 0, which is refused, if nothing tells.
  int64_t DefaultHeads(const InputTensor* scores, const InputTensor* table) const {
    if (scores != nullptr && scores->shape.size() == 3) return scores->shape[0];
    if (table != nullptr && table->shape.size() == 2) return table->shape[1];
    return model_.bias->spec.family == BiasFamily::kDeberta ? 1 : 0;
  }

  void AddResult(std::string name, Dtype dtype, std::vector<int64_t> shape, int64_t bytes) {
    OutputTensor& result = results_.emplace_back();
    result.name = std::move(name);
    result.path = result.name;
    result.dtype = dtype;
    result.shape = std::move(shape);
    result.bytes = bytes;
    result.index = results_.size() - 1;
  }

  const Model& model_;
  const InferOptions& options_;
  const PrepareContext& context_;
  PreparedInfer& out_;
  std::vector<OutputTensor> results_;
};

// The input that an output is computed from; nullptr: none, or the input is in the message.
const InputTensor* InputOf(const PreparedInfer& prepared, size_t output) {
  const int slot = prepared.item.outputs[output].slot.input;
  if (slot < 0) return nullptr;
  const InputSlot& of_item = prepared.item.inputs[static_cast<size_t>(slot)].slot;
  for (const InputTensor& input : prepared.inputs) {
    if (input.role == of_item.role && input.index == of_item.index) {
      return input.range.in_message() ? nullptr : &input;
    }
  }
  return nullptr;
}

// Gives inputs their bytes, and outputs in shared memory their places.
absl::Status BindTensors(const memory::CallerMemory& memory, memory::Binding* binding,
                         PreparedInfer* out) {
  for (const InputTensor& input : out->inputs) {
    engine::Input* const slot = out->item.Find(input.role, input.index);
    if (input.range.in_message()) {
      slot->bytes = input.segments;
      continue;
    }
    PHASOR_RETURN_IF_ERROR(
        binding->Input(SharedTensorOf(input.range, input.dtype, input.path, memory),
                       static_cast<size_t>(slot - out->item.inputs.data()), &out->item));
  }
  for (const OutputTensor& output : out->outputs) {
    if (output.range.in_message()) continue;
    const InputTensor* const from = InputOf(*out, output.index);
    std::optional<memory::SharedTensor> input;
    if (from != nullptr) input = SharedTensorOf(from->range, from->dtype, from->path, memory);
    PHASOR_RETURN_IF_ERROR(
        binding->Output(SharedTensorOf(output.range, output.dtype, output.path, memory),
                        input.has_value() ? &*input : nullptr, output.index, &out->item));
  }
  return absl::OkStatus();
}

absl::Status Bind(const memory::CallerMemory& memory, PreparedInfer* out) {
  memory::Binding binding(memory);
  PHASOR_RETURN_IF_ERROR(binding.EndItem(BindTensors(memory, &binding, out)));
  PHASOR_ASSIGN_OR_RETURN(out->bound, binding.Finish());
  out->server_bytes = out->bound.copied_bytes() + engine::ScratchBytes(out->item);
  for (const engine::Output& output : out->item.outputs) {
    if (output.place.in_answer()) out->server_bytes += output.slot.bytes;
  }
  return absl::OkStatus();
}

absl::Status CheckResponseSize(const PreparedInfer& prepared, int64_t limit) {
  int64_t room = limit - static_cast<int64_t>(prepared.id.size());  // the response repeats it
  for (const OutputTensor& output : prepared.outputs) {
    const int64_t bytes = output.range.in_message() ? output.bytes : 0;
    if (kOutputHeaderBytes > room || bytes > room - kOutputHeaderBytes) {
      return absl::ResourceExhaustedError(
          StrCat(output.path, ": the response is too large; must be at most ", limit,
                 " bytes; shared memory or fewer positions help"));
    }
    room -= bytes + kOutputHeaderBytes;
  }
  return absl::OkStatus();
}

// `text` with this protocol's names of types and inputs.
std::string InWordsOfProtocol(absl::string_view text) {
  return absl::StrReplaceAll(text, {{"BFLOAT16", "BF16"},
                                    {"FLOAT16", "FP16"},
                                    {"FLOAT32", "FP32"},
                                    {"FLOAT64", "FP64"},
                                    {"without add_to", "without EMBEDDINGS"},
                                    {"table_values", "the input TABLE"}});
}

}  // namespace

absl::StatusOr<ModelRef> FindVersion(const ModelSet& models, const std::string& name,
                                     const std::string& version, const ModelPaths& paths) {
  const bool number = std::all_of(version.begin(), version.end(), absl::ascii_isdigit);
  if (!number) {
    return Invalid(paths.version, ": '", Shown(version), "'; must be a number or empty");
  }
  ModelRef model = models.Find(name);
  if (model != nullptr && (version.empty() || version == kModelVersion)) return model;
  const std::string asked = model == nullptr ? "" : StrCat(" version ", Shown(version));
  const std::string nearest = model == nullptr ? DidYouMean(name, models.NamesNear(name)) : ",";
  return absl::NotFoundError(StrCat(paths.name, ": Request for unknown model: '", Shown(name), "'",
                                    asked, " is not found", nearest,
                                    " RepositoryIndex lists them all"));
}

absl::StatusOr<PreparedInfer> PrepareInfer(const inference::ModelInferRequest& request,
                                           absl::Span<const PieceList> raw,
                                           const PrepareContext& context) {
  PreparedInfer out;
  PHASOR_ASSIGN_OR_RETURN(
      out.model, FindVersion(*context.models, request.model_name(), request.model_version(),
                             {"model_name", "model_version"}));
  out.id = request.id();
  PHASOR_ASSIGN_OR_RETURN(const InferOptions options,
                          ReadOptions(*out.model, request.parameters()));
  out.timeout = options.timeout;
  PHASOR_ASSIGN_OR_RETURN(out.inputs, ReadInputs(request, raw));
  Preparer preparer(*out.model, options, context, &out);
  PHASOR_RETURN_IF_ERROR(preparer.Prepare());
  PHASOR_ASSIGN_OR_RETURN(out.outputs,
                          ReadOutputs(request, out.model->outputs, preparer.results()));
  PHASOR_RETURN_IF_ERROR(Bind(context.memory, &out));
  PHASOR_RETURN_IF_ERROR(CheckResponseSize(out, context.max_message_bytes));
  return out;
}

absl::Status RenamePath(const absl::Status& status, const PathNames& paths) {
  if (status.ok()) return status;
  const absl::string_view message = status.message();
  for (const auto& [from, to] : paths) {
    const bool matches = absl::StartsWith(message, from) && message.size() > from.size() &&
                         absl::string_view(".:[").find(message[from.size()]) != message.npos;
    if (!matches) continue;
    return absl::Status(status.code(), StrCat(to, InWordsOfProtocol(message.substr(from.size()))));
  }
  return status;
}

}  // namespace phasor::oip
