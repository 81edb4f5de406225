// SPDX-License-Identifier: Apache-2.0
// Random jobs in every form that kernels know, with the memory that they work on.
#ifndef PHASOR_TESTS_SUPPORT_RANDOM_JOBS_H_
#define PHASOR_TESTS_SUPPORT_RANDOM_JOBS_H_

#include <gtest/gtest.h>

#include <cstring>
#include <list>
#include <memory>
#include <random>
#include <vector>

#include "kernels/backend/batch.h"
#include "tests/support/hand_plans.h"
#include "tests/support/tables.h"
#include "tests/support/tensors.h"

namespace phasor::testing {

// Makes random choices. Threads: one thread at a time.
class Chooser {
 public:
  explicit Chooser(uint64_t seed) : random_(seed) {}
  int64_t Between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random_() % static_cast<uint64_t>(high - low + 1));
  }
  bool Coin() { return random_() % 2 == 0; }
  template <typename T, size_t N>
  T Of(const T (&values)[N]) {
    return values[random_() % N];
  }
  uint64_t Seed() { return random_(); }

 private:
  std::mt19937_64 random_;
};

// Positions of `batch` * `tokens` rows and the bytes that they borrow.
// Threads: one thread at a time.
class RandomPositions {
 public:
  RandomPositions(Chooser& choose, int axes, int64_t batch, int64_t tokens, bool integers) {
    Positions positions;
    const int64_t kind = choose.Between(0, 3);
    if (kind == 0 && axes == 1 && batch == 1) {
      const int64_t count = tokens + 2;  // a longer range, of which a slice is used
      const auto real = RealRange{choose.Between(-5, 900) + 0.375, 0.8125, count};
      positions = integers || choose.Coin()
                      ? AxisRange{IntegerRange{choose.Between(-9, 1 << 20), 3, count}}
                      : AxisRange{real};
    } else if (kind == 1 && axes == 1 && batch == 1) {
      RaggedPositions ragged;
      for (int64_t left = tokens; left > 0;) {
        ragged.lengths.push_back(choose.Between(0, left));
        ragged.offsets.push_back(choose.Between(-4, 1 << 17));
        left -= ragged.lengths.back();
      }
      positions = ragged;
    } else if (kind == 2 && axes > 1 && batch == 1) {
      PositionGrid grid;  // with one long axis, because the count is fixed
      for (int a = 0; a < axes; ++a) {
        const int64_t count = a == axes - 1 && tokens % 2 == 0 ? 2 : 1;
        grid.axes.push_back(AxisRange{IntegerRange{choose.Between(-3, 60), 2, count}});
      }
      // One more than the tokens need, so that a slice of the grid is used.
      const int64_t rest = 1 + (tokens % 2 == 0 ? tokens / 2 : tokens);
      grid.axes[0] = integers || choose.Coin() ? AxisRange{IntegerRange{-7, 5, rest}}
                                               : AxisRange{RealRange{0.25, 1.5, rest}};
      positions = grid;
    } else {
      PositionTensor tensor;
      tensor.dtype =
          integers ? choose.Of({Dtype::kInt32, Dtype::kInt64})
                   : choose.Of({Dtype::kInt32, Dtype::kInt64, Dtype::kFloat32, Dtype::kFloat64});
      if (batch > 1) tensor.shape.push_back(batch);
      tensor.shape.push_back(tokens);
      if (axes > 1) tensor.shape.push_back(axes);
      positions = tensor;
      Fill(choose, tensor.dtype, batch * tokens * axes);
    }
    auto made = MakePositionSource(positions, axes, "positions");
    EXPECT_TRUE(made.ok()) << made.status();
    source_ = *made;
    if (made->kind == PositionSource::Kind::kGrid && batch == 1) {
      source_ = SliceTokens(*made, choose.Between(0, made->count() - tokens), tokens);
    }
    source_.data = bytes_.data() + 1;  // positions may have any alignment
  }

  const PositionSource* source() const { return &source_; }

 private:
  void Fill(Chooser& choose, Dtype dtype, int64_t count) {
    bytes_.resize(static_cast<size_t>(count * SizeOf(dtype)) + 1);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t whole = choose.Between(-100, int64_t{1} << 20);
      const auto small = static_cast<int32_t>(whole);
      const float real = static_cast<float>(whole) / 64;
      const double wide = static_cast<double>(whole) / 4096;
      const void* const from = dtype == Dtype::kInt32     ? static_cast<const void*>(&small)
                               : dtype == Dtype::kInt64   ? static_cast<const void*>(&whole)
                               : dtype == Dtype::kFloat32 ? static_cast<const void*>(&real)
                                                          : static_cast<const void*>(&wide);
      std::memcpy(bytes_.data() + 1 + i * SizeOf(dtype), from, SizeOf(dtype));
    }
  }

  PositionSource source_;
  std::vector<std::byte> bytes_ = std::vector<std::byte>(1);
};

// The memory that a job reads and writes, and what it held before the job ran.
class JobMemory {
 public:
  // Restores the memory to what it was before the job ran.
  void Reset() {
    for (size_t i = 0; i < memory_.size(); ++i) {
      std::memcpy(memory_[i]->data(), before_[i].data(),
                  static_cast<size_t>(memory_[i]->size_bytes()));
    }
  }
  const std::vector<std::unique_ptr<Tensor>>& memory() const { return memory_; }
  // What the memory holds now.
  std::vector<Tensor> Now() const {
    std::vector<Tensor> now;
    for (const auto& tensor : memory_) now.push_back(*tensor);
    return now;
  }

 protected:
  std::vector<std::unique_ptr<Tensor>> memory_;
  std::vector<Tensor> before_;
};

// A job and everything that it borrows. Threads: one thread at a time.
class RandomJob : public JobMemory {
 public:
  explicit RandomJob(uint64_t seed, bool misaligned = false)
      : choose_(seed), misaligned_(misaligned), frequent_(choose_.Between(0, 2) == 0) {
    switch (choose_.Between(0, 4)) {
      case 0:
        MakeEncode();
        break;
      case 1:
        MakeLookup();
        break;
      case 2:
        MakeBias();
        break;
      default:
        MakeRotary();
        break;
    }
  }
  RandomJob(const RandomJob&) = delete;
  RandomJob& operator=(const RandomJob&) = delete;

  const Job& job() const { return job_; }
  bool in_place() const { return in_place_; }
  // Whether it changes the pairing in place.
  bool moves_lanes_in_place() const {
    const auto* const rotary = std::get_if<RotaryJob>(&job_);
    return rotary != nullptr && in_place_ && PairingIn(*rotary) != PairingOut(*rotary);
  }

 private:
  // Makes memory for the job, which Reset restores.
  std::byte* New(Dtype dtype, int64_t count, bool special) {
    const int64_t misalign = frequent_     ? 0
                             : misaligned_ ? choose_.Between(0, 3)
                                           : choose_.Between(0, 1) * SizeOf(dtype);
    memory_.push_back(std::make_unique<Tensor>(dtype, count, misalign));
    memory_.back()->Fill(choose_.Seed(), special);
    before_.push_back(*memory_.back());
    return memory_.back()->data();
  }

  const PositionSource* NewPositions(int axes, int64_t batch, int64_t tokens, bool integers) {
    positions_.push_back(std::make_unique<RandomPositions>(choose_, axes, batch, tokens, integers));
    return positions_.back()->source();
  }

  // Sets out and add_to of a row job: separate memory, the same memory, or no add_to.
  template <typename J>
  void MakeRows(J& job, int64_t rows, int64_t width) {
    job.dtype = choose_.Of(kFloatDtypes);
    // Rows may be further apart.
    const int64_t row = width + (frequent_ ? 8 * choose_.Between(0, 1) : choose_.Between(0, 2));
    job.out = New(job.dtype, rows * row, false);
    job.out_row_bytes = row * SizeOf(job.dtype);
    const int64_t add = frequent_ ? 0 : choose_.Between(0, 2);
    in_place_ = add == 2;
    if (add > 0) {
      job.add_to = add == 1 ? New(job.dtype, rows * row, true) : job.out;
      job.add_to_row_bytes = job.out_row_bytes;
      job.embedding_scale = 22.627416997969522;
    }
  }

  // A row of all sines and cosines, in runs or side by side.
  void MakeSinesAndCosines(int64_t pairs) {
    layout_.width = layout_.content_end = 2 * pairs;
    layout_.cos_bias = choose_.Of({0.0, 0.0, -1.0});
    const bool in_runs = choose_.Coin();
    int64_t sin = 0, cos = in_runs ? pairs : 1;
    if (choose_.Coin()) std::swap(sin, cos);
    layout_.blocks.push_back({0, pairs, sin, cos, in_runs ? 1 : 2, false, false});
  }

  void MakeEncode() {
    EncodeJob job;
    HandPlan want = RandomPlan();
    want.xpos = want.xpos && want.axes == 1;
    plans_.push_back(MakeHandPlan(want, choose_.Seed()));
    const Plan& plan = *plans_.back();
    const int64_t rows = choose_.Between(0, 90);
    if (frequent_) {
      MakeSinesAndCosines(want.pairs);
    } else if (choose_.Coin()) {
      layout_ = TableLayout(static_cast<EncodeOutput>(choose_.Between(
                                1, static_cast<int64_t>(EncodeOutput::kSinRepeated))),
                            PairsOf(plan));
    } else {
      layout_.content_begin = choose_.Between(0, 5);
      const int64_t stride = choose_.Between(1, 4);
      layout_.content_end = layout_.content_begin + stride * want.pairs;
      layout_.width = layout_.content_end + choose_.Between(0, 5);
      layout_.cos_bias = choose_.Of({0.0, -1.0, 0.3});
      for (int64_t c = 0; c < stride; ++c) {
        const int64_t column = layout_.content_begin + c;
        layout_.blocks.push_back({0, want.pairs, c % 2 == 0 ? -1 : column, c % 2 == 0 ? column : -1,
                                  stride, false, c == 1});
      }
      layout_.blocks.push_back({0, want.pairs, -1, layout_.content_begin, stride, true, false});
      layout_.blocks.push_back({0, want.pairs, layout_.content_begin, -1, stride, true, true});
    }
    job.plan = &plan;
    job.layout = &layout_;
    job.positions = NewPositions(want.axes, 1, rows, frequent_);
    MakeRows(job, rows, layout_.width);
    job_ = job;
  }

  void MakeLookup() {
    LookupJob job;
    const int64_t rows = choose_.Between(0, 90), table_rows = choose_.Between(1, 40);
    const int64_t columns = choose_.Between(1, 300);
    Tensor values(choose_.Of(kFloatDtypes), table_rows * columns);
    values.Fill(choose_.Seed(), true);
    table_.dtype = values.dtype();
    table_.rows = table_rows;
    table_.columns = columns;
    auto* const copy = new std::byte[static_cast<size_t>(values.size_bytes())];
    std::memcpy(copy, values.data(), static_cast<size_t>(values.size_bytes()));
    table_.data = std::shared_ptr<const std::byte>(copy, std::default_delete<const std::byte[]>());
    job.table = &table_;
    job.positions = NewPositions(1, 1, rows, true);
    MakeRows(job, rows, columns);
    job_ = job;
  }

  // All positions in a window of 4 by 6.
  static const PositionSource& WindowPositions() {
    static const PositionSource places = *MakePositionSource(
        PositionGrid{{IntegerRange{0, 1, 4}, IntegerRange{0, 1, 6}}}, 2, "window");
    return places;
  }

  void MakeBias() {
    BiasJob job;
    const char* const presets[] = {"alibi", "bloom", "t5", "", "deberta-v2", "window"};
    BiasSpec spec;
    spec.preset = choose_.Of(presets);
    const bool window = spec.preset == "window";
    if (window) {
      spec = {.family = BiasFamily::kSwin, .window = {4, 6}};
    } else if (spec.preset.empty()) {
      spec.family = BiasFamily::kClipped;
      spec.max_distance = 5;
    }
    const bool indices = spec.preset == "deberta-v2" || (spec.preset == "t5" && choose_.Coin());
    job.heads = indices ? 1 : choose_.Between(1, 9);
    const auto rule = CompileBias(spec, job.heads, "bias");
    EXPECT_TRUE(rule.ok()) << rule.status();
    rule_ = *rule;
    job.rule = &rule_;
    const int64_t queries = window ? 24 : choose_.Between(0, 30);
    const int64_t keys = window ? 24 : choose_.Between(0, 1100);
    job.queries = window ? &WindowPositions() : NewPositions(1, 1, queries, true);
    job.keys = window ? &WindowPositions() : NewPositions(1, 1, keys, true);
    job.dtype = indices ? choose_.Of({Dtype::kInt32, Dtype::kInt64}) : choose_.Of(kFloatDtypes);
    if (!indices && !rule_.has_slopes()) {
      job.table_dtype = choose_.Of(kFloatDtypes);
      job.table = New(job.table_dtype, rule_.table_rows * job.heads, true);
    }
    const Dtype storage =
        indices ? (job.dtype == Dtype::kInt32 ? Dtype::kFloat32 : Dtype::kFloat64) : job.dtype;
    const int64_t row = keys + choose_.Between(0, 3);
    job.out = New(storage, job.heads * queries * row, false);
    job.out_row_bytes = row * SizeOf(job.dtype);
    job.out_head_bytes = queries * job.out_row_bytes;
    if (!indices && choose_.Coin()) {
      in_place_ = choose_.Coin();
      job.add_to = in_place_ ? job.out : New(storage, job.heads * queries * row, true);
      job.add_to_row_bytes = job.out_row_bytes;
      job.add_to_head_bytes = job.out_head_bytes;
    }
    job_ = job;
  }

  HandPlan RandomPlan() {
    HandPlan want;
    want.pairs = frequent_ ? choose_.Of({8, 16, 32, 64, 80})
                           : choose_.Of({1, 3, 7, 8, 16, 20, 32, 33, 64, 80});
    want.heads = !frequent_ && choose_.Between(0, 3) == 0 ? 3 : 1;
    want.axes = choose_.Coin() ? 1 : static_cast<int>(choose_.Between(2, 3));
    want.dense = !frequent_ && choose_.Coin();
    want.offsets = !frequent_ && choose_.Coin();
    want.xpos = !frequent_ && choose_.Between(0, 2) == 0 && want.axes == 1;
    want.xpos_inverse = choose_.Coin();
    want.amplitude = choose_.Of({1.0, 1.1875, 0.1});
    return want;
  }

  void MakeRotary() {
    RotaryJob job;
    HandPlan want = RandomPlan();
    const bool whole = frequent_ || choose_.Coin();
    want.rotary_begin = whole ? 0 : choose_.Between(0, 9);
    want.tail = whole ? 0 : choose_.Between(0, 9);
    const Pairing pairings[] = {Pairing::kHalfSplit, Pairing::kInterleaved};
    want.pairing = choose_.Of(pairings);
    in_place_ = choose_.Coin();
    want.pairing_out = choose_.Of(pairings);
    plans_.push_back(MakeHandPlan(want, choose_.Seed()));
    job.plan = plans_.back().get();
    job.batch = choose_.Coin() ? 1 : choose_.Between(2, 4);
    job.tokens = choose_.Between(0, 40);
    const auto source_batch = [&] { return choose_.Coin() ? job.batch : 1; };
    job.positions = NewPositions(want.axes, source_batch(), job.tokens, frequent_);
    job.inverse = choose_.Coin();
    if (!frequent_ && !job.inverse && choose_.Coin()) {
      want.pairing = want.pairing_out = choose_.Of(pairings);
      want.xpos_inverse = choose_.Coin();
      plans_.push_back(MakeHandPlan(want, choose_.Seed()));
      job.from_plan = plans_.back().get();
      job.from_positions = NewPositions(want.axes, source_batch(), job.tokens, false);
    }
    const int64_t tensors = choose_.Between(1, 3);
    for (int64_t i = 0; i < tensors; ++i) {
      job.tensors.push_back(MakeTensor(job, want.heads == 1 ? choose_.Between(0, 5) : want.heads));
    }
    for (size_t i = 0; i < job.tensors.size() && !in_place_; ++i) {
      MakeOutput(job, elements_[i], job.tensors[i]);
    }
    job_ = job;
  }

  // Some outputs become FLOAT8, some go to pages, some are copies.
  void MakeOutput(const RotaryJob& job, int64_t elements, RotaryTensor& tensor) {
    tensor.rotates = choose_.Between(0, 3) > 0;
    const int64_t size = SizeOf(tensor.dtype);
    Dtype dtype = tensor.dtype;
    if (size == 2 && choose_.Coin()) {
      dtype = choose_.Of({Dtype::kFloat8E4M3, Dtype::kFloat8E5M2});
      tensor.float8 = Float8Of(dtype);
      tensor.inv_scale = choose_.Of({1.0f, 0.37f, 250.0f});
    }
    if (job.batch == 1 && choose_.Coin()) {
      MakePages(job, dtype, tensor);
    } else if (dtype != tensor.dtype) {
      tensor.y = New(dtype, elements, false);
      const RotaryStrides& s = tensor.x_strides;
      tensor.y_strides = {s.batch / size, s.token / size, s.head / size};
    }
  }

  // Pages of 4 slots for a job's tokens and a few more. Every token has its own slot, or none.
  void MakePages(const RotaryJob& job, Dtype dtype, RotaryTensor& tensor) {
    const int64_t pages = job.tokens / 4 + 2;
    const int64_t slot = tensor.heads * job.plan->spec.head_dim + choose_.Between(0, 1) * 8;
    const int64_t size = SizeOf(dtype);
    tensor.y = New(dtype, 4 * pages * slot, true);
    tensor.y_strides = {4 * slot * size, slot * size, job.plan->spec.head_dim * size};
    std::vector<int64_t>& offsets = offsets_.emplace_back();
    for (int64_t i = 0; i < 4 * pages; ++i) offsets.push_back(i * slot * size);
    for (size_t i = offsets.size(); i-- > 1;) {
      std::swap(offsets[i], offsets[static_cast<size_t>(choose_.Between(0, i))]);
    }
    offsets.resize(static_cast<size_t>(job.tokens));
    for (int64_t& offset : offsets) {
      if (choose_.Between(0, 7) == 0) offset = -1;
    }
    tensor.y_offsets = offsets.data();
  }

  // [batch, tokens, heads, head_dim], heads before tokens, or a view of a wider tensor.
  RotaryStrides RandomStrides(const RotaryJob& job, const RotaryTensor& tensor) {
    const int64_t head = job.plan->spec.head_dim * SizeOf(tensor.dtype);
    const int64_t token = tensor.heads * head + choose_.Between(0, 1) * 8 * SizeOf(tensor.dtype);
    const int64_t batch = job.tokens * token;
    return choose_.Coin() ? RotaryStrides{batch, head, job.tokens * head}
                          : RotaryStrides{batch, token, head};
  }

  RotaryTensor MakeTensor(const RotaryJob& job, int64_t heads) {
    RotaryTensor tensor;
    tensor.dtype = choose_.Of(kFloatDtypes);
    tensor.heads = heads;
    const int64_t elements = job.batch * job.tokens * (heads * job.plan->spec.head_dim + 8);
    elements_.push_back(elements);
    std::byte* const x = New(tensor.dtype, elements, true);
    tensor.x = x;
    tensor.y = in_place_ ? x : New(tensor.dtype, elements, false);
    tensor.x_strides = tensor.y_strides = RandomStrides(job, tensor);
    if (!in_place_ && choose_.Coin()) tensor.y_strides = RandomStrides(job, tensor);
    return tensor;
  }

  Chooser choose_;
  const bool misaligned_;
  const bool frequent_;  // as most models: aligned, whole positions, no offsets, no xPos
  bool in_place_ = false;
  RowLayout layout_;
  Table table_;
  BiasRule rule_;
  std::vector<std::shared_ptr<const Plan>> plans_;
  std::vector<std::unique_ptr<RandomPositions>> positions_;
  std::vector<int64_t> elements_;  // of the tensors of a rotary job
  std::list<std::vector<int64_t>> offsets_;
  Job job_;
};

}  // namespace phasor::testing

#endif  // PHASOR_TESTS_SUPPORT_RANDOM_JOBS_H_
