// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/move.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <vector>

#include "kernels/cpu/rotary_args.h"
#include "kernels/math/phase.h"
#include "kernels/ops/key_rows.h"
#include "kernels/reference/reference.h"

namespace phasor::cpu {
namespace {

constexpr int64_t kMostTokens = 64;      // of a tile
constexpr int64_t kTileBytes = 1 << 20;  // of keys of COMPARE, unless one token has more

// Rows whose lanes the rotary op reads and writes itself.
bool IsPlain(const KeyForm& form) {
  return form.code <= KeyCode::kBFloat16 && form.dense() && form.hadamard == 0;
}

Dtype PlainDtype(KeyCode code) {
  if (code == KeyCode::kFloat32) return Dtype::kFloat32;
  return code == KeyCode::kFloat16 ? Dtype::kFloat16 : Dtype::kBFloat16;
}

// The same rows without gaps: a token is a page of one slot, with its scales at the end.
KeyForm Compact(KeyForm form) {
  form.group_lanes = form.head_dim;
  form.lane_bytes = UnitBytes(form.code);
  form.group_bytes = 0;
  form.head_bytes = form.bytes_from = form.lanes_bytes();
  form.bytes_before = 0;
  form.scales = {.offset = form.heads * form.head_bytes, .head_bytes = sizeof(float)};
  form.page_size = 1;
  form.page_bytes = form.scales.offset + form.heads * int64_t{sizeof(float)};
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
  Mover(const MoveJob& job, RotaryKernel rotary, int64_t pages_in_turns,
        absl::FunctionRef<std::byte*(int64_t)> scratch)
      : job_(job), rotary_(rotary), pages_in_turns_(pages_in_turns), scratch_(scratch) {}

  // Moves tokens [first, first + count) of a group in all its layers.
  void MoveTokensOf(size_t group, int64_t first, int64_t count) {
    const MoveTokens* const tokens = &(*job_.groups)[group];
    std::vector<const MovePlane*> left;
    for (const MovePlane& plane : *job_.planes) {
      if (plane.tokens != group) continue;
      if (plane.plan != nullptr) {
        left.push_back(&plane);
      } else if (job_.mode == MoveMode::kCopyOnWrite) {
        for (int64_t i = first; i < first + count; ++i) CopyToken(plane, {tokens, i, 1}, 0);
      }
    }
    while (!left.empty()) {
      const MovePlane& lead = *left.front();
      const auto others = std::stable_partition(left.begin(), left.end(), [&](const auto* plane) {
        return plane->plan == lead.plan && plane->from_plan == lead.from_plan;
      });
      const std::vector<const MovePlane*> planes(left.begin(), others);
      left.erase(left.begin(), others);
      Prepare(lead);
      for (int64_t done = 0; done < count; done += TileTokens(lead)) {
        const Tile tile{tokens, first + done, std::min(TileTokens(lead), count - done)};
        StartTile(lead, tile);
        for (const MovePlane* plane : planes) AddPlane(*plane, tile);
        Rotate();
      }
    }
    if (tokens->slot_positions.has_value()) KeepPositions(*tokens, first, count);
  }

  // Compares all tokens of a layer.
  void Compare(size_t index) {
    const MovePlane& plane = (*job_.planes)[index];
    const KeyForm& form = Form(plane.form);
    const MoveTokens* const tokens = &(*job_.groups)[plane.tokens];
    compact_ = Compact(form);
    const int64_t most = plane.plan == nullptr ? 1 : TileTokens(plane);
    const int64_t fit = std::min(kTileBytes / compact_.page_bytes, tokens->count());
    const int64_t tile_tokens = std::clamp<int64_t>(fit, 1, most);
    moved_.resize(static_cast<size_t>(tile_tokens * compact_.page_bytes));
    moved_lanes_.resize(static_cast<size_t>(form.head_dim));
    found_lanes_.resize(moved_lanes_.size());
    if (plane.plan != nullptr) Prepare(plane);
    KeyReport report;
    for (int64_t first = 0; first < tokens->count(); first += tile_tokens) {
      if (job_.stop != nullptr && !job_.stop->MayBegin()) return;
      const Tile tile{tokens, first, std::min(tile_tokens, tokens->count() - first)};
      CompareTile(plane, tile, job_.tolerances[index], &report);
    }
    std::memcpy(job_.reports + index * sizeof report, &report, sizeof report);
  }

 private:
  const KeyForm& Form(size_t i) const { return (*job_.forms)[i]; }

  int64_t TileTokens(const MovePlane& plane) const {
    return RotaryTile(plane.plan->heads * plane.plan->spec.rotary_dim / 2);
  }

  // Sets the arguments that all tiles of a spec share, and takes scratch memory.
  void Prepare(const MovePlane& lead) {
    args_ = RotaryArgsOf(*lead.plan, lead.from_plan);
    const bool large = pages_in_turns_ > 0;
    args_.stream = large && job_.mode == MoveMode::kCopyOnWrite;
    args_.fetch = large && job_.mode != MoveMode::kCompare;
    args_.pages_in_turns = pages_in_turns_;
    args_.amplitude = lead.plan->amplitude / lead.from_plan->amplitude;
    args_.pairing_in = lead.from_plan->spec.pairing_out;
    args_.pairing_out = lead.plan->spec.pairing_out;
    args_.positions = positions_;
    args_.from_positions = from_positions_;
    const int64_t rotary_bytes = (RotaryScratchBytes(args_) + 63) / 64 * 64;
    args_.scratch = scratch_(rotary_bytes + KeyLanesBytes(args_.head_dim));
    args_.lanes = reinterpret_cast<float*>(args_.scratch + rotary_bytes);
  }

  void StartTile(const MovePlane& lead, const Tile& tile) {
    args_.tokens = tile.count;
    ReadMovePositions(tile, tile.tokens->to_positions, lead.plan->spec.axes, positions_);
    ReadMovePositions(tile, tile.tokens->from_positions, lead.from_plan->spec.axes,
                      from_positions_);
    const bool keeps = lead.plan->fingerprint == lead.from_plan->fingerprint;
    for (int64_t t = 0; t < tile.count; ++t) rotates_[t] = !keeps || !tile.Stays(t);
    tensors_.clear();
    places_.clear();
  }

  // Where the tokens of a tile lie in one pair of forms, from a plane's offsets.
  struct Places {
    size_t form, to_form;
    int64_t x[kMostTokens], y[kMostTokens];
    int64_t x_scales[kMostTokens], y_scales[kMostTokens];
    KeyRows rows;
  };
  const Places& PlacesOf(const MovePlane& plane, const Tile& tile) {
    if (!places_.empty() && places_.back().form == plane.form &&
        places_.back().to_form == plane.to_form) {
      return places_.back();  // layers mostly have one form
    }
    const KeyForm& from = Form(plane.form);
    const KeyForm& to = Form(plane.to_form);
    Places& places = places_.emplace_back();
    places.form = plane.form;
    places.to_form = plane.to_form;
    for (int64_t t = 0; t < tile.count; ++t) {
      places.x[t] = from.RowOf(tile.from_slot(t));
      places.y[t] = rotates_[t] ? to.RowOf(tile.to_slot(t)) : -1;
      places.x_scales[t] = from.ScaleOf(tile.from_slot(t), 0);
      places.y_scales[t] = to.ScaleOf(tile.to_slot(t), 0);
    }
    places.rows = {&from, &to, Window(from), places.x_scales, places.y_scales};
    return places;
  }

  KeyWindow Window(const KeyForm& form) const {
    return WindowOf(form, args_.rotary_begin, args_.rotary_begin + 2 * args_.pairs);
  }

  // Adds the rows of a layer to the next rotation, and copies what that does not write.
  void AddPlane(const MovePlane& plane, const Tile& tile) {
    const KeyForm& from = Form(plane.form);
    const KeyForm& to = Form(plane.to_form);
    const bool plain = IsPlain(from) && IsPlain(to);
    const Places& places = PlacesOf(plane, tile);
    RotaryArgs::Tensor& tensor = tensors_.emplace_back();
    tensor.dtype = plain ? PlainDtype(from.code) : Dtype::kFloat32;
    tensor.heads = from.heads;
    tensor.x = job_.pools[plane.pool] + plane.offset;
    tensor.x_token_bytes = from.slot_bytes;
    tensor.x_head_bytes = from.head_bytes;
    tensor.x_offsets = places.x;
    tensor.y = job_.pools[plane.to_pool] + plane.to_offset;
    tensor.y_token_bytes = to.slot_bytes;
    tensor.y_head_bytes = to.head_bytes;
    tensor.y_offsets = places.y;
    if (!plain) tensor.rows = &places.rows;
    if (job_.mode != MoveMode::kCopyOnWrite) return;
    const KeyWindow window = plain ? KeyWindow{0, from.head_dim} : Window(from);
    const bool whole = window.begin == 0 && window.end == from.head_dim && from.bytes_before == 0 &&
                       from.bytes_from == from.lanes_bytes();
    for (int64_t t = 0; t < tile.count; ++t) {
      if (!whole || !rotates_[t]) CopyToken(plane, tile, t);
    }
  }

  void CopyToken(const MovePlane& plane, const Tile& tile, int64_t t) const {
    const KeyForm& from = Form(plane.form);
    const KeyForm& to = Form(plane.to_form);
    const std::byte* const x = job_.pools[plane.pool] + plane.offset;
    std::byte* const y = job_.pools[plane.to_pool] + plane.to_offset;
    const int64_t slot = tile.from_slot(t), to_slot = tile.to_slot(t);
    CopyRows(from, x + from.RowOf(slot), x + from.ScaleOf(slot, 0), to, y + to.RowOf(to_slot),
             y + to.ScaleOf(to_slot, 0));
  }

  void Rotate() {
    args_.tensors = tensors_.data();
    args_.tensor_count = static_cast<int64_t>(tensors_.size());
    rotary_(args_);
  }

  // Says that tokens [first, first + count) have their new positions in all layers.
  void KeepPositions(const MoveTokens& tokens, int64_t first, int64_t count) const {
    std::atomic_thread_fence(std::memory_order_release);  // of others who see it, also keys are new
    std::byte* const positions =
        job_.pools[tokens.slot_positions->pool] + tokens.slot_positions->offset;
    for (int64_t t = first; t < first + count; ++t) {
      const auto position = static_cast<uint32_t>(tokens.to_positions[static_cast<size_t>(t)]);
      std::byte* const out = positions + tokens.to_slots[static_cast<size_t>(t)] * 4;
      for (int i = 0; i < 4; ++i) out[i] = static_cast<std::byte>(position >> (8 * i));
    }
  }

  // Moves the tile to `moved_`, and compares that with what lies at the destination.
  void CompareTile(const MovePlane& plane, const Tile& tile, double tolerance, KeyReport* report) {
    const KeyForm& from = Form(plane.form);
    const KeyForm& to = Form(plane.to_form);
    const std::byte* const x = job_.pools[plane.pool] + plane.offset;
    const std::byte* const found = job_.pools[plane.to_pool] + plane.to_offset;
    for (int64_t t = 0; t < tile.count; ++t) {
      const int64_t slot = tile.from_slot(t);
      CopyRows(from, x + from.RowOf(slot), x + from.ScaleOf(slot, 0), compact_, MovedRow(t),
               MovedRow(t) + compact_.scales.offset);
    }
    if (plane.plan != nullptr) RotateMoved(plane, tile);
    for (int64_t t = 0; t < tile.count; ++t) {
      const int64_t slot = tile.to_slot(t);
      for (int64_t h = 0; h < from.heads; ++h) {
        DecodeHead(compact_, h, MovedRow(t), MovedRow(t) + compact_.scales.offset,
                   moved_lanes_.data());
        DecodeHead(to, h, found + to.RowOf(slot), found + to.ScaleOf(slot, 0), found_lanes_.data());
        CompareRow(from, tile, t, h, tolerance, report);
      }
    }
  }

  // Reads head h of a token whose first head is at `row`, and its scale at `scale`.
  static void DecodeHead(KeyForm form, int64_t h, const std::byte* row, const std::byte* scale,
                         float* lanes) {
    form.heads = 1;
    reference::DecodeKeys({&form,
                           {0, form.head_dim},
                           row + h * form.head_bytes,
                           scale + h * form.scales.head_bytes,
                           lanes});
  }

  std::byte* MovedRow(int64_t t) { return moved_.data() + t * compact_.page_bytes; }

  // Rotates the tokens in `moved_` in place.
  void RotateMoved(const MovePlane& plane, const Tile& tile) {
    StartTile(plane, tile);
    int64_t offsets[kMostTokens], skips[kMostTokens], scales[kMostTokens];
    for (int64_t t = 0; t < tile.count; ++t) {
      offsets[t] = t * compact_.page_bytes;
      skips[t] = rotates_[t] ? offsets[t] : -1;
      scales[t] = offsets[t] + compact_.scales.offset;
    }
    const KeyRows rows{&compact_, &compact_, Window(compact_), scales, scales};
    RotaryArgs::Tensor& tensor = tensors_.emplace_back();
    tensor.dtype = Dtype::kFloat32;
    tensor.heads = compact_.heads;
    tensor.y = moved_.data();
    tensor.x = tensor.y;
    tensor.x_head_bytes = tensor.y_head_bytes = compact_.head_bytes;
    tensor.x_offsets = offsets;
    tensor.y_offsets = skips;
    tensor.rows = &rows;
    Rotate();
  }

  void CompareRow(const KeyForm& form, const Tile& tile, int64_t t, int64_t h, double tolerance,
                  KeyReport* report) const {
    RowDifference row;
    for (size_t i = 0; i < moved_lanes_.size(); ++i) {
      row.Add(static_cast<double>(moved_lanes_[i]) * form.scale,
              static_cast<double>(found_lanes_[i]) * form.scale);
    }
    report->Add(row, form.head_dim, tolerance, tile.first + t, tile.to_slot(t), h);
  }

  const MoveJob& job_;
  const RotaryKernel rotary_;
  const int64_t pages_in_turns_;  // 0: the caches hold the keys
  const absl::FunctionRef<std::byte*(int64_t)> scratch_;
  RotaryArgs args_;
  Position positions_[kMostTokens * kMaxAxes];
  Position from_positions_[kMostTokens * kMaxAxes];
  bool rotates_[kMostTokens] = {};
  std::vector<RotaryArgs::Tensor> tensors_;
  std::deque<Places> places_;
  // COMPARE: the rows of a tile as a move would store them; the lanes of one of them, and those at
  // the destination.
  KeyForm compact_;
  std::vector<std::byte> moved_;
  std::vector<float> moved_lanes_, found_lanes_;
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
  return static_cast<int64_t>(std::min(bytes, 0x1p60)) / std::max<int64_t>(MoveRows(job), 1);
}

void RunMove(const MoveJob& job, int64_t first, int64_t count, RotaryKernel rotary,
             int64_t pages_in_turns, absl::FunctionRef<std::byte*(int64_t)> scratch) {
  Mover mover(job, rotary, pages_in_turns, scratch);
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
