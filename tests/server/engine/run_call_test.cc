// SPDX-License-Identifier: Apache-2.0
// Gathering, staging and layout of one call.
#include "server/engine/run_call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <string>
#include <vector>

#include "kernels/plan/plan.h"
#include "server/base/clock.h"
#include "tests/support/borrowed_backend.h"
#include "tests/support/fake_backend.h"
#include "tests/support/test_call.h"

namespace phasor::engine {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kPoolBytes = 1 << 20;

class RunCallTest : public ::testing::Test {
 protected:
  absl::StatusOr<Result> Run() { return Run(call_); }
  absl::StatusOr<Result> Run(Call& call) {
    Call* const calls[] = {&call};
    return std::move(RunCalls(calls, backend_, pool_, *Clock::Real())[0]);
  }

  FakeBackend backend_;
  BufferPool pool_{kPoolBytes};
  AnswerRef answer_ = std::make_shared<Answer>();
  TestCall call_{answer_};
};

TEST_F(RunCallTest, ComputesThePayloadHoweverItWasCut) {
  const std::string x = "the quick brown fox jumps over!!";
  for (const size_t piece : {0, 1, 5, 31}) {
    call_.items.clear();
    call_.items.push_back(BytesItem(x, piece));
    const auto result = Run();
    ASSERT_TRUE(result.ok());
    EXPECT_EQ(OutputOf(*result), Inverted(x)) << piece;
  }
}

// A call whose payload comes from somewhere else.
class FetchingCall final : public Call {
 public:
  explicit FetchingCall(absl::Status status) : status_(std::move(status)) {
    items.push_back(BytesItem(kFetched));
    items[0].inputs[0].bytes = {};
  }
  bool cancelled() const override { return false; }
  void Done(absl::StatusOr<Result>) override {}
  absl::Status FetchPayload(BufferPool&) override {
    items[0].inputs[0].bytes = Pieces(kFetched, 0);
    return status_;
  }

  static constexpr std::string_view kFetched = "abcdefgh";

 private:
  const absl::Status status_;
};

TEST_F(RunCallTest, FetchesPayloadBeforeItIsRead) {
  FetchingCall call{absl::OkStatus()};
  const auto result = Run(call);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(OutputOf(*result), Inverted(std::string(FetchingCall::kFetched)));
}

TEST_F(RunCallTest, PayloadThatCannotBeFetchedIsTheAnswer) {
  FetchingCall call{absl::NotFoundError("gone")};
  EXPECT_EQ(Run(call).status(), absl::NotFoundError("gone"));
  EXPECT_EQ(backend_.runs(), 0);
}

// Two rows of sixteen bytes without anything to add.
PreparedEncode TwoRows() {
  PreparedEncode encode;
  auto plan = std::make_shared<Plan>();
  plan->layout.width = 4;
  encode.plan = plan;
  encode.layout = std::shared_ptr<const RowLayout>(plan, &plan->layout);
  encode.positions.tokens = 2;
  encode.positions.grid[0].count = 2;
  encode.output = {Dtype::kFloat32, {2, 4}};
  encode.output_bytes = 32;
  return encode;
}

// The same, added to as many bytes.
PreparedEncode TwoRowsAdded() {
  PreparedEncode encode = TwoRows();
  encode.add_to = {Dtype::kFloat32, {2, 4}, {}};
  encode.add_to_bytes = 32;
  return encode;
}

TEST_F(RunCallTest, ReleasesThePayloadBeforeTheRunWhenItWasGathered) {
  const std::string embedding(32, 'e');
  call_.items.push_back(ItemOf(TwoRowsAdded(), {Pieces(embedding, 7)}));
  backend_.FailWith(absl::InternalError("device"));
  EXPECT_FALSE(Run()->items[0].status.ok());
  EXPECT_EQ(answer_->times_released(), 1);
}

TEST_F(RunCallTest, KeepsThePayloadDuringTheRunWhenItIsReadInPlace) {
  const std::string x = "01234567";
  call_.items.push_back(BytesItem(x));
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(answer_->times_released(), 1);
  backend_.FailWith(absl::InternalError("device"));
  EXPECT_FALSE(Run()->items[0].status.ok());
  EXPECT_EQ(answer_->times_released(), 2);
}

TEST_F(RunCallTest, ErrorsOfItemsAfterOneOfPartsNameTheirPlaceInTheMessage) {
  call_.batch = true;
  call_.items.push_back(Item(TwoRows()));
  call_.items.back().parts = 2;
  PreparedEncode encode = TwoRows();
  encode.positions.kind = PositionSource::Kind::kTensor;
  encode.positions.dtype = Dtype::kFloat32;
  encode.positions_bytes = encode.positions.data_bytes = 8;
  const std::string bad(8, '\xFF');  // NaN
  call_.items.push_back(ItemOf(std::move(encode), {Pieces(bad, 0)}));
  const auto result = Run();
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(result->items[0].status.ok());
  EXPECT_THAT(result->items[1].status.message(), HasSubstr("items[2].positions"));
}

TEST_F(RunCallTest, SeveralTensorsGetSeveralAlignedOutputs) {
  const std::string q = "01234567";
  const std::string k = "abcd";
  PreparedRope request = BytesRequest(8);
  request.tensors.push_back(BytesRequest(4).tensors[0]);
  request.tensors[1].heads = 0;  // the fake only gathers it
  call_.items.push_back(ItemOf(request, {Pieces(q, 3), Pieces(k, 2)}));
  const auto result = Run();
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(OutputOf(*result, 0, 0), Inverted(q));
  EXPECT_EQ(OutputOf(*result, 0, 1), k);
  EXPECT_EQ(result->items[0].outputs[1].offset % 64, 0);
}

TEST_F(RunCallTest, OutputsGoToTheirDestinations) {
  const std::string q = "01234567";
  const std::string k = "abcd";
  std::string elsewhere(8, '.');
  PreparedRope request = BytesRequest(8);
  request.tensors.push_back(BytesRequest(4).tensors[0]);
  Item item = ItemOf(request, {Pieces(q, 0), Pieces(k, 0)});
  item.outputs[0].place.data = reinterpret_cast<std::byte*>(elsewhere.data());
  call_.items.push_back(std::move(item));
  const auto result = Run();
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(elsewhere, Inverted(q));
  ASSERT_EQ(result->items[0].outputs.size(), 2u);
  EXPECT_EQ(result->items[0].outputs[0].bytes, 0);
  EXPECT_EQ(OutputOf(*result, 0, 1), Inverted(k));
}

TEST_F(RunCallTest, AFailedRunInPlaceIsAborted) {
  std::string x = "01234567";
  std::string elsewhere(8, '.');
  backend_.FailWith(absl::UnavailableError("device lost"));
  for (std::string* output : {&x, &elsewhere}) {
    std::atomic<bool> dirty = false;
    Item item = BytesItem(x);
    item.outputs[0].place.dirty = &dirty;
    item.outputs[0].place.data = reinterpret_cast<std::byte*>(output->data());
    call_.items.clear();
    call_.items.push_back(std::move(item));
    const absl::StatusOr<Result> result = Run();
    ASSERT_TRUE(result.ok());
    const absl::Status status = result->items[0].status;
    EXPECT_EQ(status.code(),
              output == &x ? absl::StatusCode::kAborted : absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(status.message()), HasSubstr("device lost"));
    EXPECT_EQ(dirty, output == &x);
  }
}

// Keys that were to turn in their slots cannot be turned again; copied ones can.
TEST_F(RunCallTest, AFailedMoveIsAbortedIfItIsInPlace) {
  const auto plans = [](const ResolvedSpec& spec) { return CompilePlan(spec); };
  MoveRequest request;
  request.pools = {64};
  request.layouts = {{.pages = 4, .heads = 1, .head_dim = 8}};
  request.specs = {{.spec = {.preset = "rope-half-split"}}};
  request.layers = {{.spec = 0}};
  backend_.FailWith(absl::UnavailableError("device lost"));
  std::string pool(64, 'k');
  for (const bool in_place : {false, true}) {
    for (const bool leased : {false, true}) {
      request.mode = in_place ? MoveMode::kMove : MoveMode::kCopyOnWrite;
      request.groups = {{.runs = {{.block_table = {0}, .count = 1, .to = 9}}}};
      if (!in_place) request.groups[0].runs[0].to_block_table = {1};
      const auto prepared = PrepareMove(request, plans, "item");
      ASSERT_TRUE(prepared.ok()) << prepared.status();
      Item item{Prepared(*prepared)};
      if (leased) {
        item.outputs[0].place.data = reinterpret_cast<std::byte*>(pool.data());
      } else {
        item.inputs[0].bytes = Pieces(pool, 0);
      }
      call_.items.clear();
      call_.items.push_back(std::move(item));
      const absl::StatusOr<Result> result = Run();
      ASSERT_TRUE(result.ok());
      const bool lost = in_place && leased;
      EXPECT_EQ(result->items[0].status.code(),
                lost ? absl::StatusCode::kAborted : absl::StatusCode::kUnavailable);
    }
  }
}

// A backend that can say of every job what came of it.
class PerJobBackend final : public testing::BorrowedBackend {
 public:
  using BorrowedBackend::BorrowedBackend;
  void RunEach(absl::Span<const Job> jobs, absl::Span<JobResult> results) override {
    BorrowedBackend::RunEach(jobs, results);
    for (size_t i = 0; i < results.size(); ++i) {
      results[i].backend = i == 0 ? "first" : "other";
      if (i == 1) results[i] = {absl::UnavailableError("no"), "other", /*intact=*/true};
    }
  }
};

TEST_F(RunCallTest, EveryItemHasItsOwnOutcome) {
  PerJobBackend backend(&backend_);
  std::string x = "01234567";
  std::atomic<bool> dirty = false;
  for (int i = 0; i < 3; ++i) {
    Item item = BytesItem(x);
    if (i == 1) {  // in place, and intact
      item.outputs[0].place.data = reinterpret_cast<std::byte*>(x.data());
      item.outputs[0].place.dirty = &dirty;
    }
    call_.items.emplace_back(std::move(item));
  }
  call_.items.emplace(call_.items.begin() + 1, absl::NotFoundError("never ran"));
  Call* const calls[] = {&call_};
  const auto result = std::move(RunCalls(calls, backend, pool_, *Clock::Real())[0]);
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(result->items[0].status.ok());
  EXPECT_EQ(result->items[0].backend, "first");
  EXPECT_EQ(result->items[1].status, absl::NotFoundError("never ran"));
  EXPECT_EQ(result->items[2].status, absl::UnavailableError("no"));
  EXPECT_FALSE(dirty);
  EXPECT_EQ(result->items[3].backend, "other");
  EXPECT_EQ(result->items[3].outputs.size(), 1u);
}

// Positions that are checked must not change before they are used.
TEST_F(RunCallTest, PositionsThatOthersMayWriteAreCopied) {
  int64_t positions[2] = {1, 2};
  for (const bool changing : {false, true}) {
    PreparedEncode request = TwoRows();
    request.positions.kind = PositionSource::Kind::kTensor;
    request.positions_bytes = sizeof(positions);
    Item item =
        ItemOf(request, {{{reinterpret_cast<const std::byte*>(positions), sizeof(positions)}}});
    item.inputs[0].changing = changing;
    call_.items.clear();
    call_.items.push_back(item);
    ASSERT_TRUE(Run().ok());
    const auto& ran = std::get<PreparedEncode>(call_.items[0].prepared).positions;
    EXPECT_EQ(ran.data != reinterpret_cast<const std::byte*>(positions), changing);
  }
}

TEST_F(RunCallTest, GathersStridedTensorsBesideTheOutput) {
  const std::string x = "aaaa----bbbb----cccc";  // tokens of 4 bytes, 8 apart
  for (const size_t piece : {0, 3}) {
    call_.items.clear();
    PreparedRope request = BytesRequest(12);
    PreparedRope::Tensor& tensor = request.tensors[0];
    tensor.dense = false;
    tensor.input_bytes = 20;
    tensor.x_strides.token = 8;
    call_.items.push_back(ItemOf(request, {Pieces(x, piece)}));
    const auto result = Run();
    ASSERT_TRUE(result.ok());
    EXPECT_EQ(OutputOf(*result), Inverted("aaaabbbbcccc")) << piece;
  }
}

// An item whose positions are a FLOAT64 tensor.
Item ItemAt(std::string_view x, const std::vector<double>& positions, size_t piece) {
  PreparedRope request = BytesRequest(static_cast<int64_t>(x.size()));
  PositionSource& source = request.positions;
  source.kind = PositionSource::Kind::kTensor;
  source.dtype = Dtype::kFloat64;
  request.positions_bytes = static_cast<int64_t>(positions.size() * sizeof(double));
  const std::string_view numbers(reinterpret_cast<const char*>(positions.data()),
                                 positions.size() * sizeof(double));
  return ItemOf(request, {Pieces(numbers, piece), Pieces(x, 0)});
}

TEST_F(RunCallTest, ItemWithBadPositionsFailsAloneAndByItsPath) {
  const std::string x = "01234567";
  const std::vector<double> good = {1, 2};
  const std::vector<double> bad = {1, std::numeric_limits<double>::quiet_NaN()};
  call_.batch = true;
  call_.items.push_back(ItemAt(x, good, 5));
  call_.items.push_back(ItemAt(x, bad, 5));
  call_.items.emplace_back(absl::NotFoundError("items[2].spec.preset: unknown"));
  call_.items.push_back(BytesItem(x));
  const auto result = Run();
  ASSERT_TRUE(result.ok());
  ASSERT_EQ(result->items.size(), 4u);
  EXPECT_EQ(OutputOf(*result, 0), Inverted(x));
  EXPECT_EQ(result->items[1].status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(result->items[1].status.message(), HasSubstr("items[1].positions"));
  EXPECT_TRUE(result->items[1].outputs.empty());
  EXPECT_EQ(result->items[2].status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(OutputOf(*result, 3), Inverted(x));
}

TEST_F(RunCallTest, UnaryMessagesSayItem) {
  const std::vector<double> bad = {1, std::numeric_limits<double>::infinity()};
  call_.items.push_back(ItemAt("01234567", bad, 0));
  const auto result = Run();
  ASSERT_TRUE(result.ok());
  EXPECT_THAT(result->items[0].status.message(), HasSubstr("item.positions"));
}

TEST_F(RunCallTest, EncodesWithAndWithoutAddTo) {
  const std::string embedding = "embedding of 2 rows of 16 bytes.";
  call_.items.push_back(ItemOf(TwoRows()));
  for (const size_t piece : {0, 7}) {
    call_.items.push_back(ItemOf(TwoRowsAdded(), {Pieces(embedding, piece)}));
  }
  const auto result = Run();
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(OutputOf(*result, 0), std::string(32, 0x5A));
  EXPECT_EQ(OutputOf(*result, 1), Inverted(embedding));
  EXPECT_EQ(OutputOf(*result, 2), Inverted(embedding));
}

TEST_F(RunCallTest, ZeroTokensAndZeroItemsAnswerEmpty) {
  const auto nothing = Run();
  ASSERT_TRUE(nothing.ok());
  EXPECT_TRUE(nothing->items.empty());
  EXPECT_EQ(backend_.runs(), 0);
  call_.items.push_back(BytesItem(""));
  const auto empty = Run();
  ASSERT_TRUE(empty.ok());
  EXPECT_TRUE(empty->items[0].status.ok());
  EXPECT_EQ(OutputOf(*empty), "");
}

TEST_F(RunCallTest, MissingMemoryIsUnavailable) {
  PreparedRope request = BytesRequest(0);
  request.tensors[0].output_bytes = int64_t{1} << 60;
  call_.items.push_back(ItemOf(request, {Pieces("", 0)}));
  EXPECT_EQ(Run().status().code(), absl::StatusCode::kUnavailable);
}

// Moves one token of a cache of 2 slots in place, or to the other slot.
Item MoveItem(MoveMode mode, std::string* cache, bool in_message) {
  cache->assign(2 * 8 * 2, 'k');
  MoveRequest request{
      .pools = {std::ssize(*cache)},
      .layouts = {{.pages = 2, .heads = 1, .head_dim = 8}},
      .specs = {{.spec = {.preset = "rope-half-split", .head_dim = 8}}},
      .layers = {{.spec = 0}},
      .groups = {{.slots = {.slots = {0}, .from_positions = {1}, .positions = {2}}}},
      .mode = mode};
  if (mode != MoveMode::kMove) request.groups[0].slots.to_slots = {1};
  Item item{Prepared(*PrepareMove(request, CompilePlan, "item"))};
  if (in_message || mode == MoveMode::kCompare) {
    item.inputs[0].bytes = Pieces(*cache, 0);
  } else {
    item.outputs[0].place.data = reinterpret_cast<std::byte*>(cache->data());
  }
  return item;
}

// Begins pieces of moves as long as it may.
class EndlessBackend final : public testing::BorrowedBackend {
 public:
  using BorrowedBackend::BorrowedBackend;
  void RunEach(absl::Span<const Job> jobs, absl::Span<JobResult> results) override {
    for (const Job& job : jobs) {
      while (std::get<MoveJob>(job).stop->MayBegin()) {
      }
    }
    for (JobResult& result : results) result = {};
  }
};

// Its caller leaves after it was asked for `questions` times.
class LeavingCall final : public Call {
 public:
  explicit LeavingCall(int questions) : questions_(questions) {}
  bool cancelled() const override { return --questions_ < 0; }
  void Done(absl::StatusOr<Result>) override {}

 private:
  mutable int questions_;
};

TEST_F(RunCallTest, AMoveEndsBetweenPiecesWhenItsCallerLeaves) {
  using enum absl::StatusCode;
  const struct {
    MoveMode mode;
    bool in_message;
    int pieces;
    absl::StatusCode code;
  } cases[] = {{MoveMode::kMove, false, 0, kCancelled},
               {MoveMode::kMove, false, 3, kAborted},
               {MoveMode::kMove, true, 3, kCancelled},
               {MoveMode::kCopyOnWrite, false, 3, kCancelled},
               {MoveMode::kCompare, false, 3, kCancelled}};
  EndlessBackend backend(&backend_);
  for (const auto& wanted : cases) {
    std::string cache;
    LeavingCall call(wanted.pieces);
    call.items.push_back(MoveItem(wanted.mode, &cache, wanted.in_message));
    Call* const calls[] = {&call};
    const auto result = std::move(RunCalls(calls, backend, pool_, *Clock::Real())[0]);
    ASSERT_TRUE(result.ok());
    EXPECT_EQ(result->items[0].status.code(), wanted.code);
    EXPECT_THAT(result->items[0].status.message(), HasSubstr("server: cancelled by the caller"));
    EXPECT_TRUE(result->items[0].outputs.empty());
  }
}

TEST_F(RunCallTest, AMoveEndsBetweenPiecesAtItsDeadline) {
  EndlessBackend backend(&backend_);
  std::string cache;
  call_.items.push_back(MoveItem(MoveMode::kCopyOnWrite, &cache, true));
  call_.deadline = SteadyNow();
  Call* const calls[] = {&call_};
  const auto result = std::move(RunCalls(calls, backend, pool_, *Clock::Real())[0]);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->items[0].status.code(), absl::StatusCode::kDeadlineExceeded);
}

}  // namespace
}  // namespace phasor::engine
