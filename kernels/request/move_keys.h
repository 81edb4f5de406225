// SPDX-License-Identifier: Apache-2.0
// Requests to move cached keys where they lie, and their preparation: every check that needs no
// byte of the cache. docs/move-keys.md explains them.
//
// Steps: the caller fills in a MoveRequest. PrepareMove resolves specs and layouts, and checks
// ranges, duplicates and overlap. MakeMoveJob adds the memory of the pools.
// Threads: pure functions.
#ifndef PHASOR_KERNELS_REQUEST_MOVE_KEYS_H_
#define PHASOR_KERNELS_REQUEST_MOVE_KEYS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend/batch.h"
#include "kernels/ops/key_form.h"
#include "kernels/request/request.h"
#include "kernels/spec/spec.h"

namespace phasor {

// The layout of the keys of a layer: a name (kernels/request/key_layouts.h), or distances in bytes.
// What is not set follows from the name, or is dense.
struct KeyLayout {
  std::string name = {};
  KeyCode code = KeyCode::kBFloat16;
  int64_t pages = 0;
  int64_t page_size = 1;
  int64_t heads = 0;
  int64_t head_dim = 0;
  int64_t layers = 1;  // in one tensor, for names with layers inside
  std::optional<int64_t> page_bytes = {};
  std::optional<int64_t> slot_bytes = {};
  std::optional<int64_t> head_bytes = {};
  std::optional<int64_t> lane_bytes = {};
  std::optional<int64_t> group_lanes = {};
  std::optional<int64_t> group_bytes = {};
  // Bytes of a row before its first lane, and of the whole row, for rows that hold more than the
  // lanes of the spec (MLA). A copy takes them along.
  std::optional<int64_t> lanes_offset = {};
  std::optional<int64_t> row_bytes = {};
  // FLOAT8 with one scale for all. Not set: 1.
  std::optional<float> scale = {};
  // FLOAT8 and INT8 with a scale for every row.
  std::optional<KeyScales> scales = {};
  int64_t hadamard = 0;  // lanes of a Hadamard block; 0: none
};

// A change of position, and of spec where from_spec is set. Pins are those of both fingerprints, or
// of both models (KeyLayer::model_layer); empty accepts any.
struct KeySpec {
  Spec spec;
  std::optional<Spec> from_spec = {};
  std::string fingerprint = {};
  std::string from_fingerprint = {};
};

// A place in a pool.
struct KeyPlace {
  int64_t pool = 0;
  int64_t offset_bytes = 0;  // of the tensor with the layout
};

// The keys of one layer. Without a spec they have no rotation, and are copied.
struct KeyLayer {
  int64_t layout = 0;  // index
  std::optional<int64_t> spec = {};
  int64_t group = 0;
  KeyPlace place = {};
  int64_t layer = 0;        // which one, if the tensor holds all layers
  bool copy_values = true;  // with the keys, where the layout says where values lie
  // COPY_ON_WRITE and COMPARE: the destination, if it is not `place` and `layout`.
  std::optional<KeyPlace> to_place = {};
  std::optional<int64_t> to_layout = {};
  // Number of the layer in the model whose config_json the spec holds. A layer that does not rotate
  // is copied. All layers with one spec have it, or none.
  std::optional<int64_t> model_layer = {};
};

// Consecutive tokens of a sequence. Token i is at place first + i of the pages in block_table, and
// moves from position from + i to position to + i, on all axes alike.
struct KeyRun {
  std::vector<int64_t> block_table = {};
  int64_t first = 0;
  int64_t count = 0;
  int64_t from = 0;
  int64_t to = 0;
  std::vector<int64_t> to_block_table = {};  // empty: block_table
  std::optional<int64_t> to_first = {};      // not set: first
};

// Tokens of any slots. Positions are [tokens] or [tokens, axes].
struct KeySlots {
  std::vector<int64_t> slots = {};
  std::vector<int64_t> to_slots = {};  // empty: slots
  std::vector<int64_t> from_positions = {};
  std::vector<int64_t> positions = {};
};

// Tokens that several layers share: those of the runs, then those of `slots`.
struct KeyGroup {
  std::vector<KeyRun> runs = {};
  KeySlots slots = {};
  // The positions of all slots of the destination: u32 [pages * page_size].
  std::optional<KeyPlace> slot_positions = {};
};

// A request to move keys, not checked yet.
struct MoveRequest {
  std::vector<int64_t> pools;  // bytes of each
  std::vector<KeyLayout> layouts;
  std::vector<KeySpec> specs;
  std::vector<KeyLayer> layers;
  std::vector<KeyGroup> groups;
  MoveMode mode = MoveMode::kCopyOnWrite;
  // COMPARE: the relative RMS difference beyond which a row is bad; not set: by code, see
  // DefaultTolerance.
  std::optional<double> tolerance = {};
  Pins pins = {};  // numerics version and backend
};

// A checked request. The job borrows it.
struct PreparedMove {
  struct Spec {
    std::string fingerprint, from_fingerprint;
  };
  struct Pool {
    int64_t bytes = 0;
    bool written = false;
  };
  MoveMode mode = MoveMode::kCopyOnWrite;
  std::vector<Spec> specs;                         // of the request
  std::vector<std::shared_ptr<const Plan>> plans;  // those of the planes
  std::vector<Pool> pools;
  std::vector<KeyForm> forms;
  std::vector<MoveTokens> groups;
  std::vector<MovePlane> planes;   // keys of the layers in order, then their values
  size_t layers = 0;               // so many planes are keys
  std::vector<double> tolerances;  // COMPARE: of each layer
  int64_t tokens = 0;              // of all groups
  int64_t moved_bytes = 0;         // read; as many are written
};

// The relative RMS difference that two roundings of `code` may make.
double DefaultTolerance(KeyCode code);

// Checks a request and gets its plans. `path` begins all messages. Errors:
//   INVALID_ARGUMENT: an index, size, distance or position is wrong; a slot is outside its layout,
//   a layout outside its pool; two tokens have one destination; a destination is the source of
//   another token; rows of two layers overlap; specs do not fit the lanes. Also as ResolveSpec.
//   FAILED_PRECONDITION: a pin differs.
//   UNIMPLEMENTED: a spec with PARITY.
// If groups have slot positions, call ReadSlotPositions (kernels/request/slot_positions.h) before
// MakeMoveJob.
absl::StatusOr<PreparedMove> PrepareMove(const MoveRequest& request, PlanProvider plans,
                                         std::string_view path);

// Bytes of the tokens' keys and values.
int64_t MovedBytes(const PreparedMove& move);

// The status of a MOVE that a Stop ended between its pieces, because of `why`.
absl::Status HalfMoved(const absl::Status& why);

// What COMPARE found for one layer. Values are f32 numbers of lanes, times `scale` if there is one.
struct KeyDifference {
  double max_abs = 0;
  double rms = 0;            // of the differences
  double reference_rms = 0;  // of what a move would give
  int64_t bad_rows = 0;      // rows whose relative RMS difference exceeds the tolerance
  // The first bad row: the token's index in the group, its destination, the head. -1: none.
  int64_t first_bad_token = -1;
  int64_t first_bad_slot = -1;
  int64_t first_bad_head = -1;

  double relative_rms() const { return reference_rms == 0 ? rms : rms / reference_rms; }
};

// `prepared` must outlive the job. `pools`: the memory of each, of its size. `report`: of COMPARE,
// one KeyReport per layer; otherwise nullptr.
MoveJob MakeMoveJob(const PreparedMove& prepared, absl::Span<std::byte* const> pools,
                    std::byte* report);

// Reads entry `layer` of a report.
KeyDifference DifferenceOf(const std::byte* report, size_t layer);

}  // namespace phasor

#endif  // PHASOR_KERNELS_REQUEST_MOVE_KEYS_H_
