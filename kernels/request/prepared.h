// SPDX-License-Identifier: Apache-2.0
// A checked request of any kind, as slots: the tensors that it reads and writes, and the job that
// it becomes once every slot has memory. Whoever moves bytes works on slots and need not know what
// is computed. A new operation adds its kind here (docs/adding-an-op.md).
#ifndef PHASOR_KERNELS_REQUEST_PREPARED_H_
#define PHASOR_KERNELS_REQUEST_PREPARED_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/backend/batch.h"
#include "kernels/request/bias.h"
#include "kernels/request/request.h"
#include "kernels/tensor/pieces.h"
#include "kernels/tensor/tensor_desc.h"

namespace phasor {

using Prepared = std::variant<PreparedEncode, PreparedRope, PreparedBias>;

// What a tensor is to the computation.
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
  kOutput,
};

// The field of an item that holds it, e.g. "tensors[1].tensor".
std::string FieldOf(Role role, int index);

// How an input is read.
enum class Reading : uint8_t {
  kNumbers,     // read and checked before the job, from memory that nobody changes meanwhile
  kWhole,       // in one piece
  kLikeOutput,  // in one piece; its bytes lie as the output's do, so it may be copied there first
  kInPieces,    // the same; on the host the backend also takes it in pieces
  kInitial,     // what a cache holds before the job: copied to the output
};

struct InputSlot {
  Role role = Role::kTensor;
  int index = 0;  // of kTensor: which of them
  Reading reading = Reading::kWhole;
  int output = -1;          // the output that it becomes, element by element; -1: none
  bool on_device = false;   // the backend takes it where it lies on a device
  int64_t bytes = 0;        // that shape and strides span
  int64_t extra_bytes = 0;  // of memory that reading it takes beside its own, at most
};

struct OutputSlot {
  Role role = Role::kOutput;     // or a cache
  int index = 0;                 // of kOutput: which of them
  int input = -1;                // the input that it is computed from; -1: none
  bool on_device = false;        // the backend writes it where it belongs on a device
  int64_t bytes = 0;             // dense; of a cache: that shape and strides span
  int64_t like_input_bytes = 0;  // that are written where it has the strides of its input
};

// In the order in which messages bring tensors. A position tensor has a slot, a range has none.
struct Slots {
  std::vector<InputSlot> inputs;
  std::vector<OutputSlot> outputs;
};
Slots SlotsOf(const Prepared& prepared);

// Type and shape of output `i`.
TensorDesc OutputOf(const Prepared& prepared, size_t i);

// The plan that it computes with; nullptr: a learned table, or a bias.
const Plan* PlanOf(const Prepared& prepared);

// Of the plan, the table or the bias.
const std::string& FingerprintOf(const Prepared& prepared);

// Gives `prepared` the numbers of a kNumbers input and checks them. Borrows `data`, but not a slot
// mapping. `path` is the item's. INVALID_ARGUMENT: a number out of range, a slot given twice.
absl::Status SetNumbers(const InputSlot& slot, const std::byte* data, std::string_view path,
                        Prepared* prepared);

// Checks numbers against each other and against a table, after the last SetNumbers. OUT_OF_RANGE,
// INVALID_ARGUMENT: as CheckLookupPositions and CheckBiasPositions.
absl::Status CheckNumbers(const Prepared& prepared, std::string_view path);

// Where the input of a slot is: in one piece, or in pieces where its reading allows it.
struct InputMemory {
  Role role = Role::kTensor;
  int output = -1;
  const std::byte* data = nullptr;
  Pieces pieces = {};
};
struct OutputMemory {
  std::byte* data = nullptr;
  bool like_input = false;  // has the strides of its input, else it is dense
};

// Joins a request with the memory of its slots: of all outputs in order, and of the inputs that are
// neither kNumbers nor kInitial. `prepared` must outlive the job, and have its numbers.
Job MakeJob(const Prepared& prepared, absl::Span<const InputMemory> inputs,
            absl::Span<const OutputMemory> outputs);

}  // namespace phasor

#endif  // PHASOR_KERNELS_REQUEST_PREPARED_H_
