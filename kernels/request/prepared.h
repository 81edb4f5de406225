// SPDX-License-Identifier: Apache-2.0
// A checked request of any kind, described by slots: the tensors that it reads and writes. Once
// every slot has memory it becomes a job. Code that moves bytes works on slots and need not know
// the operation. A new operation adds its kind here (docs/adding-an-op.md).
#ifndef PHASOR_KERNELS_REQUEST_PREPARED_H_
#define PHASOR_KERNELS_REQUEST_PREPARED_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/backend/batch.h"
#include "kernels/request/bias.h"
#include "kernels/request/move_keys.h"
#include "kernels/request/request.h"
#include "kernels/request/slot_positions.h"
#include "kernels/tensor/pieces.h"
#include "kernels/tensor/tensor_desc.h"

namespace phasor {

using Prepared = std::variant<PreparedEncode, PreparedRope, PreparedBias, PreparedMove>;

// What the computation uses a tensor for.
enum class Role : uint8_t {
  kPositions,
  kFromPositions,
  kQueryPositions,
  kKeyPositions,
  kSlotMapping,
  kTensor,  // to rotate
  kValues,  // copied to the value cache
  kAddTo,
  kTableValues,
  kKeyCache,
  kValueCache,
  kPool,    // memory of a move
  kReport,  // what COMPARE found
  kOutput,
};

// The field of an item that has the tensor of that role, e.g. "tensors[1].tensor".
std::string FieldOf(Role role, int index);

// How an input is read.
enum class Reading : uint8_t {
  kNumbers,     // read and checked before the job, from memory that does not change meanwhile
  kWhole,       // in one piece
  kInPart,      // in one piece, of which the job reads parts
  kLikeOutput,  // in one piece, laid out as the output is, so it may be copied to the output first
  kInPieces,    // as kLikeOutput; on the host the backend also takes it in pieces
  kInitial,     // what a cache holds before the job; copied to the output
};

// A tensor that a request reads.
struct InputSlot {
  Role role = Role::kTensor;
  int index = 0;  // of kTensor and kPool: which of them
  Reading reading = Reading::kWhole;
  int output = -1;          // the output that it becomes, element by element; -1: none
  bool on_device = false;   // the backend can read it in device memory
  int64_t bytes = 0;        // spanned by shape and strides
  int64_t extra_bytes = 0;  // most memory that reading it takes besides its own
};

// A tensor that a request writes.
struct OutputSlot {
  Role role = Role::kOutput;     // or a cache, a pool, a report
  int index = 0;                 // of kOutput and kPool: which of them
  int input = -1;                // the input that it is computed from; -1: none
  bool on_device = false;        // the backend can write it in device memory
  bool moves_within = false;     // the job's input is what the memory holds
  int64_t bytes = 0;             // if dense; of a cache: spanned by shape and strides
  int64_t like_input_bytes = 0;  // bytes written if it has the strides of its input
};

// The slots of a request, in the order in which messages carry tensors. A position tensor has a
// slot, a range of positions has none.
struct Slots {
  std::vector<InputSlot> inputs;
  absl::InlinedVector<OutputSlot, 1> outputs;
};
Slots SlotsOf(const Prepared& prepared);

// Type and shape of a dense tensor. Borrows the shape.
struct ShapedType {
  Dtype dtype = Dtype::kFloat32;
  absl::Span<const int64_t> shape = {};
};

// Type and shape of output `i`; none of a move. Borrows from `prepared`.
ShapedType OutputOf(const Prepared& prepared, size_t i);

// The plan of the request; nullptr: it uses a learned table, is a bias or a move.
const Plan* PlanOf(const Prepared& prepared);

// The fingerprint of the plan, the table or the bias. Empty: a move, whose specs have their own.
const std::string& FingerprintOf(const Prepared& prepared);

// Bytes that the request reads and writes in parts of its memory, beside its other slots.
int64_t BytesInPart(const Prepared& prepared);

// Gives `prepared` the values of a kNumbers input and checks them. Borrows `data`, except a slot
// mapping. `path` is that of the item. INVALID_ARGUMENT: a number is out of range, or two tokens
// have the same slot.
absl::Status SetNumbers(const InputSlot& slot, const std::byte* data, std::string_view path,
                        Prepared* prepared);

// Checks values against each other and against a table. Call it after the last SetNumbers.
// OUT_OF_RANGE, INVALID_ARGUMENT: as CheckLookupPositions and CheckBiasPositions.
absl::Status CheckNumbers(const Prepared& prepared, std::string_view path);

// The memory of an input slot: one piece, or several where its Reading allows them.
struct InputMemory {
  Role role = Role::kTensor;
  int output = -1;
  const std::byte* data = nullptr;
  Pieces pieces = {};
};
// The memory of an output slot.
struct OutputMemory {
  std::byte* data = nullptr;
  bool like_input = false;  // has the strides of its input; otherwise it is dense
};

// Checks what lies in the memory of a request that is ready to run: the slot positions of a move,
// whose tokens that are done it removes. The memory is that of MakeJob, which comes next; `read`
// copies from it. Errors: as ReadSlotPositions.
absl::Status CheckMemory(absl::Span<const InputMemory> inputs,
                         absl::Span<const OutputMemory> outputs, std::string_view path,
                         ReadMemory read, Prepared* prepared);

// Combines a request with the memory of its slots. `outputs`: all outputs in order. `inputs`: those
// that are neither kNumbers nor kInitial. `prepared` must have its numbers and must outlive the
// job.
Job MakeJob(const Prepared& prepared, absl::Span<const InputMemory> inputs,
            absl::Span<const OutputMemory> outputs);

}  // namespace phasor

#endif  // PHASOR_KERNELS_REQUEST_PREPARED_H_
