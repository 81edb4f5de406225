// SPDX-License-Identifier: Apache-2.0
// See prepared_infer.h. The order of checks: model, parameters, inputs, what they mean together,
// outputs, size of the answer.
#include "server/oip/prepared_infer.h"

#include <algorithm>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "kernels/base/invalid.h"
#include "kernels/base/nearest_name.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"
#include "kernels/request/bias.h"
#include "server/oip/datatype.h"
#include "server/oip/device_tensors.h"
#include "server/oip/infer_options.h"

namespace phasor::oip {
namespace {

// Most bytes of a response beside its elements, for each output.
constexpr int64_t kOutputHeaderBytes = 512;

// A request while it becomes an item.
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
  // What every input is, and that none is missing.
  absl::Status FindRoles() {
    for (const InputTensor& input : out_.inputs) {
      const auto slot = std::find_if(model_.inputs.begin(), model_.inputs.end(),
                                     [&](const TensorSlot& s) { return s.name == input.name; });
      if (slot == model_.inputs.end()) {
        return Invalid(input.path, ".name: '", Shown(input.name), "' is not an input of '",
                       model_.name, "', must be one of ", NamesOf(model_.inputs));
      }
      out_.roles.push_back(slot->role);
    }
    for (const TensorSlot& slot : model_.inputs) {
      if (slot.optional || Find(slot.role) != nullptr) continue;
      return Invalid("inputs: ", slot.name, " is missing, '", model_.name, "' takes ",
                     NamesOf(model_.inputs));
    }
    return absl::OkStatus();
  }

  const InputTensor* Find(TensorRole role) const {
    for (size_t i = 0; i < out_.roles.size(); ++i) {
      if (out_.roles[i] == role) return &out_.inputs[i];
    }
    return nullptr;
  }

  void AddPath(const std::string& engine_path, TensorRole role) {
    const InputTensor* const input = Find(role);
    if (input == nullptr) return;
    out_.paths.emplace_back(engine_path + ".dtype", input->path + ".datatype");
    out_.paths.emplace_back(engine_path, input->path);
  }

  void MakePaths() {
    AddPath("item.positions.tensor", TensorRole::kPositions);
    AddPath("item.positions", TensorRole::kPositions);
    AddPath("item.from_positions.tensor", TensorRole::kFromPositions);
    AddPath("item.from_positions", TensorRole::kFromPositions);
    AddPath("item.add_to", TensorRole::kEmbeddings);
    AddPath("item.tensors[0].tensor", TensorRole::kQ);
    AddPath("item.tensors[1].tensor", TensorRole::kK);
    AddPath("item.query_positions.tensor", TensorRole::kQueryPositions);
    AddPath("item.query_positions", TensorRole::kQueryPositions);
    AddPath("item.key_positions.tensor", TensorRole::kKeyPositions);
    AddPath("item.key_positions", TensorRole::kKeyPositions);
    AddPath("item.add_to", TensorRole::kScores);
    AddPath("item.table_values", TensorRole::kTable);
    out_.paths.emplace_back("item.spec", "parameters");
    out_.paths.emplace_back("item", "parameters");
  }

  static Positions PositionsOf(const InputTensor& input) {
    return PositionTensor{input.dtype, input.shape};
  }
  std::optional<Positions> OptionalPositions(TensorRole role) const {
    const InputTensor* const input = Find(role);
    if (input == nullptr) return std::nullopt;
    return PositionsOf(*input);
  }

  static TensorDesc DescOf(const InputTensor& input) { return {input.dtype, input.shape, {}}; }

  absl::Status PrepareEncoding() {
    const InputTensor& positions = *Find(TensorRole::kPositions);
    const InputTensor* const embeddings = Find(TensorRole::kEmbeddings);
    EncodeRequest request;
    request.spec = options_.spec;
    request.positions = PositionsOf(positions);
    request.embedding_scale = options_.embedding_scale;
    request.output_dtype =
        options_.output_dtype.value_or(embeddings == nullptr ? Dtype::kFloat32 : embeddings->dtype);
    if (embeddings != nullptr) request.add_to = RowsOf(*embeddings);
    auto& item = out_.item.emplace<engine::EncodeItem>();
    PHASOR_ASSIGN_OR_RETURN(item.prepared,
                            PrepareEncode(request, context_.plans, "item", context_.tables));
    const PreparedEncode& prepared = item.prepared;
    // The rows in the shape of the positions.
    std::vector<int64_t> shape = positions.shape;
    if (prepared.positions.axes > 1) shape.pop_back();
    shape.push_back(prepared.output.shape.back());
    if (embeddings != nullptr && embeddings->shape != shape) {
      return Invalid(embeddings->path, ".shape: must be that of the positions and ", shape.back(),
                     " columns");
    }
    AddResult("ENCODING", prepared.output.dtype, std::move(shape), prepared.output_bytes);
    return absl::OkStatus();
  }

  // All dimensions but the last one as one.
  static TensorDesc RowsOf(const InputTensor& input) {
    TensorDesc rows{input.dtype, {1, 1}, {}};
    for (size_t i = 0; i + 1 < input.shape.size(); ++i) {
      // Beside a dimension of 0 the others can be anything: -1 rows fit nothing.
      const bool overflows = __builtin_mul_overflow(rows.shape[0], input.shape[i], &rows.shape[0]);
      if (overflows) return {input.dtype, {-1, 0}, {}};
    }
    if (!input.shape.empty()) rows.shape[1] = input.shape.back();
    return rows;
  }

  absl::Status PrepareRotary() {
    const InputTensor& q = *Find(TensorRole::kQ);
    const InputTensor* const k = Find(TensorRole::kK);
    RopeRequest request;
    request.spec = options_.spec;
    request.positions = PositionsOf(*Find(TensorRole::kPositions));
    request.from_positions = OptionalPositions(TensorRole::kFromPositions);
    request.direction = options_.direction;
    request.layout = options_.layout;
    request.tensors.push_back(DescOf(q));
    if (k != nullptr) request.tensors.push_back(DescOf(*k));
    auto& item = out_.item.emplace<engine::RopeItem>();
    PHASOR_ASSIGN_OR_RETURN(item.prepared, PrepareRope(request, context_.plans, "item"));
    item.tensors.resize(item.prepared.tensors.size());
    AddResult("Q_OUT", q.dtype, q.shape, q.bytes);
    if (k != nullptr) AddResult("K_OUT", k->dtype, k->shape, k->bytes);
    return absl::OkStatus();
  }

  absl::Status PrepareBiasModel() {
    const InputTensor* const scores = Find(TensorRole::kScores);
    const InputTensor* const table = Find(TensorRole::kTable);
    BiasRequest request;
    request.spec = options_.bias;
    request.heads = options_.heads.value_or(DefaultHeads(scores, table));
    request.query_positions = OptionalPositions(TensorRole::kQueryPositions);
    request.key_positions = OptionalPositions(TensorRole::kKeyPositions);
    request.table = options_.table;
    if (table != nullptr) request.table_values = DescOf(*table);
    if (scores != nullptr) request.add_to = DescOf(*scores);
    request.output_dtype =
        options_.output_dtype.value_or(scores == nullptr ? model_.outputs[0].dtype : scores->dtype);
    auto& item = out_.item.emplace<engine::BiasItem>();
    PHASOR_ASSIGN_OR_RETURN(item.prepared, PrepareBias(request, context_.tables, "item"));
    const TensorDesc& output = item.prepared.output;
    AddResult("BIAS", output.dtype, output.shape, item.prepared.output_bytes);
    return absl::OkStatus();
  }

  // As many as a tensor has; 0, which is refused, when nothing says it. Buckets have one.
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
    out_.output_bytes += bytes;
  }

  const Model& model_;
  const InferOptions& options_;
  const PrepareContext& context_;
  PreparedInfer& out_;
  std::vector<OutputTensor> results_;
};

// Whether two tensors share bytes of a region.
template <typename A, typename B>
bool Meet(const A& a, const B& b) {
  if (a.range.in_message() || a.range.region != b.range.region ||
      a.range.device != b.range.device) {
    return false;
  }
  return a.range.offset < b.range.offset + b.bytes && b.range.offset < a.range.offset + a.bytes;
}

// Whether writing the results changes what the call was made with.
bool ReplacesAnInput(const PreparedInfer& prepared) {
  return std::any_of(
      prepared.outputs.begin(), prepared.outputs.end(), [&](const OutputTensor& output) {
        return std::any_of(prepared.inputs.begin(), prepared.inputs.end(),
                           [&](const InputTensor& input) { return Meet(output, input); });
      });
}

absl::Status CheckResponseSize(const PreparedInfer& prepared, int64_t limit) {
  int64_t room = limit;
  for (const OutputTensor& output : prepared.outputs) {
    const int64_t bytes = output.range.in_message() ? output.bytes : 0;
    if (kOutputHeaderBytes > room || bytes > room - kOutputHeaderBytes) {
      return absl::ResourceExhaustedError(
          StrCat(output.path, ": the response is too large, must be at most ", limit,
                 " bytes; shared memory or fewer positions help"));
    }
    room -= bytes + kOutputHeaderBytes;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelRef> FindVersion(const ModelSet& models, const std::string& name,
                                     const std::string& version) {
  const bool number = std::all_of(version.begin(), version.end(), absl::ascii_isdigit);
  if (!number) return Invalid("model_version: '", Shown(version), "', must be a number or empty");
  ModelRef model = models.Find(name);
  if (model != nullptr && (version.empty() || version == kModelVersion)) return model;
  const std::string asked = model == nullptr ? "" : StrCat(" version ", Shown(version));
  const std::string nearest = model == nullptr ? DidYouMean(name, models.NamesNear(name)) : ",";
  return absl::NotFoundError(StrCat("model_name: Request for unknown model: '", Shown(name), "'",
                                    asked, " is not found", nearest,
                                    " RepositoryIndex lists them all"));
}

absl::StatusOr<PreparedInfer> PrepareInfer(const inference::ModelInferRequest& request,
                                           absl::Span<const engine::Segments> raw,
                                           const PrepareContext& context) {
  PreparedInfer out;
  PHASOR_ASSIGN_OR_RETURN(
      out.model, FindVersion(*context.models, request.model_name(), request.model_version()));
  out.id = request.id();
  PHASOR_ASSIGN_OR_RETURN(const InferOptions options,
                          ReadOptions(*out.model, request.parameters()));
  out.timeout = options.timeout;
  PHASOR_ASSIGN_OR_RETURN(out.inputs, ReadInputs(request, raw, context.memory));
  Preparer preparer(*out.model, options, context, &out);
  PHASOR_RETURN_IF_ERROR(preparer.Prepare());
  PHASOR_ASSIGN_OR_RETURN(
      out.outputs, ReadOutputs(request, out.model->outputs, preparer.results(), context.memory));
  for (size_t i = 0; i < out.inputs.size(); ++i) {
    *SegmentsOf(out.roles[i], &out.item) = out.inputs[i].segments;
    if (!out.inputs[i].range.in_message()) out.region_bytes += out.inputs[i].bytes;
  }
  PHASOR_RETURN_IF_ERROR(UseDeviceMemory(&out));
  out.in_place = out.in_place || ReplacesAnInput(out);
  PHASOR_RETURN_IF_ERROR(CheckResponseSize(out, context.max_message_bytes));
  return out;
}

engine::Segments* SegmentsOf(TensorRole role, engine::Item* item) {
  auto* const encode = std::get_if<engine::EncodeItem>(item);
  auto* const rope = std::get_if<engine::RopeItem>(item);
  auto* const bias = std::get_if<engine::BiasItem>(item);
  switch (role) {
    case TensorRole::kPositions:
      return encode != nullptr ? &encode->positions : &rope->positions;
    case TensorRole::kFromPositions:
      return &rope->from_positions;
    case TensorRole::kEmbeddings:
      return &encode->add_to;
    case TensorRole::kQ:
      return &rope->tensors[0];
    case TensorRole::kK:
      return &rope->tensors[1];
    case TensorRole::kQueryPositions:
      return &bias->queries;
    case TensorRole::kKeyPositions:
      return &bias->keys;
    case TensorRole::kScores:
      return &bias->add_to;
    case TensorRole::kTable:
      return &bias->table_values;
    case TensorRole::kOutput:
      break;
  }
  return nullptr;
}

absl::Status RenamePath(const absl::Status& status, const PathNames& paths) {
  if (status.ok()) return status;
  const absl::string_view message = status.message();
  for (const auto& [from, to] : paths) {
    const bool matches = absl::StartsWith(message, from) && message.size() > from.size() &&
                         absl::string_view(".:[").find(message[from.size()]) != message.npos;
    if (matches) return absl::Status(status.code(), StrCat(to, message.substr(from.size())));
  }
  return status;
}

}  // namespace phasor::oip
