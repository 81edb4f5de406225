// SPDX-License-Identifier: Apache-2.0
// Tests the runs of a chunked item: what they borrow, their order, and which runs are refused.
#include "server/api/chunked_item.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "kernels/plan/plan.h"
#include "tests/support/requests.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_call.h"

namespace phasor::rpc {
namespace {

using engine::Pieces;
using ::phasor::testing::EncodeOf;
using ::phasor::testing::RopeOf;
using ::phasor::testing::SetShape;
using ::phasor::testing::StatusIs;
using ::testing::HasSubstr;

using ::phasor::testing::kInvalid;
constexpr int64_t kMessage = 1 << 20;

template <typename Item>
absl::StatusOr<ChunkedItem> Open(const Item& item, const std::vector<PieceList>& raw = {}) {
  const auto plans = [](const ResolvedSpec& spec) { return CompilePlan(spec); };
  return ChunkedItem::Open(item, raw, {plans, "cpu", kMessage, 8, nullptr});
}

v1::Chunk RunAt(int64_t first, int64_t tokens) {
  v1::Chunk chunk;
  chunk.set_first_token(first);
  chunk.set_tokens(tokens);
  return chunk;
}

// Entries of `tokens` tokens of RopeOf's tensors.
struct RopeEntries {
  explicit RopeEntries(int64_t tokens)
      : q(64 * tokens, 'q'), k(32 * tokens, 'k'), raw{Pieces(q, 0), Pieces(k, 7)} {}
  const std::string q, k;
  const std::vector<PieceList> raw;
};

TEST(ChunkedItemTest, ARunHasItsTokensTensorsAndPositions) {
  const auto item = Open(RopeOf(10));
  ASSERT_TRUE(item.ok()) << item.status();
  EXPECT_EQ(item->tokens(), 10);
  EXPECT_EQ(item->kept_bytes(), 0);
  const RopeEntries entries(4);
  const auto view = item->Cut(RunAt(3, 4), 3, entries.raw, kMessage);
  ASSERT_TRUE(view.ok()) << view.status();
  EXPECT_EQ(view->response_bytes, 4 * 96);
  const auto& rope = std::get<PreparedRope>(view->items[0].prepared);
  EXPECT_EQ(rope.tokens, 4);
  EXPECT_EQ(view->items[0].Find(Role::kTensor, 1)->bytes, entries.raw[1]);
  Position first;
  ReadPositions(rope.positions, 0, 1, &first);
  EXPECT_EQ(first.whole, 3);
}

TEST(ChunkedItemTest, PositionsAreKeptAndLentToEveryRun) {
  v1::ApplyRoPEItem wire = RopeOf(4);
  SetShape(wire.mutable_positions()->mutable_tensor(), v1::DTYPE_INT32, {4});
  const int32_t numbers[] = {40, 30, 20, 10};
  std::string bytes(sizeof(numbers), ' ');
  std::memcpy(bytes.data(), numbers, sizeof(numbers));
  const auto item = Open(wire, {Pieces(bytes, 3)});
  ASSERT_TRUE(item.ok()) << item.status();
  EXPECT_EQ(item->kept_bytes(), 16);
  bytes.assign(bytes.size(), 'x');  // what was received is gone
  const RopeEntries entries(2);
  const auto view = item->Cut(RunAt(1, 2), 1, entries.raw, kMessage);
  ASSERT_TRUE(view.ok()) << view.status();
  const PieceList& lent = view->items[0].Find(Role::kPositions)->bytes;
  ASSERT_EQ(PieceBytes(lent), 8);
  EXPECT_EQ(std::memcmp(lent[0].data(), numbers + 1, 8), 0);
}

// As for calls: tensors that came in several pieces, which nobody gathers tile by tile.
TEST(ChunkedItemTest, MemoryToGatherTensorsIsCounted) {
  v1::ApplyRoPEItem wire = RopeOf(10);
  for (v1::RopeTensor& tensor : *wire.mutable_tensors()) {
    tensor.mutable_tensor()->set_dtype(v1::DTYPE_BFLOAT16);
    tensor.set_output_dtype(v1::DTYPE_FLOAT8_E4M3);
  }
  const ChunkedItem item = Open(wire).value();
  const std::string q(32 * 4, 'q'), k(16 * 4, 'k');
  const auto view = item.Cut(RunAt(0, 4), 0, {Pieces(q, 7), Pieces(k, 7)}, kMessage);
  ASSERT_TRUE(view.ok()) << view.status();
  EXPECT_EQ(view->copied_bytes, 32 * 4 + 16 * 4);
}

TEST(ChunkedItemTest, RunsFollowOneAnotherToTheEnd) {
  const ChunkedItem item = Open(RopeOf(10)).value();
  const RopeEntries entries(4);
  const auto cut = [&](v1::Chunk run, int64_t next) {
    return item.Cut(run, next, entries.raw, kMessage).status();
  };
  EXPECT_THAT(cut(RunAt(4, 4), 3),
              StatusIs(kInvalid, HasSubstr("chunk.first_token: 4; must be 3")));
  EXPECT_THAT(cut(RunAt(7, 4), 7),
              StatusIs(kInvalid, HasSubstr("chunk.tokens: 4; must be in [1, 3]")));
  EXPECT_THAT(cut(RunAt(7, 0), 7), StatusIs(kInvalid, HasSubstr("chunk.tokens: 0")));
  EXPECT_TRUE(cut(RunAt(6, 4), 6).ok());
}

TEST(ChunkedItemTest, EntriesFitTheRun) {
  const ChunkedItem item = Open(RopeOf(10)).value();
  const RopeEntries entries(4);
  EXPECT_THAT(item.Cut(RunAt(0, 5), 0, entries.raw, kMessage),
              StatusIs(kInvalid, HasSubstr("raw[0]: 256 bytes; must be 320 for 5 tokens of")));
  EXPECT_THAT(item.Cut(RunAt(0, 4), 0, {entries.raw[0]}, kMessage),
              StatusIs(kInvalid, HasSubstr("raw: 1 entries; must be 2")));
}

TEST(ChunkedItemTest, EncodeTakesAddToOrNothing) {
  const ChunkedItem plain = Open(EncodeOf(1000)).value();
  EXPECT_EQ(plain.Cut(RunAt(0, 9), 0, {}, kMessage)->response_bytes, 9 * 32);
  EXPECT_THAT(plain.Cut(RunAt(0, 1000), 0, {}, 20000),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("response is too large")));
  constexpr int64_t kRoom = 16 << 10;  // of an answer, beside its elements
  EXPECT_FALSE(plain.Cut(RunAt(0, 10), 0, {}, 10 * 32 + kRoom - 1).ok());
  EXPECT_TRUE(plain.Cut(RunAt(0, 10), 0, {}, 10 * 32 + kRoom).ok());
  v1::EncodeItem adds = EncodeOf(10);
  SetShape(adds.mutable_add_to(), v1::DTYPE_FLOAT32, {10, 8});
  const ChunkedItem item = Open(adds).value();
  const std::string rows(64, 'r');
  EXPECT_TRUE(item.Cut(RunAt(0, 2), 0, {Pieces(rows, 0)}, kMessage).ok());
  EXPECT_THAT(item.Cut(RunAt(0, 2), 0, {}, kMessage),
              StatusIs(kInvalid, HasSubstr("raw: 0 entries; must be 1")));
}

TEST(ChunkedItemTest, PositionsThatAreKeptHaveALimit) {
  v1::EncodeItem item = EncodeOf(1);
  SetShape(item.mutable_positions()->mutable_tensor(), v1::DTYPE_INT64,
           {kMaxKeptPositionBytes / 8 + 1});
  const std::string numbers(kMaxKeptPositionBytes + 8, '\0');
  EXPECT_THAT(Open(item, {Pieces(numbers, 0)}),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("item.positions: 67108872 bytes; must be at most 67108864")));
}

TEST(ChunkedItemTest, OpensOnlyWhatCanBeCut) {
  v1::ApplyRoPEItem batch = RopeOf(4);
  batch.mutable_tensors()->RemoveLast();
  SetShape(batch.mutable_tensors(0)->mutable_tensor(), v1::DTYPE_FLOAT32, {2, 4, 2, 8});
  EXPECT_THAT(Open(batch), StatusIs(kInvalid, HasSubstr("batch 2; must be 1")));
  v1::ApplyRoPEItem strided = RopeOf(4);
  for (const int64_t stride : {32, 8, 1}) {
    strided.mutable_tensors(0)->mutable_tensor()->add_strides(stride);
  }
  EXPECT_THAT(Open(strided), StatusIs(kInvalid, HasSubstr("tensors[0].tensor.strides: not dense")));
  v1::ApplyRoPEItem paged = RopeOf(4);
  v1::PagedCacheWrite& cache = *paged.mutable_paged_cache();
  SetShape(cache.mutable_values(), v1::DTYPE_FLOAT32, {4, 1, 8});
  SetShape(cache.mutable_key_cache(), v1::DTYPE_FLOAT32, {1, 4, 2, 8});
  SetShape(cache.mutable_value_cache(), v1::DTYPE_FLOAT32, {1, 4, 1, 8});
  SetShape(cache.mutable_slot_mapping(), v1::DTYPE_INT32, {4});
  EXPECT_THAT(Open(paged), StatusIs(kInvalid, HasSubstr("item.paged_cache: set; must be unset")));
  EXPECT_THAT(Open(RopeOf(4), RopeEntries(4).raw), StatusIs(kInvalid, HasSubstr("raw: 2 entries")));
}

}  // namespace
}  // namespace phasor::rpc
