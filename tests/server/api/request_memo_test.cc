// SPDX-License-Identifier: Apache-2.0
// Tests where items are cut, how much is remembered, and that threads may share a memo. What a
// remembered request means is tested in recall_test.cc.
#include "server/api/request_memo.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/escaping.h"
#include "kernels/plan/plan.h"
#include "proto/convert.h"
#include "tests/support/requests.h"

namespace phasor::rpc {
namespace {

using ::phasor::testing::EncodeOf;

Prepared CheckedEncode(const v1::EncodeItem& item) {
  const auto plans = [](const ResolvedSpec& spec) { return CompilePlan(spec); };
  return *PrepareEncode(*EncodeRequestFromWire(item, "item"), plans, "item");
}

// An item of another width for each number.
v1::EncodeItem Numbered(int64_t n) {
  v1::EncodeItem item = EncodeOf(1);
  item.mutable_spec()->set_dim(2 + 2 * n);
  return item;
}

int64_t WidthOf(const Prepared& prepared) {
  return std::get<PreparedEncode>(prepared).output.shape[1];
}

TEST(CutPositionsTest, CutsTheOnlyPositionsOut) {
  const auto cut = CutPositions("\x0A\x01s\x12\x02pq\x18\x02");
  ASSERT_TRUE(cut.has_value());
  EXPECT_EQ(cut->before, "\x0A\x01s");
  EXPECT_EQ(cut->positions, "pq");
  EXPECT_EQ(cut->after, "\x18\x02");
}

TEST(CutPositionsTest, AnItemWithoutPositionsOrWithTwoIsNotCut) {
  EXPECT_FALSE(CutPositions("").has_value());
  EXPECT_FALSE(CutPositions("\x0A\x01s").has_value());
  EXPECT_FALSE(CutPositions("\x12\x01p\x12\x01p").has_value());
  EXPECT_FALSE(CutPositions("\x10\x01").has_value());            // a number of that field
  EXPECT_FALSE(CutPositions("\x12\x01p\x0A\x05s").has_value());  // cut off
}

// What protobuf reads, if that is a range of integers.
std::optional<AxisRange> ParsedRange(const std::string& bytes) {
  v1::Positions wire;
  if (!wire.ParseFromString(bytes) || !wire.range().has_integer()) return std::nullopt;
  return std::get<AxisRange>(*PositionsFromWire(wire, ""));
}

bool SameRange(const AxisRange& a, const AxisRange& b) {
  const auto& x = std::get<IntegerRange>(a);
  const auto& y = std::get<IntegerRange>(b);
  return x.start == y.start && x.step == y.step && x.count == y.count;
}

TEST(PlainRangeTest, IsWhatClientsWrite) {
  v1::Positions positions;
  v1::IntegerRange& range = *positions.mutable_range()->mutable_integer();
  constexpr int64_t kNumbers[] = {0, 1, -1, 127, 128, INT64_MAX, INT64_MIN};
  for (const int64_t number : kNumbers) {
    range.set_start(number);
    range.set_count(number);
    range.clear_step();
    for (int i = 0; i < 2; ++i) {
      const auto plain = PlainRange(positions.SerializeAsString());
      ASSERT_TRUE(plain.has_value());
      EXPECT_TRUE(SameRange(*plain, *ParsedRange(positions.SerializeAsString())));
      range.set_step(number);
    }
  }
  positions.mutable_range()->mutable_real()->set_count(1);
  EXPECT_FALSE(PlainRange(positions.SerializeAsString()).has_value());
  EXPECT_FALSE(PlainRange("").has_value());
}

TEST(PlainRangeTest, OfDamagedBytesIsWhatProtobufReadsOrNothing) {
  v1::Positions positions;
  v1::IntegerRange& range = *positions.mutable_range()->mutable_integer();
  range.set_start(123456789);
  range.set_step(-3);
  range.set_count(70000);
  std::minstd_rand random(1);
  int plain_ones = 0;
  for (int i = 0; i < 100000; ++i) {
    std::string bytes = positions.SerializeAsString();
    for (unsigned changes = 1 + random() % 3; changes > 0; --changes) {
      const size_t at = random() % bytes.size();
      if (random() % 4 == 0) bytes.insert(at, 1, static_cast<char>(random() % 256));
      bytes[at] = static_cast<char>(random() % 2 == 0 ? random() % 32 : random() % 256);
    }
    const auto plain = PlainRange(bytes);
    if (!plain.has_value()) continue;
    ++plain_ones;
    const auto parsed = ParsedRange(bytes);
    ASSERT_TRUE(parsed.has_value()) << absl::CHexEscape(bytes);
    ASSERT_TRUE(SameRange(*plain, *parsed)) << absl::CHexEscape(bytes);
  }
  EXPECT_GT(plain_ones, 1000);
}

TEST(RequestMemoTest, AThreadRemembersFewRequests) {
  RequestMemo memo;
  constexpr int64_t kMany = RequestMemo::kRequestsOfPart;
  for (int64_t n = 0; n < 2 * kMany; ++n) {
    memo.Keep(Numbered(n).SerializeAsString(), CheckedEncode(Numbered(n)));
  }
  Prepared found;
  std::shared_ptr<const SharedTensors> shared;
  for (int64_t n = 0; n < 2 * kMany; ++n) {
    const bool kept = n >= kMany;
    ASSERT_EQ(memo.Find(ItemKind::kEncode, {Numbered(n).SerializeAsString()}, &found, &shared),
              kept ? 1 : 0)
        << n;
    if (kept) {
      EXPECT_EQ(WidthOf(found), 2 + 2 * n);
    }
  }
}

TEST(RequestMemoTest, AnItemOfAnotherKindIsNotFound) {
  RequestMemo memo;
  memo.Keep(Numbered(1).SerializeAsString(), CheckedEncode(Numbered(1)));
  Prepared found;
  std::shared_ptr<const SharedTensors> shared;
  EXPECT_FALSE(memo.Find(ItemKind::kRope, {Numbered(1).SerializeAsString()}, &found, &shared));
}

TEST(RequestMemoTest, SharedTensorsAreThoseOfTheRequest) {
  RequestMemo memo;
  SharedTensors outputs;
  outputs.outputs.emplace_back().tensor.name = "lease";
  memo.Keep(Numbered(1).SerializeAsString(), CheckedEncode(Numbered(1)), outputs);
  memo.Keep(Numbered(2).SerializeAsString(), CheckedEncode(Numbered(2)));
  Prepared found;
  std::shared_ptr<const SharedTensors> shared;
  ASSERT_TRUE(memo.Find(ItemKind::kEncode, {Numbered(1).SerializeAsString()}, &found, &shared));
  ASSERT_NE(shared, nullptr);
  EXPECT_EQ(shared->outputs[0].tensor.name, "lease");
  ASSERT_TRUE(memo.Find(ItemKind::kEncode, {Numbered(2).SerializeAsString()}, &found, &shared));
  EXPECT_EQ(shared, nullptr);
}

TEST(RequestMemoTest, LongItemsAndLargePlansAreNotRemembered) {
  RequestMemo memo;
  v1::EncodeItem item = EncodeOf(1);
  item.mutable_pins()->set_backend(std::string(RequestMemo::kMaxItemBytes, 'b'));
  memo.Keep(item.SerializeAsString(), CheckedEncode(item));
  Prepared found;
  std::shared_ptr<const SharedTensors> shared;
  EXPECT_FALSE(memo.Find(ItemKind::kEncode, {item.SerializeAsString()}, &found, &shared));
  const v1::EncodeItem wide = Numbered(1 << 13);
  memo.Keep(wide.SerializeAsString(), CheckedEncode(wide));
  EXPECT_FALSE(memo.Find(ItemKind::kEncode, {wide.SerializeAsString()}, &found, &shared));
}

TEST(RequestMemoTest, ThreadsFindTheirOwnRequests) {
  RequestMemo memo;
  std::vector<std::thread> threads;
  for (int64_t thread = 0; thread < 24; ++thread) {
    threads.emplace_back([&memo, thread] {
      const v1::EncodeItem item = Numbered(thread);
      const std::string bytes = item.SerializeAsString();
      const Prepared checked = CheckedEncode(item);
      for (int i = 0; i < 300; ++i) {
        memo.Keep(bytes, checked);
        Prepared found;
        std::shared_ptr<const SharedTensors> shared;
        if (!memo.Find(ItemKind::kEncode, {bytes}, &found, &shared))
          continue;  // others share the part
        EXPECT_EQ(WidthOf(found), 2 + 2 * thread);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace phasor::rpc
