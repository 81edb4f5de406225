// SPDX-License-Identifier: Apache-2.0
// Lists the slots of each kind of request, and makes a job from their memory.
#include "kernels/request/prepared.h"

#include <optional>

#include "absl/container/inlined_vector.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"
#include "kernels/request/lookup.h"
#include "kernels/request/paged_cache.h"
#include "kernels/request/slot_positions.h"

namespace phasor {
namespace {

template <typename... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <typename... F>
Overloaded(F...) -> Overloaded<F...>;

void AddPositions(const PositionSource& source, int64_t bytes, Role role, Slots* slots) {
  if (source.kind != PositionSource::Kind::kTensor) return;
  slots->inputs.push_back({.role = role, .reading = Reading::kNumbers, .bytes = bytes});
}

// Adds the one output of an encoding or a bias, and the input that is added to it, if any.
void AddOutput(const std::optional<TensorDesc>& add_to, int64_t add_to_bytes, int64_t bytes,
               bool on_device, Slots* slots) {
  OutputSlot output{.on_device = on_device, .bytes = bytes, .like_input_bytes = add_to_bytes};
  if (add_to.has_value()) {
    output.input = static_cast<int>(slots->inputs.size());
    slots->inputs.push_back({.role = Role::kAddTo,
                             .reading = IsDense(*add_to) ? Reading::kLikeOutput : Reading::kWhole,
                             .output = 0,
                             .on_device = on_device,
                             .bytes = add_to_bytes});
  }
  slots->outputs.push_back(output);
}

// An empty list with room for the slots of most requests.
Slots NoSlots() {
  Slots slots;
  slots.inputs.reserve(4);
  slots.outputs.reserve(2);
  return slots;
}

Slots SlotsOfKind(const PreparedEncode& encode) {
  Slots slots;  // most have no input and one output
  AddPositions(encode.positions, encode.positions_bytes, Role::kPositions, &slots);
  AddOutput(encode.add_to, encode.add_to_bytes, encode.output_bytes, /*on_device=*/true, &slots);
  return slots;
}

Slots SlotsOfKind(const PreparedBias& bias) {
  Slots slots = NoSlots();
  AddPositions(bias.queries, bias.queries_bytes, Role::kQueryPositions, &slots);
  AddPositions(bias.keys, bias.keys_bytes, Role::kKeyPositions, &slots);
  AddOutput(bias.add_to, bias.add_to_bytes, bias.output_bytes, /*on_device=*/false, &slots);
  if (bias.table_bytes > 0) {
    slots.inputs.push_back({.role = Role::kTableValues, .bytes = bias.table_bytes});
  }
  return slots;
}

InputSlot TensorSlot(const PreparedRope::Tensor& tensor, Role role, size_t i) {
  const bool alike =
      tensor.dense && tensor.output_dtype == tensor.dtype && tensor.cache_shape.empty();
  return {.role = role,
          .index = role == Role::kTensor ? static_cast<int>(i) : 0,
          .reading = alike ? Reading::kInPieces : Reading::kWhole,
          .output = static_cast<int>(i),
          .on_device = true,
          .bytes = tensor.input_bytes};
}

// Adds the values, what the caches hold, and the slot mapping, in this order.
void AddPages(const PreparedRope& rope, Slots* slots) {
  const size_t key = rope.pages->key_index, value = rope.tensors.size() - 1;
  slots->inputs.push_back(TensorSlot(rope.tensors[value], Role::kValues, value));
  for (const auto& [role, i] : {std::pair(Role::kKeyCache, key), {Role::kValueCache, value}}) {
    slots->outputs[i].role = role;
    slots->inputs.push_back({.role = role,
                             .reading = Reading::kInitial,
                             .output = static_cast<int>(i),
                             .bytes = rope.tensors[i].output_bytes});
  }
  slots->inputs.push_back({.role = Role::kSlotMapping,
                           .reading = Reading::kNumbers,
                           .bytes = rope.pages->slot_mapping_bytes,
                           .extra_bytes = rope.tokens * kBytesPerSlot});
}

Slots SlotsOfKind(const PreparedRope& rope) {
  Slots slots = NoSlots();
  for (size_t i = 0; i < rope.tensors.size(); ++i) {
    const PreparedRope::Tensor& tensor = rope.tensors[i];
    slots.outputs.push_back({.index = static_cast<int>(i),
                             .on_device = true,
                             .bytes = tensor.output_bytes,
                             .like_input_bytes = tensor.input_bytes / SizeOf(tensor.dtype) *
                                                 SizeOf(tensor.output_dtype)});
  }
  AddPositions(rope.positions, rope.positions_bytes, Role::kPositions, &slots);
  const size_t tensors = rope.tensors.size() - (rope.pages.has_value() ? 1 : 0);
  for (size_t i = 0; i < tensors; ++i) {
    slots.inputs.push_back(TensorSlot(rope.tensors[i], Role::kTensor, i));
  }
  if (rope.from_positions.has_value()) {
    AddPositions(*rope.from_positions, rope.from_positions_bytes, Role::kFromPositions, &slots);
  }
  if (rope.pages.has_value()) AddPages(rope, &slots);
  for (size_t k = 0; k < slots.inputs.size(); ++k) {
    const InputSlot& input = slots.inputs[k];
    if (input.output < 0 || input.reading == Reading::kInitial) continue;
    slots.outputs[static_cast<size_t>(input.output)].input = static_cast<int>(k);
  }
  return slots;
}

// Memory of the slots and positions of a move.
int64_t NumberBytes(const PreparedMove& move) {
  int64_t bytes = 0;
  for (const MoveTokens& tokens : move.groups) {
    bytes += tokens.count() * (2 + 2 * tokens.axes) * static_cast<int64_t>(sizeof(int64_t));
  }
  return bytes;
}

// A pool that is written is an output in its place. An inline one begins as the bytes that came.
Slots SlotsOfKind(const PreparedMove& move) {
  Slots slots;
  for (size_t i = 0; i < move.pools.size(); ++i) {
    const PreparedMove::Pool& pool = move.pools[i];
    InputSlot input{.role = Role::kPool,
                    .index = static_cast<int>(i),
                    .reading = pool.written ? Reading::kInitial : Reading::kInPart,
                    .on_device = true,
                    .bytes = pool.bytes,
                    .extra_bytes = i == 0 ? NumberBytes(move) : 0};
    if (pool.written) {
      input.output = static_cast<int>(slots.outputs.size());
      slots.outputs.push_back({.role = Role::kPool,
                               .index = input.index,
                               .on_device = true,
                               .moves_within = move.mode == MoveMode::kMove,
                               .bytes = pool.bytes});
    }
    slots.inputs.push_back(input);
  }
  if (move.mode == MoveMode::kCompare) {
    slots.outputs.push_back(
        {.role = Role::kReport, .bytes = static_cast<int64_t>(move.layers * sizeof(KeyReport))});
  }
  return slots;
}

// The positions in that role. The kind of request must have them.
PositionSource* PositionsOf(Role role, Prepared* prepared) {
  if (auto* const bias = std::get_if<PreparedBias>(prepared)) {
    return role == Role::kQueryPositions ? &bias->queries : &bias->keys;
  }
  if (auto* const encode = std::get_if<PreparedEncode>(prepared)) return &encode->positions;
  auto& rope = std::get<PreparedRope>(*prepared);
  return role == Role::kFromPositions ? &*rope.from_positions : &rope.positions;
}

const std::byte* Find(Role role, absl::Span<const InputMemory> inputs) {
  for (const InputMemory& input : inputs) {
    if (input.role == role) return input.data;
  }
  return nullptr;
}

// The strides of an output that is laid out as its input is.
RotaryStrides InputStrides(const PreparedRope::Tensor& tensor) {
  const int64_t from = SizeOf(tensor.dtype), to = SizeOf(tensor.output_dtype);
  const RotaryStrides& x = tensor.x_strides;
  return {x.batch / from * to, x.token / from * to, x.head / from * to};
}

Job MakeJobOfKind(const PreparedEncode& encode, absl::Span<const InputMemory> inputs,
                  absl::Span<const OutputMemory> outputs) {
  const std::byte* const add_to = Find(Role::kAddTo, inputs);
  if (encode.table != nullptr) return MakeLookupJob(encode, add_to, outputs[0].data);
  return MakeEncodeJob(encode, add_to, outputs[0].data);
}

Job MakeJobOfKind(const PreparedBias& bias, absl::Span<const InputMemory> inputs,
                  absl::Span<const OutputMemory> outputs) {
  return MakeBiasJob(bias, Find(Role::kTableValues, inputs), Find(Role::kAddTo, inputs),
                     outputs[0].data);
}

Job MakeJobOfKind(const PreparedRope& rope, absl::Span<const InputMemory> inputs,
                  absl::Span<const OutputMemory> outputs) {
  absl::InlinedVector<const std::byte*, 4> x(rope.tensors.size());
  absl::InlinedVector<std::byte*, 4> y(rope.tensors.size());
  for (const InputMemory& input : inputs) x[static_cast<size_t>(input.output)] = input.data;
  for (size_t i = 0; i < outputs.size(); ++i) y[i] = outputs[i].data;
  RotaryJob job = MakeRotaryJob(rope, x, y);
  for (const InputMemory& input : inputs) {
    job.tensors[static_cast<size_t>(input.output)].pieces = input.pieces;
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].like_input) job.tensors[i].y_strides = InputStrides(rope.tensors[i]);
  }
  return job;
}

// The memory of all pools: outputs that are written, inputs that are not.
absl::InlinedVector<std::byte*, 4> PoolsOf(const PreparedMove& move,
                                           absl::Span<const InputMemory> inputs,
                                           absl::Span<const OutputMemory> outputs) {
  absl::InlinedVector<std::byte*, 4> pools;
  size_t read = 0, written = 0;
  for (const PreparedMove::Pool& pool : move.pools) {
    // The job only reads pools that are not written.
    pools.push_back(pool.written ? outputs[written++].data
                                 : const_cast<std::byte*>(inputs[read++].data));
  }
  return pools;
}

Job MakeJobOfKind(const PreparedMove& move, absl::Span<const InputMemory> inputs,
                  absl::Span<const OutputMemory> outputs) {
  std::byte* const report = move.mode == MoveMode::kCompare ? outputs.back().data : nullptr;
  return MakeMoveJob(move, PoolsOf(move, inputs, outputs), report);
}

}  // namespace

std::string FieldOf(Role role, int index) {
  switch (role) {
    case Role::kPositions:
      return "positions";
    case Role::kFromPositions:
      return "from_positions";
    case Role::kQueryPositions:
      return "query_positions";
    case Role::kKeyPositions:
      return "key_positions";
    case Role::kSlotMapping:
      return "paged_cache.slot_mapping";
    case Role::kTensor:
      return StrCat("tensors[", index, "].tensor");
    case Role::kValues:
      return "paged_cache.values";
    case Role::kAddTo:
      return "add_to";
    case Role::kTableValues:
      return "table_values";
    case Role::kKeyCache:
      return "paged_cache.key_cache";
    case Role::kValueCache:
      return "paged_cache.value_cache";
    case Role::kPool:
      return StrCat("pools[", index, "]");
    case Role::kReport:
      return "report";
    case Role::kOutput:
      return "destination";
  }
  return "?";
}

Slots SlotsOf(const Prepared& prepared) {
  return std::visit([](const auto& kind) { return SlotsOfKind(kind); }, prepared);
}

ShapedType OutputOf(const Prepared& prepared, size_t i) {
  return std::visit(
      Overloaded{
          [&](const PreparedRope& rope) {
            const PreparedRope::Tensor& tensor = rope.tensors[i];
            const bool cache = !tensor.cache_shape.empty();
            return ShapedType{tensor.output_dtype, cache ? tensor.cache_shape : tensor.shape};
          },
          [](const PreparedMove&) { return ShapedType(); },
          [](const auto& kind) {
            return ShapedType{kind.output.dtype, kind.output.shape};
          }},
      prepared);
}

const Plan* PlanOf(const Prepared& prepared) {
  return std::visit(Overloaded{[](const PreparedBias&) -> const Plan* { return nullptr; },
                               [](const PreparedMove&) -> const Plan* { return nullptr; },
                               [](const auto& kind) -> const Plan* { return kind.plan.get(); }},
                    prepared);
}

const std::string& FingerprintOf(const Prepared& prepared) {
  static const auto* const kNone = new std::string;
  return std::visit(
      Overloaded{
          [](const PreparedEncode& encode) -> const std::string& {
            return encode.plan == nullptr ? encode.table_fingerprint : encode.plan->fingerprint;
          },
          [](const PreparedRope& rope) -> const std::string& { return rope.plan->fingerprint; },
          [](const PreparedMove&) -> const std::string& { return *kNone; },
          [](const PreparedBias& bias) -> const std::string& { return bias.fingerprint; }},
      prepared);
}

int64_t BytesInPart(const Prepared& prepared) {
  const auto* const move = std::get_if<PreparedMove>(&prepared);
  return move == nullptr ? 0 : 2 * move->moved_bytes;
}

absl::Status SetNumbers(const InputSlot& slot, const std::byte* data, std::string_view path,
                        Prepared* prepared) {
  if (slot.role == Role::kSlotMapping) {
    return SetSlots(data, path, std::get<PreparedRope>(*prepared));
  }
  PositionSource* const source = PositionsOf(slot.role, prepared);
  source->data = data;
  source->data_bytes = slot.bytes;
  return CheckPositionValues(*source, StrCat(path, ".", FieldOf(slot.role, slot.index)));
}

absl::Status CheckNumbers(const Prepared& prepared, std::string_view path) {
  if (const auto* const bias = std::get_if<PreparedBias>(&prepared)) {
    return CheckBiasPositions(*bias, path);
  }
  const auto* const encode = std::get_if<PreparedEncode>(&prepared);
  if (encode == nullptr || encode->table == nullptr) return absl::OkStatus();
  return CheckLookupPositions(*encode, path);
}

absl::Status CheckMemory(absl::Span<const InputMemory> inputs,
                         absl::Span<const OutputMemory> outputs, std::string_view path,
                         ReadMemory read, Prepared* prepared) {
  auto* const move = std::get_if<PreparedMove>(prepared);
  if (move == nullptr) return absl::OkStatus();
  return ReadSlotPositions(PoolsOf(*move, inputs, outputs), path, move, read);
}

Job MakeJob(const Prepared& prepared, absl::Span<const InputMemory> inputs,
            absl::Span<const OutputMemory> outputs) {
  return std::visit([&](const auto& kind) { return MakeJobOfKind(kind, inputs, outputs); },
                    prepared);
}

}  // namespace phasor
