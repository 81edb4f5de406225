// SPDX-License-Identifier: Apache-2.0
// Random moves of keys in every code and in every way in which rows and lanes can lie, with the
// memory that they work on.
#ifndef PHASOR_TESTS_SUPPORT_RANDOM_MOVES_H_
#define PHASOR_TESTS_SUPPORT_RANDOM_MOVES_H_

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "kernels/backend/batch.h"
#include "kernels/base/text.h"
#include "tests/support/hand_plans.h"
#include "tests/support/key_cache.h"
#include "tests/support/random_jobs.h"
#include "tests/support/tensors.h"

namespace phasor::testing {

// A move and everything that it borrows. Threads: one thread at a time.
class RandomMove : public JobMemory {
 public:
  // `compares`: a copy, as a comparison.
  explicit RandomMove(uint64_t seed, bool compares = false) : choose_(seed) {
    move_.mode = choose_.Coin() && !compares ? MoveMode::kMove : MoveMode::kCopyOnWrite;
    copies_ = move_.mode == MoveMode::kCopyOnWrite;
    aligned_ = choose_.Coin();
    heads_ = choose_.Between(1, 4);
    head_dim_ = choose_.Of({32, 64, 96, 128, 256});
    MakePlans();
    for (int64_t i = choose_.Between(1, 2); i > 0; --i) MakeGroup();
    for (int64_t i = choose_.Between(1, 4); i > 0; --i) MakeForms();
    for (int64_t i = choose_.Between(1, 7); i > 0; --i) MakePlane();
    move_.forms = &forms_;
    move_.groups = &groups_;
    move_.planes = &planes_;
    for (const auto& pool : memory_) move_.pools.push_back(pool->data());
    if (compares) Compare();
    job_ = move_;
  }
  RandomMove(const RandomMove&) = delete;
  RandomMove& operator=(const RandomMove&) = delete;

  const Job& job() const { return job_; }
  const MoveJob& move() const { return move_; }
  bool in_place() const { return !copies_; }
  // Of a comparison: what it found, and the copy that it is about.
  const std::vector<KeyReport>& reports() const { return reports_; }
  Job AsCopy() const {
    MoveJob copy = move_;
    copy.mode = MoveMode::kCopyOnWrite;
    return copy;
  }
  // Changes a few bytes of the memory, for good.
  void Corrupt() {
    for (size_t i = 0; i < memory_.size(); ++i) {
      for (int64_t n = choose_.Between(0, 4); n > 0; --n) {
        memory_[i]->data()[choose_.Between(0, memory_[i]->size_bytes() - 1)] =
            std::byte(choose_.Between(0, 255));
      }
      before_[i] = *memory_[i];
    }
  }
  std::string Describe() const {
    std::string text = copies_ ? "copy" : "move";
    for (const MovePlane& plane : planes_) {
      const KeyForm& form = forms_[plane.form];
      text += StrCat(" ", Name(form.code), plane.plan == nullptr ? "" : "*",
                     form.scaled_rows ? "s" : "", form.dense() ? "" : "g", "h", form.hadamard);
    }
    return text;
  }

 private:
  static constexpr int64_t kPages = 6, kPageSize = 4;

  // One of the numbers of bytes; in every other move, made a multiple of 16.
  template <size_t N>
  int64_t Some(const int64_t (&bytes)[N]) {
    const int64_t some = choose_.Of(bytes);
    return aligned_ ? some / 16 * 16 : some;
  }

  void MakePlans() {
    const Pairing pairings[] = {Pairing::kHalfSplit, Pairing::kInterleaved};
    HandPlan want;
    want.pairs = choose_.Coin() ? choose_.Of({4, 7, 8, 16, 32, 48}) : 128;
    want.pairs = std::min(want.pairs, head_dim_ / 2);
    rotary_lanes_ = 2 * want.pairs;
    const int64_t rest = head_dim_ - rotary_lanes_;
    want.rotary_begin = choose_.Coin() ? rest : choose_.Between(0, rest / 8) * 8;
    want.tail = rest - want.rotary_begin;
    want.heads = choose_.Between(0, 3) == 0 ? static_cast<int>(heads_) : 1;
    axes_ = want.axes = choose_.Coin() ? 1 : static_cast<int>(choose_.Between(2, 3));
    for (int i = 0; i < 4; ++i) {
      want.dense = choose_.Coin();
      want.offsets = choose_.Coin();
      want.xpos = choose_.Between(0, 3) == 0 && want.axes == 1;
      if (want.xpos) farthest_ = 1000;
      want.amplitude = choose_.Of({1.0, 1.1875, 0.9});
      want.pairing_out = choose_.Of(pairings);
      plans_.push_back(MakeHandPlan(want, choose_.Seed()));
      plans_.back()->fingerprint = StrCat("plan ", i);
    }
  }

  // Copies go from the first half of the slots to the second.
  void MakeGroup() {
    MoveTokens tokens;
    tokens.axes = choose_.Coin() ? axes_ : 1;
    const int64_t half = kPages / 2 * kPageSize;
    for (int64_t slot = 0; slot < half; ++slot) {
      if (choose_.Between(0, 3) == 0) continue;
      tokens.from_slots.push_back(copies_ ? choose_.Between(0, half - 1) : slot);
      tokens.to_slots.push_back(copies_ ? half + (slot * 5 + 3) % half : slot);
      const bool stays = choose_.Between(0, 4) == 0;
      for (int axis = 0; axis < tokens.axes; ++axis) {
        const int64_t from = choose_.Between(-100, farthest_);
        tokens.from_positions.push_back(from);
        tokens.to_positions.push_back(stays ? from : choose_.Between(0, farthest_));
      }
    }
    if (tokens.axes == 1 && choose_.Coin()) {
      tokens.slot_positions = {memory_.size(), choose_.Of({0, 0, 1, 4})};
      memory_.push_back(std::make_unique<Tensor>(Dtype::kFloat8E4M3, kPages * kPageSize * 4 + 8));
      memory_.back()->Fill(5);
      before_.push_back(*memory_.back());
    }
    groups_.push_back(std::move(tokens));
  }

  void Compare() {
    move_.mode = MoveMode::kCompare;
    reports_.resize(static_cast<size_t>(choose_.Between(1, std::ssize(planes_))));
    for (size_t i = 0; i < reports_.size(); ++i) tolerances_.push_back(choose_.Of({0.0, 0.02}));
    move_.report_count = std::ssize(reports_);
    move_.reports = reinterpret_cast<std::byte*>(reports_.data());
    move_.tolerances = tolerances_.data();
  }

  // A form and one that differs in distances.
  void MakeForms() {
    KeyForm form;
    form.code = kKeyCodes[choose_.Between(0, std::ssize(kKeyCodes) - 1)];
    form.pages = kPages;
    form.page_size = kPageSize;
    form.heads = heads_;
    form.head_dim = head_dim_;
    const int64_t powers = head_dim_ & -head_dim_;
    if (choose_.Between(0, 3) == 0) form.hadamard = choose_.Of({2, 32, 64, 128});
    form.hadamard = std::min(form.hadamard, powers);
    const bool byte_code = UnitBytes(form.code) == 1;
    form.scaled_rows = byte_code && (form.code == KeyCode::kInt8 || choose_.Coin());
    const bool dense = IsBlockCode(form.code) || choose_.Coin();
    const bool scale_inside = dense && form.scaled_rows && choose_.Coin();
    form.bytes_from = form.lanes_bytes() + (scale_inside ? 4 : 0);
    if (dense && choose_.Between(0, 3) == 0) {
      form.bytes_before = Some({2, 16, 64, 5});
      form.bytes_from += Some({0, 16, 3});
    }
    for (int i = 0; i < 2; ++i) {
      Lay(form, dense ? choose_.Between(0, 1) : choose_.Between(2, 4), scale_inside);
      forms_.push_back(form);
    }
  }

  // The distance of a single head is not used, so that it may be that of a part of its row.
  int64_t PartOfRow(const KeyForm& form) const {
    const int64_t unit_lanes = UnitLanes(form.code);
    return (rotary_lanes_ + unit_lanes - 1) / unit_lanes * UnitBytes(form.code);
  }

  // Rows of heads in a slot; slots in a head; groups of lanes; lane by lane; both.
  void Lay(KeyForm& form, int64_t kind, bool scale_inside) {
    const int64_t unit = UnitBytes(form.code), row = form.bytes_before + form.bytes_from;
    const int64_t padding = Some({0, 0, 1, 8, 16, 32});
    form.group_lanes = form.head_dim;
    form.lane_bytes = unit;
    form.group_bytes = 0;
    if (kind == 0) {
      form.head_bytes = row + padding;
      form.slot_bytes = form.heads * form.head_bytes;
      form.page_bytes = form.page_size * form.slot_bytes;
    } else if (kind == 1) {
      form.slot_bytes = row + padding;
      form.head_bytes = form.page_size * form.slot_bytes;
      form.page_bytes = form.heads * form.head_bytes;
    } else {
      form.head_bytes = form.head_dim * form.page_size * unit + padding;
      form.page_bytes = form.heads * form.head_bytes;
      form.slot_bytes = unit;
      if (kind == 3) {
        form.lane_bytes = form.page_size * unit;
      } else {
        form.group_lanes = choose_.Of({2, 4, 8, 16});
        form.slot_bytes = kind == 2 ? form.group_lanes * unit : unit;
        form.lane_bytes = kind == 2 ? unit : form.page_size * unit;
        form.group_bytes = form.page_size * form.group_lanes * unit;
      }
    }
    form.page_bytes += Some({0, 0, 4, 64, 576});
    if (form.heads == 1 && !aligned_) form.head_bytes = PartOfRow(form);
    if (!form.scaled_rows) return;
    form.scales = {form.lanes_bytes(), form.page_bytes, form.slot_bytes, form.head_bytes};
    if (scale_inside) return;
    const int64_t end = form.pages * form.page_bytes + choose_.Of({0, 0, 0, 1});
    form.scales = {(end + 3) / 4 * 4, form.page_size * form.heads * 4, 4, form.page_size * 4};
    if (choose_.Between(0, 3) == 0) ++form.scales.offset;
  }

  // Makes a pool with rows of a form; returns where its first lane is.
  int64_t MakePool(const KeyForm& form) {
    const int64_t first = form.bytes_before + Some({0, 0, 0, 16, 2, 1}) + 64;
    const int64_t rows = form.pages * form.page_bytes + form.bytes_from;
    const int64_t scales = form.scales.offset + form.pages * form.page_size * form.heads * 8;
    Pool bytes(static_cast<size_t>(first + rows + (form.scaled_rows ? scales : 0)));
    for (std::byte& byte : bytes) byte = std::byte(choose_.Between(0, 255));
    FillRows(form, first, static_cast<uint32_t>(choose_.Seed()), &bytes);
    memory_.push_back(std::make_unique<Tensor>(Dtype::kFloat8E4M3, std::ssize(bytes)));
    std::memcpy(memory_.back()->data(), bytes.data(), bytes.size());
    before_.push_back(*memory_.back());
    return first;
  }

  void MakePlane() {
    MovePlane plane;
    if (choose_.Between(0, 4) > 0) {
      plane.plan = plans_[static_cast<size_t>(choose_.Between(0, 1))].get();
      plane.from_plan = choose_.Coin() ? plane.plan : plans_[2].get();
    }
    plane.form = plane.to_form = 2 * static_cast<size_t>(choose_.Between(0, forms_.size() / 2 - 1));
    plane.tokens = static_cast<size_t>(choose_.Between(0, std::ssize(groups_) - 1));
    plane.pool = plane.to_pool = memory_.size();
    plane.offset = plane.to_offset = MakePool(forms_[plane.form]);
    if (copies_ && choose_.Coin()) {
      plane.to_form = plane.form + static_cast<size_t>(choose_.Between(0, 1));
      plane.to_pool = memory_.size();
      plane.to_offset = MakePool(forms_[plane.to_form]);
    }
    planes_.push_back(plane);
  }

  Chooser choose_;
  bool copies_ = false;
  bool aligned_ = false;
  int64_t heads_ = 1;
  int64_t head_dim_ = 0;
  int64_t rotary_lanes_ = 0;
  int axes_ = 1;
  // Of positions. With xPos no amplitude overflows: a GPU's NaN has another payload.
  int64_t farthest_ = 1 << 18;
  MoveJob move_;
  Job job_;
  std::vector<std::shared_ptr<Plan>> plans_;
  std::vector<KeyForm> forms_;
  std::vector<MoveTokens> groups_;
  std::vector<MovePlane> planes_;
  std::vector<double> tolerances_;
  std::vector<KeyReport> reports_;
};

// Whether two comparisons found the same, to the bit but for the bits of NaNs.
inline bool SameReports(const std::vector<KeyReport>& a, const std::vector<KeyReport>& b) {
  const auto same = [](double x, double y) { return x == y || (x != x && y != y); };
  bool all = a.size() == b.size();
  for (size_t i = 0; all && i < a.size(); ++i) {
    all = same(a[i].max_abs, b[i].max_abs) && same(a[i].squares, b[i].squares) &&
          same(a[i].reference_squares, b[i].reference_squares) && a[i].values == b[i].values &&
          a[i].bad_rows == b[i].bad_rows && a[i].first_bad_token == b[i].first_bad_token &&
          a[i].first_bad_head == b[i].first_bad_head && a[i].first_bad_slot == b[i].first_bad_slot;
  }
  return all;
}

}  // namespace phasor::testing

#endif  // PHASOR_TESTS_SUPPORT_RANDOM_MOVES_H_
