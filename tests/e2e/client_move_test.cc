// SPDX-License-Identifier: Apache-2.0
// Tests moves of keys end to end: over TCP and a Unix socket with pools in the message or leased,
// and in process. All give the same bytes and errors, and change nothing else.
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "phasor/v1/position_embedding_service.grpc.pb.h"
#include "phasor/v1/shared_memory_service.grpc.pb.h"
#include "proto/convert_move.h"
#include "tests/e2e/shared_server.h"
#include "tests/support/running_server.h"
#include "tests/support/shared_memory.h"
#include "tests/support/status_matchers.h"

namespace phasor {
namespace {

using ::phasor::testing::kInvalid;
using ::testing::HasSubstr;
using PoolCells = std::vector<std::byte>;

constexpr int64_t kMovedPages = 6, kMovedPageSize = 4, kKeyRows = 2, kKeyLanes = 64,
                  kCacheLayers = 3;
constexpr int64_t kPoolBytes = int64_t{512} << 10;

// Three layers of a cache of two pools: layer 0 rotates, layer 1 has another base, layer 2 does not
// rotate. Tokens of two sequences go from pool 0 to pool 1.
MoveCall MoveOf(KeyCode code, MoveMode mode) {
  MoveCall call;
  call.layouts = {{.name = "vllm-blnhc",
                   .code = code,
                   .pages = kMovedPages,
                   .page_size = kMovedPageSize,
                   .heads = kKeyRows,
                   .head_dim = kKeyLanes,
                   .layers = kCacheLayers}};
  if (code == KeyCode::kInt8) {
    call.layouts[0].name = "nhd";
    call.layouts[0].scales = KeyScales{300000, kMovedPageSize * kKeyRows * 4, kKeyRows * 4, 4};
    call.layouts[0].layers = 1;
  }
  const Spec llama = {.preset = "llama-2", .head_dim = kKeyLanes};
  Spec other = llama;
  other.rope_theta = 500000;
  call.specs = {{.spec = llama}, {.spec = llama, .from_spec = other}};
  for (int64_t i = 0; i < kCacheLayers; ++i) {
    KeyLayer& layer = call.layers.emplace_back();
    if (i < 2) layer.spec = i;
    layer.layer = i;
    if (code == KeyCode::kInt8) {
      layer.layer = 0;
      layer.place.offset_bytes = 10000 * i;
    }
    if (mode != MoveMode::kMove) layer.to_place = KeyPlace{1, layer.place.offset_bytes};
  }
  call.groups = {
      {.runs = {{.block_table = {5, 0}, .first = 1, .count = 6, .from = 70000, .to = 3},
                {.block_table = {2, 3}, .first = 0, .count = 5, .from = 0, .to = 11}},
       .slots = {.slots = {4}, .from_positions = {-7}, .positions = {int64_t{1} << 40}}}};
  call.mode = mode;
  return call;
}

// Bits that are numbers of moderate size in every 16-bit and 8-bit code, and as scales.
PoolCells RandomPool(uint64_t seed) {
  std::mt19937_64 random(seed);
  PoolCells cells(kPoolBytes);
  for (std::byte& cell : cells) cell = static_cast<std::byte>((random() & 0x83) | 0x3C);
  return cells;
}

class ClientMoveTest : public ClientSharedTest {
 protected:
  struct Outcome {
    absl::StatusOr<MoveResult> result;
    std::vector<PoolCells> pools;
  };

  static Outcome Move(const Client& client, MoveCall call, bool leased) {
    std::vector<PoolCells> pools = {RandomPool(1), RandomPool(2)};
    SharedMemory memory;
    if (leased) memory = Shared(client, 2 * kPoolBytes + 3);
    std::vector<absl::Span<std::byte>> spans;
    for (size_t i = 0; i < pools.size(); ++i) {
      spans.push_back(absl::MakeSpan(pools[i]));
      if (!leased) continue;
      // Pool 1 begins at an odd byte.
      spans[i] = {memory.data() + static_cast<int64_t>(i) * (kPoolBytes + 3), pools[i].size()};
      std::memcpy(spans[i].data(), pools[i].data(), pools[i].size());
    }
    call.pools = {spans.begin(), spans.end()};
    Outcome outcome{client.MoveKeys(std::move(call)), {}};
    for (const auto& span : spans) outcome.pools.emplace_back(span.begin(), span.end());
    return outcome;
  }

  // What every way of making the call gives.
  std::vector<Outcome> MoveEverywhere(const MoveCall& call) const {
    std::vector<Outcome> outcomes;
    outcomes.push_back(Move(here_, call, false));
    for (const Client* client : {&tcp_, &unix_}) {
      for (const bool leased : {false, true}) outcomes.push_back(Move(*client, call, leased));
    }
    return outcomes;
  }
};

// All numbers of a comparison.
std::vector<double> NumbersOf(const MoveResult& result) {
  std::vector<double> numbers;
  for (const KeyDifference& found : result.differences) {
    numbers.insert(numbers.end(), {found.max_abs, found.rms, found.reference_rms});
    for (const int64_t number :
         {found.bad_rows, found.first_bad_token, found.first_bad_slot, found.first_bad_head}) {
      numbers.push_back(static_cast<double>(number));
    }
  }
  return numbers;
}

TEST_F(ClientMoveTest, EveryWayGivesTheSameBytes) {
  for (const KeyCode code :
       {KeyCode::kBFloat16, KeyCode::kFloat8E4M3, KeyCode::kInt8, KeyCode::kQ8_0}) {
    for (const MoveMode mode : {MoveMode::kCopyOnWrite, MoveMode::kMove}) {
      const auto outcomes = MoveEverywhere(MoveOf(code, mode));
      ASSERT_TRUE(outcomes[0].result.ok()) << outcomes[0].result.status();
      EXPECT_EQ(outcomes[0].result->tokens, 12);
      EXPECT_GT(outcomes[0].result->moved_bytes, 0);
      EXPECT_EQ(outcomes[0].pools[0] == RandomPool(1), mode == MoveMode::kCopyOnWrite);
      EXPECT_EQ(outcomes[0].pools[1] == RandomPool(2), mode == MoveMode::kMove);
      for (size_t i = 1; i < outcomes.size(); ++i) {
        SCOPED_TRACE(std::string(Name(code)) + " " + std::to_string(i));
        ASSERT_TRUE(outcomes[i].result.ok()) << outcomes[i].result.status();
        EXPECT_EQ(outcomes[i].pools, outcomes[0].pools);
        EXPECT_EQ(outcomes[i].result->info, outcomes[0].result->info);
        EXPECT_EQ(outcomes[i].result->specs, outcomes[0].result->specs);
        EXPECT_EQ(outcomes[i].result->tokens, outcomes[0].result->tokens);
        EXPECT_EQ(outcomes[i].result->moved_bytes, outcomes[0].result->moved_bytes);
      }
    }
  }
}

TEST_F(ClientMoveTest, EveryWayFindsTheSameDifferences) {
  const auto outcomes = MoveEverywhere(MoveOf(KeyCode::kBFloat16, MoveMode::kCompare));
  ASSERT_TRUE(outcomes[0].result.ok()) << outcomes[0].result.status();
  ASSERT_EQ(outcomes[0].result->differences.size(), static_cast<size_t>(kCacheLayers));
  EXPECT_EQ(outcomes[0].result->differences[2].bad_rows, 12 * kKeyRows);
  for (const Outcome& outcome : outcomes) {
    ASSERT_TRUE(outcome.result.ok()) << outcome.result.status();
    EXPECT_EQ(outcome.pools[0], RandomPool(1));
    EXPECT_EQ(outcome.pools[1], RandomPool(2));
    EXPECT_EQ(NumbersOf(*outcome.result), NumbersOf(*outcomes[0].result));
  }
}

// A batch and a stream of a copy, a wrong call, and a comparison with what the copy gave.
TEST_F(ClientMoveTest, BatchesAndStreamsGiveWhatCallsGive) {
  const Outcome copied =
      Move(here_, MoveOf(KeyCode::kQ8_0, MoveMode::kCopyOnWrite), /*leased=*/false);
  ASSERT_TRUE(copied.result.ok()) << copied.result.status();
  for (const Client* client : {&here_, &tcp_, &unix_}) {
    for (const bool leased : {false, true}) {
      std::vector<PoolCells> own = {RandomPool(1), RandomPool(2), copied.pools[1], RandomPool(3)};
      SharedMemory memory;
      if (leased) memory = Shared(client == &here_ ? unix_ : *client, 4 * kPoolBytes);
      const auto pool = [&](int64_t i) -> absl::Span<std::byte> {
        PoolCells& cells = own[static_cast<size_t>(i)];
        if (!leased) return absl::MakeSpan(cells);
        std::memcpy(memory.data() + i * kPoolBytes, cells.data(), cells.size());
        return {memory.data() + i * kPoolBytes, cells.size()};
      };
      const absl::Span<std::byte> pools[] = {pool(0), pool(1), pool(2), pool(3)};
      const auto call = [&](MoveMode mode, int64_t to) {
        MoveCall made = MoveOf(KeyCode::kQ8_0, mode);
        made.pools = {pools[0], pools[to]};
        return made;
      };
      MoveCall wrong = call(MoveMode::kCopyOnWrite, 3);
      wrong.groups[0].runs[0].first = 99;
      const std::vector<MoveCall> calls = {call(MoveMode::kCopyOnWrite, 1), wrong,
                                           call(MoveMode::kCompare, 2)};
      const auto expect = [&](const std::vector<absl::StatusOr<MoveResult>>& results,
                              const std::string& path) {
        ASSERT_EQ(results.size(), 3u);
        ASSERT_TRUE(results[0].ok()) << results[0].status();
        EXPECT_EQ(results[0]->specs, copied.result->specs);
        EXPECT_EQ(results[0]->tokens, 12);
        EXPECT_EQ(PoolCells(pools[1].begin(), pools[1].end()), copied.pools[1]);
        EXPECT_THAT(results[1].status(),
                    testing::StatusIs(kInvalid, HasSubstr(path + ".groups[0].runs[0].first")));
        EXPECT_EQ(PoolCells(pools[3].begin(), pools[3].end()), RandomPool(3));
        ASSERT_TRUE(results[2].ok()) << results[2].status();
        ASSERT_EQ(results[2]->differences.size(), static_cast<size_t>(kCacheLayers));
        for (const KeyDifference& found : results[2]->differences) EXPECT_EQ(found.max_abs, 0);
      };
      const auto batch = client->BatchMoveKeys(calls);
      ASSERT_TRUE(batch.ok()) << batch.status();
      expect(*batch, "items[1]");
      const PoolCells fresh = RandomPool(2);
      std::memcpy(pools[1].data(), fresh.data(), fresh.size());
      const auto stream = client->StreamMoveKeys();
      std::vector<absl::StatusOr<MoveResult>> results;
      for (size_t i = 0; i < calls.size(); ++i) {
        ASSERT_TRUE(stream->Write(static_cast<int64_t>(i), calls[i]).ok());
        auto answer = stream->Read();
        ASSERT_TRUE(answer.has_value());
        results.push_back(std::move(answer->result));
      }
      expect(results, "item");
      EXPECT_TRUE(stream->Finish().ok());
    }
  }
}

TEST_F(ClientMoveTest, CallsOfABatchMustNotMeetWhereOneWrites) {
  PoolCells from = RandomPool(1), to = RandomPool(2);
  MoveCall copy = MoveOf(KeyCode::kBFloat16, MoveMode::kCopyOnWrite);
  copy.pools = {absl::MakeSpan(from), absl::MakeSpan(to)};
  MoveCall compare = MoveOf(KeyCode::kBFloat16, MoveMode::kCompare);
  compare.pools = copy.pools;
  for (const Client* client : {&here_, &tcp_}) {
    EXPECT_THAT(
        client->BatchMoveKeys({copy, compare}).status(),
        testing::StatusIs(kInvalid, HasSubstr("items[1].pools[1]: overlaps items[0].pools[1], "
                                              "and one of them is written")));
    EXPECT_EQ(to, RandomPool(2));
    EXPECT_TRUE(client->BatchMoveKeys({compare, compare}).ok());
  }
}

// A repeated MOVE does only what the positions say is left.
TEST_F(ClientMoveTest, SlotPositionsMakeAMoveRepeatable) {
  MoveCall call = MoveOf(KeyCode::kBFloat16, MoveMode::kMove);
  call.groups[0].slots = {};
  call.groups[0].slot_positions = KeyPlace{1, kPoolBytes - 4 * kMovedPages * kMovedPageSize};
  for (const Client* client : {&here_, &tcp_, &unix_}) {
    PoolCells keys = RandomPool(1), positions(kPoolBytes);
    call.pools = {absl::MakeSpan(keys), absl::MakeSpan(positions)};
    EXPECT_THAT(client->MoveKeys(call).status(),
                testing::StatusIs(absl::StatusCode::kFailedPrecondition,
                                  HasSubstr("item.groups[0].slot_positions: slot 21 has position "
                                            "0; must be 70000 before the move, or 3 after it")));
    EXPECT_EQ(keys, RandomPool(1));
    std::byte* const first = positions.data() + call.groups[0].slot_positions->offset_bytes;
    const auto put = [&](int64_t slot, uint32_t position) {
      std::memcpy(first + 4 * slot, &position, 4);
    };
    const int64_t slots[] = {21, 22, 23, 0, 1, 2, 8, 9, 10, 11, 12};
    for (uint32_t t = 0; t < 11; ++t) put(slots[t], t < 6 ? 70000 + t : t - 6);
    put(8, 11);  // done before
    const auto moved = client->MoveKeys(call);
    ASSERT_TRUE(moved.ok()) << moved.status();
    EXPECT_EQ(moved->tokens, 10);
    for (uint32_t t = 0; t < 11; ++t) {
      uint32_t position = 0;
      std::memcpy(&position, first + 4 * slots[t], 4);
      EXPECT_EQ(position, t < 6 ? 3 + t : 11 + t - 6);
    }
    const PoolCells once = keys;
    const auto again = client->MoveKeys(call);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->tokens, 0);
    EXPECT_EQ(again->moved_bytes, 0);
    EXPECT_EQ(keys, once);
  }
}

// A move there passes the comparison of the same move; with another base it fails.
TEST_F(ClientMoveTest, AMovePassesItsOwnComparison) {
  PoolCells from = RandomPool(1), to = RandomPool(2);
  MoveCall call = MoveOf(KeyCode::kBFloat16, MoveMode::kCopyOnWrite);
  call.pools = {absl::MakeSpan(from), absl::MakeSpan(to)};
  ASSERT_TRUE(unix_.MoveKeys(call).ok());
  call.mode = MoveMode::kCompare;
  auto found = unix_.MoveKeys(call);
  ASSERT_TRUE(found.ok()) << found.status();
  for (const KeyDifference& difference : found->differences) EXPECT_EQ(difference.bad_rows, 0);
  call.specs[0].spec.rope_theta = 10;
  found = unix_.MoveKeys(call);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_GT(found->differences[0].bad_rows, 0);
  EXPECT_EQ(found->differences[1].bad_rows, 0);
}

TEST_F(ClientMoveTest, ErrorsAreEqualAndChangeNothing) {
  const auto expect = [&](absl::StatusCode code, const std::string& message, auto change) {
    MoveCall call = MoveOf(KeyCode::kBFloat16, MoveMode::kCopyOnWrite);
    change(&call);
    const auto outcomes = MoveEverywhere(call);
    EXPECT_THAT(outcomes[0].result.status(), testing::StatusIs(code, HasSubstr(message)));
    for (const Outcome& outcome : outcomes) {
      EXPECT_EQ(outcome.result.status(), outcomes[0].result.status());
      EXPECT_EQ(outcome.pools[0], RandomPool(1));
      EXPECT_EQ(outcome.pools[1], RandomPool(2));
    }
  };
  expect(kInvalid, "item.groups[0].runs[1].block_table[1]: page 6",
         [](MoveCall* call) { call->groups[0].runs[1].block_table[1] = kMovedPages; });
  expect(kInvalid, "item.layers[1].to_place.pool: 2",
         [](MoveCall* call) { call->layers[1].to_place->pool = 2; });
  expect(kInvalid, "item.layouts[0].heads", [](MoveCall* call) { call->layouts[0].heads = 0; });
  expect(kInvalid, "item.groups[0]", [](MoveCall* call) { call->groups[0].slots.slots = {23}; });
  expect(absl::StatusCode::kFailedPrecondition, "item.specs[1].from_fingerprint",
         [](MoveCall* call) { call->specs[1].from_fingerprint = "other"; });
  expect(absl::StatusCode::kFailedPrecondition, "item.pins.backend: 'cuda'",
         [](MoveCall* call) { call->pins.backend = "cuda"; });
  expect(absl::StatusCode::kNotFound, "item.specs[0].spec.preset",
         [](MoveCall* call) { call->specs[0].spec.preset = "none"; });
}

// Two pools of one call may be places of one lease, but not the same bytes.
TEST_F(ClientMoveTest, PoolsThatOverlapAreRefusedEverywhere) {
  const SharedMemory memory = Shared(unix_, 2 * kPoolBytes);
  const absl::Span<std::byte> all(memory.data(), static_cast<size_t>(memory.size()));
  for (const Client* client : {&here_, &tcp_, &unix_}) {
    MoveCall call = MoveOf(KeyCode::kBFloat16, MoveMode::kCopyOnWrite);
    call.pools = {all.first(kPoolBytes), all.subspan(kPoolBytes - 1, kPoolBytes)};
    EXPECT_THAT(client->MoveKeys(call).status(),
                testing::StatusIs(kInvalid, HasSubstr("item.pools[1]: overlaps item.pools[0]")));
  }
}

class NamedPoolTest : public ClientServerTest {
 protected:
  void SetUp() override {
    ServerOptions options;
    options.shared_memory = true;
    Start(options);
  }
};

TEST_F(NamedPoolTest, NamedRegionsAreSourcesAndDestinations) {
  const PoolCells source = RandomPool(1), target = RandomPool(2);
  const auto text = [](const PoolCells& cells) {
    return std::string(reinterpret_cast<const char*>(cells.data()), cells.size());
  };
  const testing::SharedMemory from(text(source)), to(text(target));
  const auto channel = testing::NewChannel(server_->listeners()[1]);
  for (const auto& [name, region] : {std::pair("from", &from), {"to", &to}}) {
    grpc::ClientContext context;
    v1::RegisterRequest request;
    request.mutable_region()->set_name(name);
    request.mutable_region()->set_size_bytes(kPoolBytes);
    request.mutable_region()->mutable_posix()->set_key(region->key());
    v1::RegisterResponse response;
    const auto stub = v1::SharedMemoryService::NewStub(channel);
    const grpc::Status status = stub->Register(&context, request, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
  }
  const auto stub = v1::PositionEmbeddingService::NewStub(channel);
  const auto move = [&](const MoveCall& call, v1::MoveKeysResponse* response) {
    const MoveRequest request{.pools = {kPoolBytes, kPoolBytes},
                              .layouts = call.layouts,
                              .specs = call.specs,
                              .layers = call.layers,
                              .groups = call.groups,
                              .mode = call.mode};
    v1::MoveKeysRequest wire;
    *wire.mutable_item() = ToWire(request);
    for (const int i : {0, 1}) {
      wire.mutable_item()->mutable_pools(i)->mutable_region()->set_region(i == 0 ? "from" : "to");
    }
    grpc::ClientContext context;
    return stub->MoveKeys(&context, wire, response);
  };
  PoolCells own = source, expected = target;
  for (const MoveMode mode : {MoveMode::kCopyOnWrite, MoveMode::kCompare, MoveMode::kMove}) {
    for (const KeyCode code : {KeyCode::kBFloat16, KeyCode::kInt8}) {
      MoveCall call = MoveOf(code, mode);
      call.pools = {absl::MakeSpan(own), absl::MakeSpan(expected)};
      ASSERT_TRUE(here_.MoveKeys(call).ok());
      v1::MoveKeysResponse response;
      const grpc::Status status = move(call, &response);
      ASSERT_TRUE(status.ok()) << status.error_message();
      EXPECT_EQ(response.raw_size(), 0);
      EXPECT_EQ(response.result().inline_pools_size(), 0);
      EXPECT_EQ(from.bytes() == text(own), true) << Name(code);
      EXPECT_EQ(to.bytes() == text(expected), true) << Name(code);
    }
  }
}

}  // namespace
}  // namespace phasor
