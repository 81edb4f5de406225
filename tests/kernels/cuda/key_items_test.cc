// SPDX-License-Identifier: Apache-2.0
// The GPU's kernels for keys, run on the host, return the reference's bytes for every code, layout,
// pairing and slicing, and touch nothing else.
#include "kernels/cuda/key_items.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <tuple>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/move_keys.h"
#include "kernels/cuda/rotate_keys.h"
#include "kernels/cuda/rotate_scaled_keys.h"
#include "tests/support/host_grid.h"
#include "tests/support/random_moves.h"

namespace phasor::cuda {
namespace {

using testing::RandomMove;
using testing::Tensor;

std::vector<Tensor> Reference(RandomMove& random) {
  static const auto* const backend =
      new std::unique_ptr<Backend>(cpu::MakeCpuBackend({cpu::Target::kScalar, 1}));
  random.Reset();
  EXPECT_TRUE((*backend)->Run({random.job()}).ok());
  return random.Now();
}

void ExpectSameBytes(const std::vector<Tensor>& want, const std::vector<Tensor>& got,
                     const std::string& what) {
  ASSERT_EQ(want.size(), got.size());
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_TRUE(got[i].GuardsIntact()) << what << " pool " << i;
    ASSERT_EQ(want[i].size_bytes(), got[i].size_bytes());
    for (int64_t k = 0; k < want[i].size_bytes(); ++k) {
      ASSERT_EQ(want[i].data()[k], got[i].data()[k]) << what << " pool " << i << " byte " << k;
    }
  }
}

// Where lanes are while they rotate.
enum class Through { kRegisters, kScaledRegisters, kSharedMemory };

// How a move is done: the code, and the pairings.
using Way = std::tuple<KeyCode, Through, bool, bool>;

template <typename Item>
void AddWays(const Launch& launch, Through through, std::map<Way, int>* ways) {
  const auto* const items = reinterpret_cast<const Item*>(launch.batch.host + launch.batch.items);
  for (int32_t i = 0; i < launch.batch.count; ++i) {
    ++(*ways)[{launch.kernel.code, through, items[i].split_in, items[i].split_out}];
  }
}

std::map<Way, int> WaysOf(const Job& job, int processors = 1) {
  std::vector<std::max_align_t> memory(1 << 16);
  Arena arena(reinterpret_cast<std::byte*>(memory.data()), std::ssize(memory) * 16);
  LaunchList list;
  testing::AddWhereTheyLie(job, int64_t{1} << 40, list, arena, processors);
  std::map<Way, int> ways;
  for (const Launch& launch : list.Finish(arena, nullptr)) {
    const KernelId& id = launch.kernel;
    if (id.op == Op::kRotateScaledKeys) {
      AddWays<RotateScaledKeysItem>(launch, Through::kScaledRegisters, &ways);
    } else if (id.op == Op::kMoveKeys && id.wide) {
      AddWays<RotateKeysItem>(launch, Through::kRegisters, &ways);
    } else if (id.op == Op::kMoveKeys) {
      AddWays<MoveKeysItem>(launch, Through::kSharedMemory, &ways);
    }
  }
  return ways;
}

bool IsFloat(KeyCode code) { return code <= KeyCode::kFloat8E5M2; }
bool MayHaveScales(KeyCode code) { return code >= KeyCode::kFloat8E4M3 && code <= KeyCode::kQ8_0; }

TEST(KeyItemsTest, RandomMovesHaveTheReferencesBytes) {
  int changed = 0, supported = 0;
  std::map<KeyCode, int> codes;
  std::map<Way, int> ways[2];  // of copies, and of moves in place
  for (uint64_t seed = 0; seed < 600; ++seed) {
    RandomMove random(seed);
    if (!Supports(random.job())) continue;  // misaligned lanes that are apart in two ways
    ++supported;
    const auto want = Reference(random);
    random.Reset();
    for (size_t i = 0; i < want.size(); ++i) {
      changed += std::memcmp(want[i].data(), random.memory()[i]->data(),
                             static_cast<size_t>(want[i].size_bytes())) != 0;
    }
    for (const MovePlane& plane : *random.move().planes) {
      codes[(*random.move().forms)[plane.form].code] += plane.plan != nullptr;
    }
    for (const auto& [way, items] : WaysOf(random.job())) ways[random.in_place()][way] += items;
    for (const auto& [most_rows, processors] :
         {std::pair(int64_t{1} << 40, 1), std::pair(int64_t{3}, 1),
          std::pair(int64_t{1} << 40, 132)}) {
      random.Reset();
      testing::RunOnHostGrid({random.job()}, most_rows, processors);
      ExpectSameBytes(want, random.Now(), StrCat("seed ", seed, ": ", random.Describe()));
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(supported, 480);
  EXPECT_GT(changed, 1000);
  for (const KeyCode code : kKeyCodes) EXPECT_GT(codes[code], 40) << Name(code);
  std::map<std::pair<KeyCode, Through>, int> by_code;
  std::map<std::tuple<bool, Through, bool, bool>, int> by_way;
  for (const bool in_place : {false, true}) {
    for (const auto& [way, items] : ways[in_place]) {
      const auto& [code, through, split_in, split_out] = way;
      by_code[{code, through}] += items;
      by_way[{in_place, through, split_in, split_out}] += items;
    }
  }
  for (const KeyCode code : kKeyCodes) {
    const auto count = [&](Through through) { return by_code[{code, through}]; };
    EXPECT_EQ(count(Through::kRegisters) > 5, IsFloat(code)) << Name(code);
    EXPECT_EQ(count(Through::kScaledRegisters) > 1, MayHaveScales(code)) << Name(code);
    EXPECT_GT(count(Through::kSharedMemory), 5) << Name(code);
  }
  EXPECT_EQ(by_way.size(), 24u);
}

TEST(KeyItemsTest, PairsInBlocksAreLeftToTheCpu) {
  const auto blocks = testing::MakeHandPlan({.pairs = 16,
                                             .axes = 2,
                                             .pairing = Pairing::kBlockHalfSplit,
                                             .pairing_out = Pairing::kBlockHalfSplit,
                                             .axes_dim = {16, 16}});
  for (const bool compares : {false, true}) {
    uint64_t seed = 0;
    const auto turns = [&](const RandomMove& random) {
      return Supports(random.job()) && random.move().planes->front().plan != nullptr;
    };
    while (!turns(RandomMove(seed, compares))) ++seed;
    const RandomMove random(seed, compares);
    MoveJob job = random.move();
    std::vector<MovePlane> planes = *job.planes;
    planes[0].plan = planes[0].from_plan = blocks.get();
    job.planes = &planes;
    EXPECT_FALSE(Supports(job)) << compares;
  }
}

TEST(KeyItemsTest, LayersThatShareASpecAreOneLaunch) {
  for (const KeyCode code : kKeyCodes) {
    const auto plan = testing::MakeHandPlan({.pairs = 32});
    KeyForm form{.code = code, .pages = 4, .page_size = 2, .heads = 2, .head_dim = 64};
    form.group_lanes = 64;
    form.lane_bytes = UnitBytes(code);
    form.head_bytes = form.bytes_from = form.lanes_bytes();
    form.slot_bytes = 2 * form.head_bytes;
    form.page_bytes = 2 * form.slot_bytes;
    const std::vector<KeyForm> forms = {form};
    MoveTokens tokens{.from_slots = {1, 4}, .to_slots = {1, 4}};
    tokens.from_positions = {7, 9};
    tokens.to_positions = {107, 109};
    const std::vector<MoveTokens> groups = {tokens};
    std::vector<std::byte> pool(static_cast<size_t>(32 * 4 * form.page_bytes));
    std::vector<MovePlane> planes;
    for (int64_t layer = 0; layer < 32; ++layer) {
      MovePlane plane{.plan = plan.get(), .from_plan = plan.get()};
      plane.offset = plane.to_offset = layer * 4 * form.page_bytes;
      planes.push_back(plane);
    }
    MoveJob move{.mode = MoveMode::kMove, .forms = &forms, .groups = &groups, .planes = &planes};
    move.pools = {pool.data()};
    EXPECT_EQ(testing::RunOnHostGrid({move}), 1) << Name(code);
    const JobBytes bytes = BytesOf(move);
    EXPECT_EQ(bytes.written, 32 * 2 * 2 * form.lanes_bytes());
    EXPECT_EQ(bytes.read, bytes.written);
  }
}

// Whichever jobs they are of: who sees a position also finds the keys of all layers.
TEST(KeyItemsTest, PositionsOfSlotsAreWrittenLast) {
  int several = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    RandomMove first(seed), second(seed + 1000);
    Arena arena;
    LaunchList list;
    int moves_with_positions = 0;
    for (RandomMove* const random : {&first, &second}) {
      if (!Supports(random->job())) continue;
      testing::AddWhereTheyLie(random->job(), 5, list, arena);
      for (const MoveTokens& tokens : *random->move().groups) {
        moves_with_positions += tokens.slot_positions.has_value() && tokens.count() > 0;
      }
    }
    const std::vector<Launch> launches = list.Finish(arena, nullptr);
    for (size_t i = 0; i < launches.size(); ++i) {
      const bool last = i + 1 == launches.size() && moves_with_positions > 0;
      EXPECT_EQ(launches[i].kernel.op == Op::kSlotPositions, last) << seed;
    }
    several += moves_with_positions > 1;
  }
  EXPECT_GT(several, 10);
}

// The longest that kernels take, and the shortest, in words of 16 bytes and of 2.
TEST(KeyItemsTest, HeadsOfAnyLengthHaveTheReferencesBytes) {
  constexpr int64_t kHeads = 3;
  for (const KeyCode code : kKeyCodes) {
    for (const int64_t head_dim : {64, 512, 1024}) {
      const int64_t count = head_dim == 64 ? 200 : 5;  // of the shortest, more than a block takes
      KeyForm form{.code = code, .pages = 1, .page_size = count, .heads = kHeads};
      form.head_dim = form.group_lanes = head_dim;
      form.lane_bytes = UnitBytes(code);
      form.scaled_rows = code == KeyCode::kInt8;
      form.bytes_from = form.lanes_bytes() + (form.scaled_rows ? 4 : 0);
      form.head_bytes = AlignUp(form.bytes_from, 16);
      form.slot_bytes = kHeads * form.head_bytes;
      form.page_bytes = count * form.slot_bytes;
      form.scales = {form.lanes_bytes(), form.page_bytes, form.slot_bytes, form.head_bytes};
      const auto plan = testing::MakeHandPlan({.pairs = head_dim / 2});
      const std::vector<KeyForm> forms = {form};
      MoveTokens tokens;
      for (int64_t t = 0; t < count; ++t) {
        tokens.from_slots.push_back(count - 1 - t);
        tokens.from_positions.push_back(t);
        tokens.to_positions.push_back(t * 5000);
      }
      tokens.to_slots = tokens.from_slots;
      const std::vector<MoveTokens> groups = {tokens};
      for (const int64_t at : {0, 2}) {
        const std::vector<MovePlane> planes = {
            {.plan = plan.get(), .from_plan = plan.get(), .offset = at, .to_offset = at}};
        Tensor want(Dtype::kFloat64, (form.page_bytes + 16) / 8);
        for (int64_t i = 0; i < want.size_bytes(); ++i) want.data()[i] = std::byte(i * 7 % 56);
        Tensor got = want;
        MoveJob move{
            .mode = MoveMode::kMove, .forms = &forms, .groups = &groups, .planes = &planes};
        move.pools = {want.data()};
        ASSERT_TRUE(cpu::MakeCpuBackend({cpu::Target::kScalar, 1})->Run({Job(move)}).ok());
        move.pools = {got.data()};
        ASSERT_TRUE(Supports(move)) << Name(code);
        testing::RunOnHostGrid({Job(move)});
        ExpectSameBytes({want}, {got}, StrCat(Name(code), ", ", head_dim, " lanes at ", at));
        if (HasFatalFailure()) return;
      }
    }
  }
}

class LimitsTest : public ::testing::Test {
 protected:
  // Of a move of one token in place, `at` bytes into a pool.
  Through WayOf(const KeyForm& form, int64_t pairs, int64_t at = 0,
                Pairing pairing = Pairing::kHalfSplit) {
    const auto plan = testing::MakeHandPlan({.pairs = pairs,
                                             .tail = form.head_dim - 2 * pairs,
                                             .pairing = pairing,
                                             .pairing_out = pairing});
    const std::vector<KeyForm> forms = {form};
    const std::vector<MoveTokens> groups = {
        {.from_slots = {0}, .to_slots = {0}, .from_positions = {0}, .to_positions = {9}}};
    MovePlane plane{.plan = plan.get(), .from_plan = plan.get()};
    plane.offset = plane.to_offset = at;
    const std::vector<MovePlane> planes = {plane};
    MoveJob move{.mode = MoveMode::kMove, .forms = &forms, .groups = &groups, .planes = &planes};
    move.pools = {pool_};
    const auto ways = WaysOf(move);
    EXPECT_EQ(ways.size(), 1u);
    return std::get<1>(ways.begin()->first);
  }
  bool SupportsWith(const KeyForm& form, int64_t pairs, MoveMode mode = MoveMode::kMove) {
    const auto plan = testing::MakeHandPlan({.pairs = pairs, .tail = form.head_dim - 2 * pairs});
    const std::vector<KeyForm> forms = {form};
    const std::vector<MoveTokens> groups = {MoveTokens()};
    const std::vector<MovePlane> planes = {{.plan = plan.get(), .from_plan = plan.get()}};
    MoveJob move{.mode = mode, .forms = &forms, .groups = &groups, .planes = &planes};
    move.pools = {pool_};
    return Supports(move);
  }
  static KeyForm Dense(KeyCode code, int64_t head_dim) {
    KeyForm form{.code = code, .pages = 1, .page_size = 1, .heads = 1, .head_dim = head_dim};
    form.group_lanes = head_dim;
    form.lane_bytes = UnitBytes(code);
    form.head_bytes = form.bytes_from = form.lanes_bytes();
    return form;
  }
  alignas(16) std::byte pool_[16];
};

TEST_F(LimitsTest, DenseAlignedFloatsMoveThroughRegisters) {
  const auto takes_registers = [&](const KeyForm& form, int64_t pairs = 32, int64_t at = 0) {
    return WayOf(form, pairs, at) == Through::kRegisters;
  };
  for (const KeyCode code : kKeyCodes) {
    EXPECT_EQ(takes_registers(Dense(code, 64)), IsFloat(code)) << Name(code);
  }
  const KeyForm bf16 = Dense(KeyCode::kBFloat16, 64);
  EXPECT_TRUE(takes_registers(bf16, 8));
  EXPECT_FALSE(takes_registers(bf16, 4));
  EXPECT_FALSE(takes_registers(Dense(KeyCode::kFloat8E4M3, 64), 8));
  EXPECT_TRUE(takes_registers(bf16, 32, 16));
  EXPECT_FALSE(takes_registers(bf16, 32, 8));
  KeyForm form = bf16;
  form.hadamard = 32;
  EXPECT_FALSE(takes_registers(form));
  form = bf16;
  form.group_lanes = 8;
  form.group_bytes = 32;
  EXPECT_FALSE(takes_registers(form));
  form = bf16;
  form.heads = 2;
  EXPECT_TRUE(takes_registers(form));
  form.head_bytes += 8;
  EXPECT_FALSE(takes_registers(form));
  form = Dense(KeyCode::kFloat8E5M2, 64);
  form.scaled_rows = true;
  EXPECT_FALSE(takes_registers(form));
}

TEST_F(LimitsTest, RowsWithScalesThatRotateWhollyMoveThroughRegisters) {
  const auto takes_registers = [&](const KeyForm& form, int64_t pairs, int64_t at = 0,
                                   Pairing pairing = Pairing::kHalfSplit) {
    return WayOf(form, pairs, at, pairing) == Through::kScaledRegisters;
  };
  const KeyForm q8 = Dense(KeyCode::kQ8_0, 128);
  EXPECT_TRUE(takes_registers(q8, 64));
  EXPECT_TRUE(takes_registers(q8, 32));
  EXPECT_FALSE(takes_registers(q8, 48));  // a block has first and second lanes
  EXPECT_TRUE(takes_registers(q8, 48, 0, Pairing::kInterleaved));
  EXPECT_FALSE(takes_registers(q8, 40, 0, Pairing::kInterleaved));
  EXPECT_TRUE(takes_registers(q8, 64, 2));
  EXPECT_FALSE(takes_registers(q8, 64, 1));
  KeyForm form = q8;
  form.hadamard = 64;
  EXPECT_FALSE(takes_registers(form, 64));
  for (const KeyCode code : {KeyCode::kInt8, KeyCode::kFloat8E4M3, KeyCode::kFloat8E5M2}) {
    form = Dense(code, 64);
    EXPECT_FALSE(takes_registers(form, 32)) << Name(code);
    form.scaled_rows = true;
    EXPECT_TRUE(takes_registers(form, 32)) << Name(code);
    EXPECT_FALSE(takes_registers(form, 16)) << Name(code);
    EXPECT_TRUE(takes_registers(form, 32, 8)) << Name(code);
    EXPECT_FALSE(takes_registers(form, 32, 4)) << Name(code);
    form.scales.offset = 2;
    EXPECT_FALSE(takes_registers(form, 32)) << Name(code);
    form = Dense(code, 48);
    form.scaled_rows = true;
    EXPECT_FALSE(takes_registers(form, 24)) << Name(code);
  }
}

TEST_F(LimitsTest, RefusesWhatNoKernelDoes) {
  const KeyForm form = Dense(KeyCode::kFloat32, 2048);
  EXPECT_TRUE(SupportsWith(form, kMostKeyLanes / 2));
  EXPECT_FALSE(SupportsWith(form, kMostKeyLanes / 2 + 1));
  EXPECT_FALSE(SupportsWith(form, 8, MoveMode::kCompare));
  EXPECT_TRUE(SupportsWith(Dense(KeyCode::kFloat32, kMostKeyLanes), 8, MoveMode::kCompare));
  KeyForm rows = Dense(KeyCode::kFloat16, 64);
  rows.heads = (int64_t{1} << 24) / 128;
  EXPECT_FALSE(SupportsWith(rows, 8));
  --rows.heads;
  EXPECT_TRUE(SupportsWith(rows, 8));
}

// Lanes of two bytes, apart in two ways, at odd addresses.
TEST_F(LimitsTest, RefusesLanesApartInTwoWaysThatAreMisaligned) {
  KeyForm form = Dense(KeyCode::kFloat16, 64);
  form.group_lanes = 8;
  form.lane_bytes = 4;
  form.group_bytes = 32;
  EXPECT_TRUE(SupportsWith(form, 8));
  form.group_bytes = 33;
  EXPECT_FALSE(SupportsWith(form, 8));
}

}  // namespace
}  // namespace phasor::cuda
