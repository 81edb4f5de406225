// SPDX-License-Identifier: Apache-2.0
// Requests as values, and their preparation: every check that does not need the payload bytes.
// The server and the in-process client share it, so both give the same errors and the same bytes.
//
// Life of a request: the caller fills an EncodeRequest or RopeRequest; Prepare* resolves the spec,
// gets the plan and computes all sizes; the caller provides memory of those sizes; Make*Job joins
// the two.
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

// What a caller insists on; empty or 0 means any.
struct Pins {
  std::string spec_fingerprint;
  uint32_t numerics_version = 0;
  std::string backend;
  friend bool operator==(const Pins&, const Pins&) = default;
};

struct EncodeRequest {
  Spec spec;
  Positions positions;
  Dtype output_dtype = Dtype::kFloat32;
  std::optional<TensorDesc> add_to;
  double embedding_scale = 1.0;
  EncodeOutput output = EncodeOutput::kEmbedding;
  Pins pins;
  // Rows of this stored table instead of a spec's encoding; integer positions, one axis.
  std::string table = {};
  OutOfRange out_of_range = OutOfRange::kStrict;  // table only
};

enum class Direction : uint8_t { kForward, kInverse, kDelta };
enum class RopeLayout : uint8_t { kTokensHeads, kHeadsTokens };

// What a rotated tensor becomes.
struct RopeOutput {
  std::optional<Dtype> dtype;      // the input's when not set; FLOAT8 of FLOAT16 and BFLOAT16
  std::optional<float> inv_scale;  // FLOAT8 only: factor before rounding, finite and > 0; else 1
};

// Rotated keys and unchanged values that go to pages of a cache instead of an output.
struct PagedCache {
  int64_t key_index = 0;   // of the keys among the tensors
  TensorDesc values;       // [tokens, heads, head_dim] or heads before tokens
  TensorDesc key_cache;    // [pages, page_size, heads, head_dim]; of the keys' type or FLOAT8,
  TensorDesc value_cache;  // then with the inv_scale of the keys' output;
  std::optional<float> value_inv_scale;  // and this one
  TensorDesc slot_mapping;  // INT32 or INT64 [tokens]: page * page_size + slot, -1: not written
};

struct RopeRequest {
  Spec spec;
  Positions positions;
  std::vector<TensorDesc> tensors;  // [(batch,) tokens, heads, head_dim] or heads before tokens
  Direction direction = Direction::kForward;
  RopeLayout layout = RopeLayout::kTokensHeads;
  std::optional<Positions> from_positions;  // delta only: where the keys stand now
  std::optional<Spec> from_spec;            // delta only: what rotated them; `spec` when not set
  Pins pins;
  std::vector<RopeOutput> outputs = {};  // none, or one per tensor
  std::optional<PagedCache> paged_cache = {};
};

// Gets the plan of a resolved spec: CompilePlan, or a cache in front of it.
using PlanProvider =
    absl::FunctionRef<absl::StatusOr<std::shared_ptr<const Plan>>(const ResolvedSpec&)>;

// A checked request. All byte counts fit int64 and are those of the memory that Make*Job wants.
struct PreparedEncode {
  std::shared_ptr<const Plan> plan;    // nullptr: rows of `table`, see kernels/request/lookup.h
  std::shared_ptr<const Table> table;  // nullptr: the plan's encoding
  OutOfRange out_of_range = OutOfRange::kStrict;
  std::shared_ptr<const RowLayout> layout;  // of the plan's rows
  std::string fingerprint;                  // of plan or table
  PositionSource positions;                 // without data
  int64_t positions_bytes = 0;              // payload of a position tensor, else 0
  TensorDesc output;                        // dense; [positions, dim] unless a rotary table
  int64_t output_bytes = 0;
  std::optional<TensorDesc> add_to;
  int64_t add_to_bytes = 0;  // what shape and strides span; 0: nothing to add
  double embedding_scale = 1.0;
};

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
    bool dense = true;           // input strides are the output's
    int64_t heads = 0;
    RotaryStrides x_strides;
    RotaryStrides y_strides;  // dense output; of pages, slots and heads of a cache
    int64_t input_bytes = 0;  // what shape and strides span
    int64_t output_bytes = 0;
    Dtype output_dtype = Dtype::kFloat32;
    float inv_scale = 1;
    bool rotates = true;               // else copied
    std::vector<int64_t> cache_shape;  // not empty: the output is this cache, whose bytes stay
                                       // where no token is written
  };
  std::vector<Tensor> tensors;
  // Of a paged cache: tensors[key_index] and the last tensor, the values, go there.
  struct Pages {
    size_t key_index = 0;
    int64_t page_size = 0;
    int64_t slots = 0;  // of all pages
    Dtype slot_dtype = Dtype::kInt64;
    int64_t slot_mapping_bytes = 0;
    // Set by SetSlots (kernels/request/paged_cache.h): where tokens go, in bytes; negative:
    // nowhere.
    std::vector<int64_t> key_offsets;
    std::vector<int64_t> value_offsets;
  };
  std::optional<Pages> pages;
};

// Type and shape of an output, dense.
TensorDesc OutputOf(const PreparedRope::Tensor& tensor);

// INVALID_ARGUMENT, NOT_FOUND, UNIMPLEMENTED as in ResolveSpec; INVALID_ARGUMENT also for shapes,
// strides, dtypes and positions; FAILED_PRECONDITION: a pin differs (the backend pin is checked by
// whoever owns the backend). `path` prefixes messages ("item"). `tables` is where a request's table
// is found; nullptr: UNIMPLEMENTED. OUT_OF_RANGE: positions beyond it, as far as they are known.
//
// A rotary spec may leave head_dim open: it is then the tensors' last dimension. A delta reads keys
// as from_spec wrote them and writes them as spec would have.
absl::StatusOr<PreparedEncode> PrepareEncode(const EncodeRequest& request, PlanProvider plans,
                                             std::string_view path,
                                             const TableSource* tables = nullptr);
absl::StatusOr<PreparedRope> PrepareRope(const RopeRequest& request, PlanProvider plans,
                                         std::string_view path);

// The part of a request that tokens first..first+count-1 are, as if they had been asked for alone;
// both in [0, tokens] together. `prepared` is dense: inputs, add_to; a rotation also has no batch
// (batch == 1) and no pages. Position data, where it is set, stays borrowed.
PreparedEncode SliceTokens(const PreparedEncode& prepared, int64_t first, int64_t count);
PreparedRope SliceTokens(const PreparedRope& prepared, int64_t first, int64_t count);

// Joins a prepared request with memory. The caller first points `prepared.positions.data` (and
// `from_positions->data`) at the payload of position tensors; `prepared` must outlive the job.
EncodeJob MakeEncodeJob(const PreparedEncode& prepared, const std::byte* add_to, std::byte* output);
// x[i], y[i]: tensor i; x[i] == y[i] means in place, only for dense tensors. y strides may be
// replaced by the caller afterwards (in-process calls on strided memory). Pages have their slots.
RotaryJob MakeRotaryJob(const PreparedRope& prepared, absl::Span<const std::byte* const> x,
                        absl::Span<std::byte* const> y);

// Parts of preparation that other kinds of request share. FAILED_PRECONDITION: a pin differs.
absl::Status CheckPins(const Pins& pins, std::string_view fingerprint, std::string_view path);
// Checks add_to and embedding_scale against out.output and fills in theirs. INVALID_ARGUMENT.
absl::Status PrepareAddTo(const EncodeRequest& request, std::string_view path, PreparedEncode& out);

}  // namespace phasor

#endif  // PHASOR_KERNELS_REQUEST_REQUEST_H_
