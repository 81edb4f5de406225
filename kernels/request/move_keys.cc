// SPDX-License-Identifier: Apache-2.0
#include "kernels/request/move_keys.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "kernels/base/bounded.h"
#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"
#include "kernels/request/key_layouts.h"
#include "kernels/request/key_overlap.h"
#include "kernels/request/move_specs.h"
#include "kernels/request/move_tokens.h"
#include "kernels/request/slot_positions.h"
#include "kernels/spec/names.h"

namespace phasor {
namespace {

constexpr size_t kMaxLayers = 512;
constexpr size_t kMaxPools = 1024;
constexpr size_t kMaxEntries = 4096;  // of the other lists

absl::Status CheckCounts(const MoveRequest& request, std::string_view path) {
  const auto check = [&](std::string_view field, size_t count, size_t most) {
    if (count >= 1 && count <= most) return absl::OkStatus();
    return Invalid(path, ".", field, ": ", count, " entries; must be in [1, ", most, "]");
  };
  PHASOR_RETURN_IF_ERROR(check("pools", request.pools.size(), kMaxPools));
  PHASOR_RETURN_IF_ERROR(check("layouts", request.layouts.size(), kMaxEntries));
  PHASOR_RETURN_IF_ERROR(check("layers", request.layers.size(), kMaxLayers));
  PHASOR_RETURN_IF_ERROR(check("groups", request.groups.size(), kMaxEntries));
  if (request.specs.size() > kMaxEntries) {
    return Invalid(path, ".specs: ", request.specs.size(), " entries; must be at most ",
                   kMaxEntries);
  }
  for (size_t i = 0; i < request.pools.size(); ++i) {
    if (request.pools[i] >= 1) continue;
    return Invalid(path, ".pools[", i, "]: ", request.pools[i], " bytes; must be at least 1");
  }
  const double tolerance = request.tolerance.value_or(0);
  if (!std::isfinite(tolerance) || tolerance < 0) {
    return Invalid(path, ".tolerance: ", tolerance, "; must be finite and not negative");
  }
  return absl::OkStatus();
}

absl::Status CheckIndex(std::string_view path, int64_t index, size_t count, std::string_view list) {
  if (index >= 0 && index < static_cast<int64_t>(count)) return absl::OkStatus();
  return Invalid(path, ": ", index, "; must be an index of ", list, ", in [0, ", count, ")");
}

// Whether rows of `from` can become rows of `to` without another code.
bool SameRows(const KeyForm& from, const KeyForm& to) {
  return from.code == to.code && from.heads == to.heads && from.head_dim == to.head_dim &&
         from.hadamard == to.hadamard && from.scaled_rows == to.scaled_rows &&
         from.scale == to.scale && from.bytes_before == to.bytes_before &&
         from.bytes_from == to.bytes_from;
}

// Prepares the parts of a request in their order.
class Preparer {
 public:
  Preparer(const MoveRequest& request, PlanProvider plans, std::string_view path)
      : request_(request), plans_(plans), path_(path) {}

  absl::StatusOr<PreparedMove> Run() {
    PHASOR_RETURN_IF_ERROR(CheckCounts(request_, path_));
    out_.mode = request_.mode;
    out_.layers = request_.layers.size();
    for (const int64_t bytes : request_.pools) out_.pools.push_back({bytes, false});
    if (!request_.pins.spec_fingerprint.empty()) {
      return Invalid(path_,
                     ".pins.spec_fingerprint: set; must be empty, because every spec has a "
                     "fingerprint of its own");
    }
    PHASOR_RETURN_IF_ERROR(CheckPins(request_.pins, "", path_));
    for (size_t i = 0; i < request_.layouts.size(); ++i) {
      PHASOR_ASSIGN_OR_RETURN(
          layouts_.emplace_back(),
          ResolveKeyLayout(request_.layouts[i], StrCat(path_, ".layouts[", i, "]")));
      out_.forms.push_back(layouts_.back().keys);
    }
    for (const ResolvedKeyLayout& layout : layouts_) {
      out_.forms.push_back(layout.values.value_or(layout.keys));
    }
    for (size_t i = 0; i < request_.layers.size(); ++i) {
      PHASOR_RETURN_IF_ERROR(CheckLayer(request_.layers[i], LayerPath(i)));
    }
    PHASOR_ASSIGN_OR_RETURN(MoveSpecs specs, PrepareMoveSpecs(request_, plans_, path_));
    out_.specs = std::move(specs.specs);
    out_.plans = std::move(specs.plans);
    turns_ = std::move(specs.layers);
    PHASOR_RETURN_IF_ERROR(PrepareLayers());
    // Before the tokens: a pool bounds how many there can be.
    PHASOR_RETURN_IF_ERROR(CheckPlaces(out_, path_));
    PHASOR_RETURN_IF_ERROR(PrepareGroups());
    PHASOR_RETURN_IF_ERROR(CheckOverlap(out_, path_));
    NoteWritten();
    out_.moved_bytes = MovedBytes(out_);
    return std::move(out_);
  }

 private:
  std::string LayerPath(size_t i) const { return StrCat(path_, ".layers[", i, "]"); }

  absl::Status CheckLayer(const KeyLayer& layer, const std::string& path) const {
    PHASOR_RETURN_IF_ERROR(CheckIndex(path + ".layout", layer.layout, layouts_.size(), "layouts"));
    if (layer.to_layout.has_value()) {
      PHASOR_RETURN_IF_ERROR(
          CheckIndex(path + ".to_layout", *layer.to_layout, layouts_.size(), "layouts"));
    }
    if (layer.spec.has_value()) {
      PHASOR_RETURN_IF_ERROR(
          CheckIndex(path + ".spec", *layer.spec, request_.specs.size(), "specs"));
    }
    PHASOR_RETURN_IF_ERROR(
        CheckIndex(path + ".group", layer.group, request_.groups.size(), "groups"));
    const KeyLayout& layout = request_.layouts[static_cast<size_t>(layer.layout)];
    if (layer.layer < 0 || layer.layer >= layout.layers) {
      return Invalid(path, ".layer: ", layer.layer, "; must be in [0, ", layout.layers,
                     "), the layers of its layout");
    }
    const bool moves = request_.mode == MoveMode::kMove;
    if (moves && (layer.to_place.has_value() || layer.to_layout.has_value())) {
      return Invalid(path, layer.to_place.has_value() ? ".to_place" : ".to_layout",
                     ": set for MOVE; must be unset, or the mode COPY_ON_WRITE");
    }
    PHASOR_RETURN_IF_ERROR(CheckPlace(layer.place, path + ".place"));
    if (!layer.to_place.has_value()) return absl::OkStatus();
    return CheckPlace(*layer.to_place, path + ".to_place");
  }

  absl::Status CheckPlace(const KeyPlace& place, const std::string& path) const {
    PHASOR_RETURN_IF_ERROR(CheckIndex(path + ".pool", place.pool, out_.pools.size(), "pools"));
    const int64_t bytes = out_.pools[static_cast<size_t>(place.pool)].bytes;
    if (place.offset_bytes >= 0 && place.offset_bytes < bytes) return absl::OkStatus();
    return Invalid(path, ".offset_bytes: ", place.offset_bytes, "; must be in [0, ", bytes,
                   "), the bytes of its pool");
  }

  const KeyForm& FormOf(int64_t layout) const { return out_.forms[static_cast<size_t>(layout)]; }

  // INVALID_ARGUMENT: the rows are not what the spec rotates.
  absl::Status CheckRows(const KeyLayer& layer, const Plan& plan, const std::string& path) const {
    const KeyForm& form = FormOf(layer.layout);
    const std::string layout = StrCat(path_, ".layouts[", layer.layout, "]");
    if (form.head_dim != plan.spec.head_dim) {
      return Invalid(layout, ".head_dim: ", form.head_dim, "; must be that of ", path, "'s spec (",
                     plan.spec.head_dim, "); a row that holds more has lanes_offset and row_bytes");
    }
    const Pairing out = plan.spec.pairing_out;
    if (layouts_[static_cast<size_t>(layer.layout)].latent && out != plan.spec.pairing) {
      // Only transformers writes pairs to other lanes, and it has no such rows.
      return Invalid(layout, ".name: ", request_.layouts[static_cast<size_t>(layer.layout)].name,
                     ", whose engines leave pairs where they are, but ", path, "'s spec reads ",
                     Name(plan.spec.pairing), " and stores ", Name(out),
                     "; must store what it reads: set the spec's pairing, INTERLEAVED for vLLM, "
                     "SGLang and TensorRT-LLM");
    }
    if (plan.heads > 1 && plan.heads != form.heads) {
      return Invalid(layout, ".heads: ", form.heads, "; must be the spec's frequency_heads (",
                     plan.heads, ")");
    }
    return absl::OkStatus();
  }

  absl::Status PrepareLayers() {
    for (size_t i = 0; i < request_.layers.size(); ++i) {
      const KeyLayer& layer = request_.layers[i];
      const std::string path = LayerPath(i);
      const LayerTurn& turn = turns_[i];
      for (const Plan* const plan : {turn.plan, turn.from_plan}) {
        if (plan != nullptr) PHASOR_RETURN_IF_ERROR(CheckRows(layer, *plan, path));
      }
      const auto from = static_cast<size_t>(layer.layout);
      const auto to = static_cast<size_t>(layer.to_layout.value_or(layer.layout));
      if (!SameRows(out_.forms[from], out_.forms[to])) {
        return Invalid(path,
                       ".to_layout: its rows differ from those of layout; code, heads, "
                       "head_dim, scales and row_bytes must be equal");
      }
      MovePlane plane = PlaneOf(layer, layouts_[from].keys_offset, layouts_[to].keys_offset);
      plane.form = from;
      plane.to_form = to;
      plane.plan = turn.plan;
      plane.from_plan = turn.from_plan;
      out_.planes.push_back(plane);
      out_.tolerances.push_back(
          request_.tolerance.value_or(DefaultTolerance(out_.forms[from].code)));
    }
    if (request_.mode != MoveMode::kCopyOnWrite) return absl::OkStatus();
    for (const KeyLayer& layer : request_.layers) {
      const auto from = static_cast<size_t>(layer.layout);
      const auto to = static_cast<size_t>(layer.to_layout.value_or(layer.layout));
      if (!layer.copy_values || !layouts_[from].values.has_value()) continue;
      if (!layouts_[to].values.has_value()) continue;
      MovePlane plane = PlaneOf(layer, layouts_[from].values_offset, layouts_[to].values_offset);
      plane.form = layouts_.size() + from;
      plane.to_form = layouts_.size() + to;
      out_.planes.push_back(plane);
    }
    return absl::OkStatus();
  }

  MovePlane PlaneOf(const KeyLayer& layer, int64_t offset, int64_t to_offset) const {
    const KeyPlace& to = layer.to_place.value_or(layer.place);
    const auto layer_offset = [&](int64_t layout) {
      return BoundedProduct(layer.layer, layouts_[static_cast<size_t>(layout)].layer_bytes);
    };
    MovePlane plane;
    plane.tokens = static_cast<size_t>(layer.group);
    plane.pool = static_cast<size_t>(layer.place.pool);
    plane.to_pool = static_cast<size_t>(to.pool);
    plane.offset = layer.place.offset_bytes + layer_offset(layer.layout) + offset;
    plane.to_offset =
        to.offset_bytes + layer_offset(layer.to_layout.value_or(layer.layout)) + to_offset;
    return plane;
  }

  // The pages of a group: equal in all its layers.
  absl::StatusOr<KeyPages> PagesOf(size_t group) const {
    KeyPages pages;
    const KeyLayer* first = nullptr;
    for (size_t i = 0; i < request_.layers.size(); ++i) {
      const KeyLayer& layer = request_.layers[i];
      if (static_cast<size_t>(layer.group) != group) continue;
      const KeyForm& from = FormOf(layer.layout);
      const KeyForm& to = FormOf(layer.to_layout.value_or(layer.layout));
      if (first == nullptr) {
        first = &layer;
        pages = {from.page_size, from.slots(), to.page_size, to.slots()};
        continue;
      }
      if (from.page_size != pages.page_size || to.page_size != pages.to_page_size) {
        return Invalid(LayerPath(i), ".layout: page_size ", from.page_size,
                       "; must be that of the group's other layers (", pages.page_size,
                       "), or the layer in a group of its own");
      }
      pages.slots = std::min(pages.slots, from.slots());
      pages.to_slots = std::min(pages.to_slots, to.slots());
    }
    if (first == nullptr) {
      return Invalid(path_, ".groups[", group, "]: no layer has it; remove it");
    }
    return pages;
  }

  absl::Status PrepareGroups() {
    for (size_t g = 0; g < request_.groups.size(); ++g) {
      const std::string path = StrCat(path_, ".groups[", g, "]");
      PHASOR_ASSIGN_OR_RETURN(const KeyPages pages, PagesOf(g));
      PHASOR_ASSIGN_OR_RETURN(const int64_t tokens, CountTokens(request_.groups[g], path));
      // Before they are listed: as many as there can be without two for one slot.
      if (request_.mode != MoveMode::kCompare && tokens > pages.to_slots) {
        return Invalid(path, ": ", tokens, " tokens; must be at most the destination's slots (",
                       pages.to_slots, ")");
      }
      out_.tokens += tokens;
      if (out_.tokens > kMaxMoveTokens) {
        return Invalid(path_, ".groups: more than ", kMaxMoveTokens,
                       " tokens; must be at most that, make several calls");
      }
      PHASOR_ASSIGN_OR_RETURN(out_.groups.emplace_back(),
                              ExpandTokens(request_.groups[g], pages, request_.mode, path));
      const std::optional<KeyPlace>& positions = request_.groups[g].slot_positions;
      if (!positions.has_value()) continue;
      PHASOR_RETURN_IF_ERROR(CheckPlace(*positions, path + ".slot_positions"));
      out_.groups[g].slot_positions = {static_cast<size_t>(positions->pool),
                                       positions->offset_bytes};
      PHASOR_RETURN_IF_ERROR(CheckSlotPositions(out_, g, path));
    }
    return CheckAxes();
  }

  // Tokens have one position for all axes, or one for each axis of every spec.
  absl::Status CheckAxes() const {
    for (size_t i = 0; i < out_.layers; ++i) {
      const MovePlane& plane = out_.planes[i];
      if (plane.plan == nullptr) continue;
      const int axes = out_.groups[plane.tokens].axes;
      for (const Plan* plan : {plane.plan, plane.from_plan}) {
        if (axes == 1 || axes == plan->spec.axes) continue;
        return Invalid(path_, ".groups[", plane.tokens, "].slots.positions: ", axes,
                       " axes; must be 1 or those of the spec of ", LayerPath(i), " (",
                       plan->spec.axes, ")");
      }
    }
    return absl::OkStatus();
  }

  void NoteWritten() {
    if (out_.mode == MoveMode::kCompare) return;
    for (const MovePlane& plane : out_.planes) {
      const bool in_place_copy = plane.plan == nullptr && out_.mode == MoveMode::kMove;
      if (!in_place_copy) out_.pools[plane.to_pool].written = true;
    }
    for (const MoveTokens& group : out_.groups) {
      if (group.slot_positions.has_value()) out_.pools[group.slot_positions->pool].written = true;
    }
  }

  const MoveRequest& request_;
  const PlanProvider plans_;
  const std::string_view path_;
  std::vector<ResolvedKeyLayout> layouts_;
  std::vector<LayerTurn> turns_;  // of the layers
  PreparedMove out_;
};

}  // namespace

double DefaultTolerance(KeyCode code) {
  switch (code) {
    case KeyCode::kFloat32:
      return 1e-5;
    case KeyCode::kFloat16:
      return 0.004;
    case KeyCode::kBFloat16:
      return 0.03;
    case KeyCode::kFloat8E4M3:
    case KeyCode::kFloat8E5M2:
      return 0.3;
    case KeyCode::kInt8:
    case KeyCode::kQ8_0:
      return 0.1;
    case KeyCode::kQ4_0:
    case KeyCode::kQ4_1:
      return 0.5;
    case KeyCode::kQ5_0:
    case KeyCode::kQ5_1:
      return 0.3;
  }
  return 0;
}

absl::StatusOr<PreparedMove> PrepareMove(const MoveRequest& request, PlanProvider plans,
                                         std::string_view path) {
  return Preparer(request, plans, path).Run();
}

int64_t MovedBytes(const PreparedMove& move) {
  double bytes = 0;
  for (const MovePlane& plane : move.planes) {
    const KeyForm& form = move.forms[plane.form];
    bytes += static_cast<double>(move.groups[plane.tokens].count()) *
             static_cast<double>(form.heads) *
             static_cast<double>(form.bytes_before + form.bytes_from);
  }
  return static_cast<int64_t>(std::min(bytes, 0x1p60));
}

absl::Status HalfMoved(const absl::Status& why) {
  return absl::AbortedError(
      StrCat("server: stopped in the middle of a MOVE; drop all pages of its tokens, or repeat the "
             "call if all its groups have slot_positions: ",
             why.message()));
}

MoveJob MakeMoveJob(const PreparedMove& prepared, absl::Span<std::byte* const> pools,
                    std::byte* report) {
  MoveJob job;
  job.mode = prepared.mode;
  job.forms = &prepared.forms;
  job.groups = &prepared.groups;
  job.planes = &prepared.planes;
  job.pools.assign(pools.begin(), pools.end());
  job.tolerances = prepared.tolerances.data();
  job.reports = report;
  job.report_count = static_cast<int64_t>(prepared.layers);
  return job;
}

KeyDifference DifferenceOf(const std::byte* report, size_t layer) {
  KeyReport found;
  std::memcpy(&found, report + layer * sizeof found, sizeof found);
  const auto values = static_cast<double>(std::max<int64_t>(found.values, 1));
  KeyDifference out;
  out.max_abs = found.max_abs;
  out.rms = std::sqrt(found.squares / values);
  out.reference_rms = std::sqrt(found.reference_squares / values);
  out.bad_rows = found.bad_rows;
  out.first_bad_token = found.first_bad_token;
  out.first_bad_slot = found.first_bad_slot;
  out.first_bad_head = found.first_bad_head;
  return out;
}

}  // namespace phasor
