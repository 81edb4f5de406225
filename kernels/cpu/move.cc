// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/move.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <utility>
#include <vector>

#include "kernels/cpu/rotary_args.h"
#include "kernels/math/phase.h"
#include "kernels/ops/key_rows.h"

namespace phasor::cpu {
namespace {

constexpr int64_t kMostTokens = 64;  // of a tile

// Rows whose lanes the rotary op reads and writes itself.
bool IsPlain(const KeyForm& form) {
  return form.code <= KeyCode::kBFloat16 && form.dense() && form.hadamard == 0;
}

Dtype PlainDtype(KeyCode code) {
  if (code == KeyCode::kFloat32) return Dtype::kFloat32;
  return code == KeyCode::kFloat16 ? Dtype::kFloat16 : Dtype::kBFloat16;
}

// Whether a token that keeps its position keeps its bytes.
bool KeepsBytes(const MovePlane& plane) {
  return plane.plan == nullptr || plane.plan->fingerprint == plane.from_plan->fingerprint;
}

// Rows of a dense form without gaps, to hold a few of them beside each other.
KeyForm Compact(KeyForm form) {
  form.group_lanes = form.head_dim;
  form.lane_bytes = UnitBytes(form.code);
  form.group_bytes = 0;
  form.head_bytes = form.bytes_from = form.lanes_bytes();
  form.bytes_before = 0;
  form.scales = {.head_bytes = 4};
  return form;
}

// Copies the rows of a token with the bytes around their lanes, and their scales.
void CopyRows(const KeyForm& from, const std::byte* x, const std::byte* x_scale, const KeyForm& to,
              std::byte* y, std::byte* y_scale) {
  const int64_t unit = UnitBytes(from.code);
  const int64_t before = std::min(from.bytes_before, to.bytes_before);
  const int64_t after = std::min(from.bytes_from, to.bytes_from);
  for (int64_t h = 0; h < from.heads; ++h) {
    const std::byte* const in = x + h * from.head_bytes;
    std::byte* const out = y + h * to.head_bytes;
    if (from.dense() && to.dense()) {
      std::memcpy(out - before, in - before, static_cast<size_t>(before + after));
    } else {
      for (int64_t i = 0; i < from.head_dim; ++i) {
        std::memcpy(
            out + i / to.group_lanes * to.group_bytes + i % to.group_lanes * to.lane_bytes,
            in + i / from.group_lanes * from.group_bytes + i % from.group_lanes * from.lane_bytes,
            static_cast<size_t>(unit));
      }
    }
    if (!from.scaled_rows) continue;
    std::memcpy(y_scale + h * to.scales.head_bytes, x_scale + h * from.scales.head_bytes,
                sizeof(float));
  }
}

// The tokens of a tile.
struct Tile {
  const MoveTokens* tokens = nullptr;
  int64_t first = 0;
  int64_t count = 0;

  bool Stays(int64_t t) const {
    const auto from = tokens->from_positions.begin() + (first + t) * tokens->axes;
    return std::equal(from, from + tokens->axes,
                      tokens->to_positions.begin() + (first + t) * tokens->axes);
  }
  int64_t from_slot(int64_t t) const { return tokens->from_slots[static_cast<size_t>(first + t)]; }
  int64_t to_slot(int64_t t) const { return tokens->to_slots[static_cast<size_t>(first + t)]; }
};

// One position of all axes where tokens have one axis only.
void ReadMovePositions(const Tile& tile, const std::vector<int64_t>& values, int axes,
                       Position* out) {
  const int own = tile.tokens->axes;
  for (int64_t t = 0; t < tile.count; ++t) {
    for (int a = 0; a < axes; ++a) {
      const int64_t i = (tile.first + t) * own + (own == 1 ? 0 : a);
      out[t * axes + a] = {values[static_cast<size_t>(i)], 0};
    }
  }
}

// Runs tiles of one job. Threads: one.
class Mover {
 public:
  Mover(const MoveJob& job, const MoveKernels& kernels,
        absl::FunctionRef<std::byte*(int64_t)> scratch)
      : job_(job), kernels_(kernels), scratch_(scratch) {}

  // Moves tokens [first, first + count) of a group in all its layers.
  void MoveTokensOf(size_t group, int64_t first, int64_t count) {
    const MoveTokens* const tokens = &(*job_.groups)[group];
    std::vector<const MovePlane*> left;
    for (const MovePlane& plane : *job_.planes) {
      if (plane.tokens != group) continue;
      if (plane.plan != nullptr) {
        left.push_back(&plane);
      } else if (job_.mode == MoveMode::kCopyOnWrite) {
        CopyTokens(plane, {tokens, first, count}, /*all=*/true);
      }
    }
    while (!left.empty()) {
      const MovePlane& lead = *left.front();
      const auto others = std::stable_partition(left.begin(), left.end(), [&](const auto* plane) {
        return plane->plan == lead.plan && plane->from_plan == lead.from_plan;
      });
      const std::vector<const MovePlane*> planes(left.begin(), others);
      left.erase(left.begin(), others);
      RotatePlanes(planes, tokens, first, count);
    }
  }

  // Compares all tokens of a layer.
  void Compare(size_t index) {
    const MovePlane& plane = (*job_.planes)[index];
    const MoveTokens* const tokens = &(*job_.groups)[plane.tokens];
    KeyReport report;
    if (plane.plan != nullptr) {
      Prepare(plane, {&plane});
    } else {
      PrepareLanes(0, {&plane});
    }
    const int64_t tile_size = plane.plan == nullptr ? 1 : TileTokens(plane);
    for (int64_t first = 0; first < tokens->count(); first += tile_size) {
      const Tile tile{tokens, first, std::min(tile_size, tokens->count() - first)};
      if (plane.plan != nullptr) StartTile(plane, tile);
      CompareTile(plane, tile, job_.tolerances[index], &report);
    }
    std::memcpy(job_.reports + index * sizeof report, &report, sizeof report);
  }

 private:
  const KeyForm& Form(size_t i) const { return (*job_.forms)[i]; }
  const std::byte* Source(const MovePlane& p, int64_t slot) const {
    return job_.pools[p.pool] + p.offset + Form(p.form).RowOf(slot);
  }
  std::byte* Destination(const MovePlane& p, int64_t slot) const {
    return job_.pools[p.to_pool] + p.to_offset + Form(p.to_form).RowOf(slot);
  }
  const std::byte* SourceScale(const MovePlane& p, int64_t slot) const {
    return job_.pools[p.pool] + p.offset + Form(p.form).ScaleOf(slot, 0);
  }
  std::byte* DestinationScale(const MovePlane& p, int64_t slot) const {
    return job_.pools[p.to_pool] + p.to_offset + Form(p.to_form).ScaleOf(slot, 0);
  }

  int64_t TileTokens(const MovePlane& plane) const {
    return RotaryTile(plane.plan->heads * plane.plan->spec.rotary_dim / 2);
  }

  // Sets the arguments that all tiles of a spec share, and takes scratch memory.
  void Prepare(const MovePlane& lead, const std::vector<const MovePlane*>& planes) {
    args_ = RotaryArgsOf(*lead.plan, lead.from_plan);
    args_.amplitude = lead.plan->amplitude / lead.from_plan->amplitude;
    args_.pairing_in = lead.from_plan->spec.pairing_out;
    args_.pairing_out = lead.plan->spec.pairing_out;
    args_.positions = positions_;
    args_.from_positions = from_positions_;
    PrepareLanes((RotaryScratchBytes(args_) + 63) / 64 * 64, planes);
  }

  // Takes scratch memory: `rotary_bytes`, then what the largest plane needs for its lanes.
  void PrepareLanes(int64_t rotary_bytes, const std::vector<const MovePlane*>& planes) {
    int64_t lanes = 0, row = 0;
    for (const MovePlane* plane : planes) {
      const KeyForm& form = Form(plane->form);
      if (job_.mode != MoveMode::kCompare && IsPlain(form) && IsPlain(Form(plane->to_form)))
        continue;
      const int64_t tokens = plane->plan == nullptr ? 1 : TileTokens(*plane);
      lanes = std::max(lanes, tokens * form.heads * form.head_dim);
      row = std::max(row, form.heads * (form.lanes_bytes() + int64_t{sizeof(float)}));
    }
    // COMPARE also needs the rows and lanes of one token and of its destination.
    const int64_t others = job_.mode == MoveMode::kCompare ? 2 * lanes * 4 + row + 64 : 0;
    std::byte* const memory = scratch_(rotary_bytes + 4 * lanes + others + 64);
    args_.scratch = memory;
    lanes_ = reinterpret_cast<float*>(memory + rotary_bytes);
    moved_lanes_ = lanes_ + lanes;
    found_lanes_ = moved_lanes_ + lanes;
    rows_ = reinterpret_cast<std::byte*>(found_lanes_ + lanes);
  }

  void StartTile(const MovePlane& lead, const Tile& tile) {
    args_.tokens = tile.count;
    args_.same_tokens = false;
    ReadMovePositions(tile, tile.tokens->to_positions, lead.plan->spec.axes, positions_);
    ReadMovePositions(tile, tile.tokens->from_positions, lead.from_plan->spec.axes,
                      from_positions_);
    const bool keeps = KeepsBytes(lead);
    stays_ = false;
    for (int64_t t = 0; t < tile.count; ++t) {
      rotates_[t] = !keeps || !tile.Stays(t);
      stays_ = stays_ || !rotates_[t];
    }
  }

  // Moves tokens of the layers with one spec.
  void RotatePlanes(const std::vector<const MovePlane*>& planes, const MoveTokens* tokens,
                    int64_t first, int64_t count) {
    Prepare(*planes[0], planes);
    const int64_t tile_size = TileTokens(*planes[0]);
    for (int64_t done = 0; done < count; done += tile_size) {
      const Tile tile{tokens, first + done, std::min(tile_size, count - done)};
      StartTile(*planes[0], tile);
      std::vector<const MovePlane*> coded;
      RotatePlain(planes, tile, &coded);
      for (const MovePlane* plane : coded) RotateCoded(*plane, tile);
    }
  }

  // The byte offsets of the tokens of a tile in one form, from a plane's offset.
  struct Offsets {
    size_t form, to_form;
    int64_t x[kMostTokens], y[kMostTokens];
  };
  Offsets OffsetsOf(const MovePlane& plane, const Tile& tile) const {
    Offsets offsets{plane.form, plane.to_form, {}, {}};
    for (int64_t t = 0; t < tile.count; ++t) {
      offsets.x[t] = Form(plane.form).RowOf(tile.from_slot(t));
      offsets.y[t] = rotates_[t] ? Form(plane.to_form).RowOf(tile.to_slot(t)) : -1;
    }
    return offsets;
  }

  // Rotates the plain planes in one call; the others go to `coded`.
  void RotatePlain(const std::vector<const MovePlane*>& planes, const Tile& tile,
                   std::vector<const MovePlane*>* coded) {
    tensors_.clear();
    offsets_.clear();
    for (const MovePlane* plane : planes) {
      const KeyForm& from = Form(plane->form);
      const KeyForm& to = Form(plane->to_form);
      if (!IsPlain(from) || !IsPlain(to)) {
        coded->push_back(plane);
        continue;
      }
      if (offsets_.empty() || offsets_.back().form != plane->form ||
          offsets_.back().to_form != plane->to_form) {
        offsets_.push_back(OffsetsOf(*plane, tile));
      }
      RotaryArgs::Tensor& tensor = tensors_.emplace_back();
      tensor.dtype = PlainDtype(from.code);
      tensor.heads = from.heads;
      tensor.x = job_.pools[plane->pool] + plane->offset;
      tensor.x_token_bytes = from.slot_bytes;
      tensor.x_head_bytes = from.head_bytes;
      tensor.x_offsets = offsets_.back().x;
      tensor.y = job_.pools[plane->to_pool] + plane->to_offset;
      tensor.y_token_bytes = to.slot_bytes;
      tensor.y_head_bytes = to.head_bytes;
      tensor.y_offsets = offsets_.back().y;
      if (job_.mode == MoveMode::kCopyOnWrite) CopyAround(*plane, tile);
    }
    if (tensors_.empty()) return;
    Rotate();
  }

  // Copies what the rotary op does not write: tokens that stay, and bytes around the lanes.
  void CopyAround(const MovePlane& plane, const Tile& tile) const {
    const KeyForm& form = Form(plane.form);
    const bool more = form.bytes_before > 0 || form.bytes_from > form.lanes_bytes();
    if (more || stays_) CopyTokens(plane, tile, /*all=*/more);
  }

  void CopyTokens(const MovePlane& plane, const Tile& tile, bool all) const {
    for (int64_t t = 0; t < tile.count; ++t) {
      if (!all && rotates_[t]) continue;
      CopyRows(Form(plane.form), Source(plane, tile.from_slot(t)),
               SourceScale(plane, tile.from_slot(t)), Form(plane.to_form),
               Destination(plane, tile.to_slot(t)), DestinationScale(plane, tile.to_slot(t)));
    }
  }

  void Rotate() {
    args_.tensors = tensors_.data();
    args_.tensor_count = static_cast<int64_t>(tensors_.size());
    kernels_.rotary(args_);
  }

  // Rotates `lanes_` in place, which hold the tokens of the tile.
  void RotateLanes(const KeyForm& form) {
    const int64_t token_floats = form.heads * form.head_dim;
    for (int64_t t = 0; t < args_.tokens; ++t) {
      lane_offsets_[t] = rotates_[t] ? t * token_floats * int64_t{sizeof(float)} : -1;
    }
    tensors_.assign(1, {});
    RotaryArgs::Tensor& tensor = tensors_[0];
    tensor.dtype = Dtype::kFloat32;
    tensor.heads = form.heads;
    tensor.y = reinterpret_cast<std::byte*>(lanes_);
    tensor.x = tensor.y;
    tensor.x_token_bytes = tensor.y_token_bytes = token_floats * int64_t{sizeof(float)};
    tensor.x_head_bytes = tensor.y_head_bytes = form.head_dim * int64_t{sizeof(float)};
    tensor.y_offsets = lane_offsets_;
    Rotate();
  }

  void RotateCoded(const MovePlane& plane, const Tile& tile) {
    const KeyForm& from = Form(plane.form);
    const KeyForm& to = Form(plane.to_form);
    const KeyWindow window =
        WindowOf(from, args_.rotary_begin, args_.rotary_begin + 2 * args_.pairs);
    const int64_t token_floats = from.heads * from.head_dim;
    for (int64_t t = 0; t < tile.count; ++t) {
      if (!rotates_[t]) continue;
      kernels_.decode({&from, window, Source(plane, tile.from_slot(t)),
                       SourceScale(plane, tile.from_slot(t)), lanes_ + t * token_floats});
    }
    RotateLanes(from);
    args_.same_tokens = true;  // of the next coded plane
    if (job_.mode == MoveMode::kCopyOnWrite) {
      const bool whole = window.begin == 0 && window.end == from.head_dim &&
                         from.bytes_before == 0 && from.bytes_from == from.lanes_bytes();
      if (!whole || stays_) CopyTokens(plane, tile, /*all=*/!whole);
    }
    for (int64_t t = 0; t < tile.count; ++t) {
      if (!rotates_[t]) continue;
      kernels_.encode({&to, window, lanes_ + t * token_floats, Destination(plane, tile.to_slot(t)),
                       DestinationScale(plane, tile.to_slot(t))});
    }
  }

  void CompareTile(const MovePlane& plane, const Tile& tile, double tolerance, KeyReport* report) {
    const KeyForm& from = Form(plane.form);
    const KeyForm& to = Form(plane.to_form);
    const KeyWindow all{0, from.head_dim};
    const int64_t token_floats = from.heads * from.head_dim;
    for (int64_t t = 0; t < tile.count; ++t) {
      kernels_.decode({&from, all, Source(plane, tile.from_slot(t)),
                       SourceScale(plane, tile.from_slot(t)), lanes_ + t * token_floats});
    }
    KeyWindow window;
    if (plane.plan != nullptr) {
      window = WindowOf(from, args_.rotary_begin, args_.rotary_begin + 2 * args_.pairs);
      RotateLanes(from);
    }
    const KeyForm compact = Compact(from);
    std::byte* const scales = rows_ + compact.heads * compact.head_bytes;
    for (int64_t t = 0; t < tile.count; ++t) {
      CopyRows(from, Source(plane, tile.from_slot(t)), SourceScale(plane, tile.from_slot(t)),
               compact, rows_, scales);
      if (plane.plan != nullptr && rotates_[t]) {
        kernels_.encode({&compact, window, lanes_ + t * token_floats, rows_, scales});
      }
      kernels_.decode({&compact, all, rows_, scales, moved_lanes_});
      kernels_.decode({&to, all, Destination(plane, tile.to_slot(t)),
                       DestinationScale(plane, tile.to_slot(t)), found_lanes_});
      for (int64_t h = 0; h < from.heads; ++h) CompareRow(from, tile, t, h, tolerance, report);
    }
  }

  void CompareRow(const KeyForm& form, const Tile& tile, int64_t t, int64_t h, double tolerance,
                  KeyReport* report) const {
    const float* const moved = moved_lanes_ + h * form.head_dim;
    const float* const found = found_lanes_ + h * form.head_dim;
    double squares = 0, reference = 0;
    for (int64_t i = 0; i < form.head_dim; ++i) {
      const double expected = static_cast<double>(moved[i]) * form.scale;
      const double difference = static_cast<double>(found[i]) * form.scale - expected;
      squares += difference * difference;
      reference += expected * expected;
      if (!(std::abs(difference) <= report->max_abs)) report->max_abs = std::abs(difference);
    }
    report->squares += squares;
    report->reference_squares += reference;
    report->values += form.head_dim;
    if (std::sqrt(squares) <= tolerance * std::sqrt(reference)) return;
    if (report->bad_rows++ > 0) return;
    report->first_bad_token = tile.first + t;
    report->first_bad_slot = tile.to_slot(t);
    report->first_bad_head = h;
  }

  const MoveJob& job_;
  const MoveKernels& kernels_;
  const absl::FunctionRef<std::byte*(int64_t)> scratch_;
  RotaryArgs args_;
  Position positions_[kMostTokens * kMaxAxes];
  Position from_positions_[kMostTokens * kMaxAxes];
  bool rotates_[kMostTokens] = {};
  bool stays_ = false;  // some token of the tile does not rotate
  std::vector<RotaryArgs::Tensor> tensors_;
  std::deque<Offsets> offsets_;
  int64_t lane_offsets_[kMostTokens];
  float* lanes_ = nullptr;        // the tokens of a tile
  float* moved_lanes_ = nullptr;  // COMPARE: of one token, as a move would store them
  float* found_lanes_ = nullptr;  // and those at the destination
  std::byte* rows_ = nullptr;     // and as they would be stored
};

}  // namespace

int64_t MoveRows(const MoveJob& job) {
  if (job.mode == MoveMode::kCompare) return job.report_count;
  int64_t tokens = 0;
  for (const MoveTokens& group : *job.groups) tokens += group.count();
  return tokens;
}

int64_t MoveRowBytes(const MoveJob& job) {
  double bytes = 0;
  for (const MovePlane& plane : *job.planes) {
    const KeyForm& form = (*job.forms)[plane.form];
    bytes += static_cast<double>((*job.groups)[plane.tokens].count() * form.heads) *
             static_cast<double>(form.bytes_before + form.bytes_from);
  }
  return static_cast<int64_t>(bytes) / std::max<int64_t>(MoveRows(job), 1);
}

void RunMove(const MoveJob& job, int64_t first, int64_t count, const MoveKernels& kernels,
             absl::FunctionRef<std::byte*(int64_t)> scratch) {
  Mover mover(job, kernels, scratch);
  if (job.mode == MoveMode::kCompare) {
    for (int64_t i = first; i < first + count; ++i) mover.Compare(static_cast<size_t>(i));
    return;
  }
  int64_t begin = 0;  // of the group
  for (size_t g = 0; g < job.groups->size(); ++g) {
    const int64_t end = begin + (*job.groups)[g].count();
    const int64_t from = std::max(first, begin), to = std::min(first + count, end);
    if (from < to) mover.MoveTokensOf(g, from - begin, to - from);
    begin = end;
  }
}

}  // namespace phasor::cpu
