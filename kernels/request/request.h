// SPDX-License-Identifier: Apache-2.0
// Requests as values, and their preparation, which does every check that needs no payload bytes.
// The server and the in-process client share it, so both give the same errors and the same bytes.
//
// Steps of a request: the caller fills in an EncodeRequest or a RopeRequest. Prepare* resolves the
// spec, gets the plan and computes all sizes. The caller provides memory of those sizes. Make*Job
// combines the two.
#ifndef PHASOR_KERNELS_REQUEST_REQUEST_H_
#define PHASOR_KERNELS_REQUEST_REQUEST_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend/batch.h"
#include "kernels/base/dtype.h"
#include "kernels/plan/plan.h"
#include "kernels/spec/spec.h"
#include "kernels/tensor/positions.h"
#include "kernels/tensor/table.h"
#include "kernels/tensor/tensor_desc.h"

namespace phasor {

// What the caller requires; empty or 0 accepts anything.
struct Pins {
  std::string spec_fingerprint;
  uint32_t numerics_version = 0;
  std::string backend;
  friend bool operator==(const Pins&, const Pins&) = default;
};

// A request for the rows of an encoding, a rotary table or a learned table, not checked yet.
struct EncodeRequest {
  Spec spec;
  Positions positions;
  Dtype output_dtype = Dtype::kFloat32;
  std::optional<TensorDesc> add_to;
  double embedding_scale = 1.0;
  EncodeOutput output = EncodeOutput::kEmbedding;
  Pins pins;
  // Takes rows of this stored table instead of a spec's encoding. Positions: integers, one axis.
  std::string table = {};
  OutOfRange out_of_range = OutOfRange::kStrict;  // table only
};

enum class Direction : uint8_t { kForward, kInverse, kDelta };
enum class RopeLayout : uint8_t { kTokensHeads, kHeadsTokens };

// The type that a rotated tensor is converted to.
struct RopeOutput {
  std::optional<Dtype> dtype;  // not set: the input's; FLOAT8 of FLOAT16 and BFLOAT16 only
  // FLOAT8 only: factor before rounding, finite and > 0; not set: 1.
  std::optional<float> inv_scale;
};

// A cache whose pages receive rotated keys and unchanged values, in place of outputs. A cache is
// [pages, page_size, heads, head_dim], of the type of its keys or values, or FLOAT8 where those are
// FLOAT16 or BFLOAT16. Before rounding to FLOAT8, keys are multiplied by the inv_scale of the keys'
// output, and values by value_inv_scale.
struct PagedCache {
  int64_t key_index = 0;  // which of the tensors is the keys
  TensorDesc values;      // [tokens, heads, head_dim] or heads before tokens
  TensorDesc key_cache;
  TensorDesc value_cache;
  std::optional<float> value_inv_scale;
  TensorDesc slot_mapping;  // INT32 or INT64 [tokens]: page * page_size + slot; -1: not written
};

// A request to rotate tensors, not checked yet.
struct RopeRequest {
  Spec spec;
  Positions positions;
  std::vector<TensorDesc> tensors;  // [(batch,) tokens, heads, head_dim] or heads before tokens
  Direction direction = Direction::kForward;
  RopeLayout layout = RopeLayout::kTokensHeads;
  std::optional<Positions> from_positions;  // delta only: the positions of the keys now
  std::optional<Spec> from_spec;  // delta only: the spec that rotated the keys; not set: `spec`
  Pins pins;
  std::vector<RopeOutput> outputs = {};  // empty, or one per tensor
  std::optional<PagedCache> paged_cache = {};
};

// Returns the plan of a resolved spec: CompilePlan, or a cache in front of it.
using PlanProvider =
    absl::FunctionRef<absl::StatusOr<std::shared_ptr<const Plan>>(const ResolvedSpec&)>;

// A checked request. All byte counts fit int64 and are sizes of the memory that Make*Job needs.
struct PreparedEncode {
  std::shared_ptr<const Plan> plan;    // nullptr: rows of `table`, see kernels/request/lookup.h
  std::shared_ptr<const Table> table;  // nullptr: the plan's encoding
  OutOfRange out_of_range = OutOfRange::kStrict;
  std::shared_ptr<const RowLayout> layout;  // of the plan's rows
  std::string table_fingerprint;            // the plan has its own
  PositionSource positions;                 // without data
  int64_t positions_bytes = 0;              // payload of a position tensor, else 0
  DenseDesc output;                         // [positions, dim] unless a rotary table
  int64_t output_bytes = 0;
  std::optional<TensorDesc> add_to;
  int64_t add_to_bytes = 0;  // spanned by shape and strides; 0: nothing to add
  double embedding_scale = 1.0;
};

// The pages that a rotation writes to. (Not inside PreparedRope: clang 14 cannot construct it
// there.)
struct RopePages {
  size_t key_index = 0;
  int64_t page_size = 0;
  int64_t slots = 0;  // of all pages
  Dtype slot_dtype = Dtype::kInt64;
  int64_t slot_mapping_bytes = 0;
  // Byte offsets of the tokens in the caches; negative: the token is not written. Set by SetSlots
  // (kernels/request/paged_cache.h).
  std::vector<int64_t> key_offsets;
  std::vector<int64_t> value_offsets;
};

// A checked rotation; byte counts as in PreparedEncode.
struct PreparedRope {
  std::shared_ptr<const Plan> plan;
  std::shared_ptr<const Plan> from_plan;  // delta only
  PositionSource positions;
  int64_t positions_bytes = 0;
  std::optional<PositionSource> from_positions;
  int64_t from_positions_bytes = 0;
  bool inverse = false;
  RopeLayout layout = RopeLayout::kTokensHeads;
  int64_t batch = 1;
  int64_t tokens = 0;
  struct Tensor {
    Dtype dtype = Dtype::kFloat32;
    std::vector<int64_t> shape;  // of input and output
    bool dense = true;           // the input has the strides of the output
    int64_t heads = 0;
    RotaryStrides x_strides;
    RotaryStrides y_strides;  // of a dense output; of pages, slots and heads of a cache
    int64_t input_bytes = 0;  // spanned by shape and strides
    int64_t output_bytes = 0;
    Dtype output_dtype = Dtype::kFloat32;
    float inv_scale = 1;
    bool rotates = true;               // false: copied
    std::vector<int64_t> cache_shape;  // not empty: the output is this cache, whose bytes stay
                                       // where no token is written
  };
  std::vector<Tensor> tensors;
  // A paged cache: receives tensors[key_index] and the last tensor, which is the values.
  using Pages = RopePages;
  std::optional<Pages> pages;
};

// Check a request and get its plan. `path` begins all messages ("item"). `tables` is where a
// request's table is looked up. Errors:
//   INVALID_ARGUMENT, NOT_FOUND, UNIMPLEMENTED: as ResolveSpec.
//   INVALID_ARGUMENT also: shapes, strides, dtypes or positions are wrong.
//   FAILED_PRECONDITION: a pin differs. The owner of the backend checks the backend pin.
//   UNIMPLEMENTED also: the request names a table and `tables` is nullptr.
//   OUT_OF_RANGE: positions beyond the table, as far as they are known without payload.
//
// A rotary spec may leave head_dim open; it is then the last dimension of the tensors. A delta
// reads keys that from_spec rotated, and writes them as if spec had rotated them.
absl::StatusOr<PreparedEncode> PrepareEncode(const EncodeRequest& request, PlanProvider plans,
                                             std::string_view path,
                                             const TableSource* tables = nullptr);
absl::StatusOr<PreparedRope> PrepareRope(const RopeRequest& request, PlanProvider plans,
                                         std::string_view path);

// Gives a prepared request other positions, with the checks and the errors of Prepare*. Nothing
// else of a request depends on its positions if it has no add_to, from_positions or table. `path`
// is that of the positions. After an error, `prepared` must not be used.
absl::Status ReplacePositions(const Positions& positions, std::string_view path,
                              PreparedEncode* prepared);
absl::Status ReplacePositions(const Positions& positions, std::string_view path,
                              PreparedRope* prepared);

// The request for tokens first..first+count-1 alone; [first, first+count) must lie in [0, tokens].
// The inputs and add_to of `prepared` must be dense. A rotation must have batch == 1 and no pages.
// Position data that is set stays borrowed.
PreparedEncode SliceTokens(const PreparedEncode& prepared, int64_t first, int64_t count);
PreparedRope SliceTokens(const PreparedRope& prepared, int64_t first, int64_t count);

// Combine a prepared request with memory. `prepared` must outlive the job. First the caller points
// `prepared.positions.data` (and `from_positions->data`) at the payload of position tensors.
EncodeJob MakeEncodeJob(const PreparedEncode& prepared, const std::byte* add_to, std::byte* output);
// x[i] and y[i] are tensor i. x[i] == y[i] means in place, for dense tensors only. The caller may
// replace y strides afterwards (in-process calls on strided memory do). SetSlots must have set the
// offsets of pages.
RotaryJob MakeRotaryJob(const PreparedRope& prepared, absl::Span<const std::byte* const> x,
                        absl::Span<std::byte* const> y);

// Parts of the preparation that several kinds of request share. FAILED_PRECONDITION: a pin differs.
absl::Status CheckPins(const Pins& pins, std::string_view fingerprint, std::string_view path);
// Checks add_to and embedding_scale against out.output and fills them in. INVALID_ARGUMENT: they do
// not fit.
absl::Status PrepareAddTo(const EncodeRequest& request, std::string_view path, PreparedEncode& out);

}  // namespace phasor

#endif  // PHASOR_KERNELS_REQUEST_REQUEST_H_
