// SPDX-License-Identifier: Apache-2.0
// Jobs: what a backend runs. Plain values that borrow their tensors. kernels/request/request.h
// checks them before they are made.
#ifndef PHASOR_KERNELS_BACKEND_BATCH_H_
#define PHASOR_KERNELS_BACKEND_BATCH_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "kernels/backend/stop.h"
#include "kernels/base/dtype.h"
#include "kernels/ops/key_difference.h"
#include "kernels/ops/key_form.h"
#include "kernels/plan/bias_rule.h"
#include "kernels/plan/plan.h"
#include "kernels/tensor/pieces.h"
#include "kernels/tensor/positions.h"
#include "kernels/tensor/table.h"

namespace phasor {

// out[t, :] = embedding_scale * add_to[t, :] + encoding(position[t]); or rows of a rotary table.
struct EncodeJob {
  const Plan* plan = nullptr;
  const RowLayout* layout = nullptr;          // nullptr: the plan's, for an encoding
  const PositionSource* positions = nullptr;  // count() rows
  Dtype dtype = Dtype::kFloat32;              // of out and add_to; a compute dtype
  std::byte* out = nullptr;                   // [count, width], any alignment
  int64_t out_row_bytes = 0;
  const std::byte* add_to = nullptr;  // nullptr: nothing to add. May equal out.
  int64_t add_to_row_bytes = 0;
  double embedding_scale = 1.0;
};

inline const RowLayout& LayoutOf(const EncodeJob& job) {
  return job.layout != nullptr ? *job.layout : job.plan->layout;
}

// The distance in bytes from one batch entry, token or head to the next.
struct RotaryStrides {
  int64_t batch = 0;
  int64_t token = 0;
  int64_t head = 0;
};

// One tensor of a rotary job. The lanes of a head are contiguous.
struct RotaryTensor {
  Dtype dtype = Dtype::kFloat32;  // a compute dtype
  int64_t heads = 0;
  const std::byte* x = nullptr;  // any alignment
  RotaryStrides x_strides;
  std::byte* y = nullptr;  // may equal x (in place) if the strides are equal; no other overlap
  RotaryStrides y_strides;
  // Replaces x: the dense tensor as it arrived, in y's layout. The backend gathers the pieces into
  // y and rotates there. Only if y has type dtype and there are no offsets.
  Pieces pieces;
  // kNone: y has type dtype. Otherwise FLOAT16 or BFLOAT16 values are multiplied by inv_scale,
  // saturated and rounded to this type.
  Float8 float8 = Float8::kNone;
  float inv_scale = 1;
  bool rotates = true;  // false: all lanes are copied
  // [tokens], for a job without a batch: bytes from y to each token, instead of y_strides.
  // Negative: the token is not written. Multiples of y_strides.batch and .token, the bytes of a
  // page and of a slot.
  const int64_t* y_offsets = nullptr;
};

inline int64_t OutputSizeOf(const RotaryTensor& tensor) {
  return tensor.float8 == Float8::kNone ? SizeOf(tensor.dtype) : 1;
}

// y = A R(phase) x for every token and head, with the phase and amplitude of `positions` under
// `plan`. `inverse` undoes that. With from_plan and from_positions, the rotation is relative to
// theirs; then `inverse` must not be set.
struct RotaryJob {
  const Plan* plan = nullptr;
  const PositionSource* positions = nullptr;       // tokens, or batch * tokens
  const Plan* from_plan = nullptr;                 // has the same lanes and heads
  const PositionSource* from_positions = nullptr;  // delta only
  bool inverse = false;
  int64_t batch = 1;
  int64_t tokens = 0;
  std::vector<RotaryTensor> tensors;

  bool is_delta() const { return from_positions != nullptr; }
};

// The amplitude of the whole call without xPos. In a delta, the factor that the keys already have
// is divided out.
inline double AmplitudeOf(const RotaryJob& job) {
  const double to = job.plan->amplitude;
  if (job.is_delta()) return to / job.from_plan->amplitude;
  return job.inverse ? 1 / to : to;
}

// Lanes are read where the earlier rotation wrote them: that of from_plan, or the one to be undone.
inline Pairing PairingIn(const RotaryJob& job) {
  if (job.is_delta()) return job.from_plan->spec.pairing_out;
  return job.inverse ? job.plan->spec.pairing_out : job.plan->spec.pairing;
}

inline Pairing PairingOut(const RotaryJob& job) {
  return job.inverse ? job.plan->spec.pairing : job.plan->spec.pairing_out;
}

// out[t, :] = embedding_scale * add_to[t, :] + table[position[t], :]. Positions beyond the table
// are clipped to it.
struct LookupJob {
  const Table* table = nullptr;
  const PositionSource* positions = nullptr;  // count() rows; integers, one axis
  Dtype dtype = Dtype::kFloat32;              // of out and add_to; a compute dtype
  std::byte* out = nullptr;                   // [count, columns], any alignment
  int64_t out_row_bytes = 0;
  const std::byte* add_to = nullptr;  // nullptr: nothing to add. May equal out.
  int64_t add_to_row_bytes = 0;
  double embedding_scale = 1.0;
};

// out[h, q, k] = add_to[h, q, k] + bias of query q and key k in head h (kernels/ops/bias.h).
struct BiasJob {
  const BiasRule* rule = nullptr;
  const PositionSource* queries = nullptr;  // integers, the rule's axes
  const PositionSource* keys = nullptr;
  int64_t heads = 0;
  Dtype table_dtype = Dtype::kFloat32;
  const std::byte* table = nullptr;  // table families: [table_rows, heads], any alignment
  Dtype dtype = Dtype::kFloat32;     // of out and add_to; INT32 or INT64: indices, one head
  std::byte* out = nullptr;          // [heads, queries, keys], any alignment
  int64_t out_head_bytes = 0;
  int64_t out_row_bytes = 0;
  const std::byte* add_to = nullptr;  // nullptr: nothing to add. May equal out, strides equal.
  int64_t add_to_head_bytes = 0;
  int64_t add_to_row_bytes = 0;
};

enum class MoveMode : uint8_t {
  kCopyOnWrite,  // to other slots or pools; sources keep their bytes
  kMove,         // in place
  kCompare,      // writes nothing: compares what a move would give with what is there
};

// Tokens and where they go. Positions are [tokens, axes].
struct MoveTokens {
  // A place of u32 numbers, least significant byte first, one for each slot.
  struct SlotPositions {
    size_t pool = 0;
    int64_t offset = 0;
  };

  std::vector<int64_t> from_slots;
  std::vector<int64_t> to_slots;
  std::vector<int64_t> from_positions;
  std::vector<int64_t> to_positions;
  int axes = 1;
  // Not COMPARE: gets the position of each token after the token's last layer.
  std::optional<SlotPositions> slot_positions;
  int64_t count() const { return static_cast<int64_t>(from_slots.size()); }
};

// One layer's rows in a move. Offsets are those of the first lane of slot 0 of page 0, head 0.
struct MovePlane {
  const Plan* plan = nullptr;       // nullptr: rows are copied
  const Plan* from_plan = nullptr;  // the spec that rotated the keys; has the same lanes
  size_t form = 0;
  size_t to_form = 0;  // differs in distances only
  size_t tokens = 0;   // which of the MoveTokens
  size_t pool = 0;
  size_t to_pool = 0;
  int64_t offset = 0;
  int64_t to_offset = 0;
};

// Moves keys where they lie (kernels/ops/key_rows.h). Borrows everything.
struct MoveJob {
  MoveMode mode = MoveMode::kCopyOnWrite;
  const std::vector<KeyForm>* forms = nullptr;
  const std::vector<MoveTokens>* groups = nullptr;
  const std::vector<MovePlane>* planes = nullptr;
  std::vector<std::byte*> pools;
  // COMPARE, of the first report_count planes.
  const double* tolerances = nullptr;  // [reports]
  std::byte* reports = nullptr;        // [reports] KeyReport, any alignment
  int64_t report_count = 0;
  // Asked before each piece of the job, and before each tile of COMPARE; nullptr: never.
  Stop* stop = nullptr;
};

using Job = std::variant<EncodeJob, RotaryJob, LookupJob, BiasJob, MoveJob>;

}  // namespace phasor

#endif  // PHASOR_KERNELS_BACKEND_BATCH_H_
