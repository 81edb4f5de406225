// SPDX-License-Identifier: Apache-2.0
// Moves of keys in GPU memory, over TCP and a Unix socket: bytes, slot positions and differences
// must equal those of calls in process. The GPU is a fake; this has not run on hardware.
#include <cstring>
#include <vector>

#include "gmock/gmock.h"
#include "tests/e2e/device_server.h"
#include "tests/support/status_matchers.h"

namespace phasor {
namespace {

using ::phasor::testing::IsOk;
using ::phasor::testing::kInvalid;
using ::phasor::testing::StatusIs;
using ::testing::HasSubstr;

constexpr int64_t kDevicePages = 12, kDevicePageSize = 4;
constexpr int64_t kDeviceSlots = kDevicePages * kDevicePageSize;
constexpr int64_t kDeviceLayerBytes = kDeviceSlots * 2 * 64 * 2;  // 2 heads of 64, bfloat16
constexpr int64_t kDeviceLayers = 3;
constexpr int64_t kDevicePositionsAt = kDeviceLayers * kDeviceLayerBytes;
constexpr int64_t kDevicePoolBytes = kDevicePositionsAt + 4 * kDeviceSlots;

class ClientDeviceMoveTest : public ClientDeviceTest {
 protected:
  // Moves 10 tokens of three layers from position 500 on to 3 on. Its one pool holds the positions
  // of all slots, too. Copies go from pages 1, 5 and 2 to pages 7, 8 and 11.
  static MoveCall KeysCall(KeyPool pool, MoveMode mode) {
    MoveCall call{.pools = {pool}, .mode = mode};
    call.layouts = {{.name = "nhd",
                     .pages = kDevicePages,
                     .page_size = kDevicePageSize,
                     .heads = 2,
                     .head_dim = 64}};
    call.specs = {{.spec = kLlama}};
    for (int64_t i = 0; i < kDeviceLayers; ++i) {
      call.layers.push_back({.spec = 0, .place = {0, i * kDeviceLayerBytes}});
    }
    KeyRun run{.block_table = {1, 5, 2}, .count = 10, .from = 500, .to = 3};
    if (mode != MoveMode::kMove) run.to_block_table = {7, 8, 11};
    call.groups = {{.runs = {run}, .slot_positions = KeyPlace{0, kDevicePositionsAt}}};
    return call;
  }
  static int64_t SlotOfToken(int64_t t, std::vector<int64_t> pages) {
    return pages[static_cast<size_t>(t / kDevicePageSize)] * kDevicePageSize + t % kDevicePageSize;
  }
  // Keys, and positions from 500 on of the tokens.
  static std::vector<std::byte> Keys() {
    std::vector<std::byte> keys(kDevicePoolBytes);
    for (size_t i = 0; i < kDevicePositionsAt; ++i) {
      keys[i] = static_cast<std::byte>(i % 2 == 1 ? 0x3F : i * 7 % 251);
    }
    for (int64_t t = 0; t < 10; ++t) {
      SetPosition(keys, SlotOfToken(t, {1, 5, 2}), static_cast<uint32_t>(500 + t));
    }
    return keys;
  }
  static void SetPosition(std::vector<std::byte>& keys, int64_t slot, uint32_t position) {
    std::memcpy(keys.data() + kDevicePositionsAt + 4 * slot, &position, 4);
  }
  void Store(const std::vector<std::byte>& keys) const {
    std::memcpy(data() + kPoolAt, keys.data(), keys.size());
  }
  std::vector<std::byte> Stored() const {
    return {data() + kPoolAt, data() + kPoolAt + kDevicePoolBytes};
  }
  static constexpr int64_t kPoolAt = 256;  // in the registered memory
};

TEST_F(ClientDeviceMoveTest, EveryModeHasTheBytesOfThatInProcess) {
  for (const Client& client : {tcp_, unix_}) {
    const DeviceMemory memory = Register(client, Allocation());
    std::vector<std::byte> here = Keys();
    Store(here);
    for (const MoveMode mode : {MoveMode::kCopyOnWrite, MoveMode::kCompare, MoveMode::kMove}) {
      const auto want = here_.MoveKeys(KeysCall(absl::MakeSpan(here), mode));
      ASSERT_THAT(want, IsOk());
      const auto got = client.MoveKeys(KeysCall(memory.Pool(kPoolAt), mode));
      ASSERT_THAT(got, IsOk());
      EXPECT_EQ(got->info.backend, "cuda");
      EXPECT_EQ(Stored() == here, true) << static_cast<int>(mode);
      EXPECT_EQ(got->tokens, 10);
      EXPECT_EQ(got->moved_bytes, want->moved_bytes);
      EXPECT_EQ(got->specs, want->specs);
      ASSERT_EQ(got->differences.size(), want->differences.size());
      for (size_t i = 0; i < want->differences.size(); ++i) {
        EXPECT_EQ(got->differences[i].bad_rows, 0);
        EXPECT_EQ(got->differences[i].reference_rms, want->differences[i].reference_rms);
        EXPECT_GT(got->differences[i].reference_rms, 0);
      }
    }
    uint32_t position = 0;
    std::memcpy(&position, Stored().data() + kDevicePositionsAt + 4 * SlotOfToken(9, {1, 5, 2}), 4);
    EXPECT_EQ(position, 12u);
  }
}

TEST_F(ClientDeviceMoveTest, ARepeatedMoveDoesWhatIsLeft) {
  const DeviceMemory memory = Register(tcp_, Allocation());
  std::vector<std::byte> here = Keys();
  ASSERT_THAT(here_.MoveKeys(KeysCall(absl::MakeSpan(here), MoveMode::kMove)), IsOk());
  std::vector<std::byte> half = here;  // the first 4 tokens are done
  const std::vector<std::byte> before = Keys();
  for (int64_t t = 4; t < 10; ++t) {
    const int64_t slot = SlotOfToken(t, {1, 5, 2});
    for (int64_t layer = 0; layer < kDeviceLayers; ++layer) {
      const int64_t at = layer * kDeviceLayerBytes + slot * 256;
      std::memcpy(half.data() + at, before.data() + at, 256);
    }
    SetPosition(half, slot, static_cast<uint32_t>(500 + t));
  }
  Store(half);
  for (const int64_t left : {6, 0}) {
    const auto moved = tcp_.MoveKeys(KeysCall(memory.Pool(kPoolAt), MoveMode::kMove));
    ASSERT_THAT(moved, IsOk());
    EXPECT_EQ(moved->tokens, left);
    EXPECT_EQ(Stored() == here, true);
  }
}

TEST_F(ClientDeviceMoveTest, AnotherPositionIsRefusedAndNothingChanges) {
  const DeviceMemory memory = Register(tcp_, Allocation());
  std::vector<std::byte> keys = Keys();
  SetPosition(keys, SlotOfToken(6, {1, 5, 2}), 77);
  Store(keys);
  EXPECT_THAT(tcp_.MoveKeys(KeysCall(memory.Pool(kPoolAt), MoveMode::kMove)),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("item.groups[0].slot_positions: slot 22 has position 77; must be "
                                 "506 before the move, or 9 after it")));
  EXPECT_EQ(Stored() == keys, true);
}

TEST_F(ClientDeviceMoveTest, AComparisonNamesTheFirstBadRow) {
  const DeviceMemory memory = Register(tcp_, Allocation());
  Store(Keys());
  ASSERT_THAT(tcp_.MoveKeys(KeysCall(memory.Pool(kPoolAt), MoveMode::kCopyOnWrite)), IsOk());
  std::vector<std::byte> copied = Stored();
  // Head 1 of token 7 in layer 2.
  const int64_t slot = SlotOfToken(7, {7, 8, 11});
  copied[static_cast<size_t>(2 * kDeviceLayerBytes + slot * 256 + 128 + 3)] = std::byte{0x47};
  Store(copied);
  const auto there = tcp_.MoveKeys(KeysCall(memory.Pool(kPoolAt), MoveMode::kCompare));
  const auto here = here_.MoveKeys(KeysCall(absl::MakeSpan(copied), MoveMode::kCompare));
  ASSERT_THAT(there, IsOk());
  ASSERT_THAT(here, IsOk());
  for (size_t i = 0; i < 3; ++i) {
    const KeyDifference &got = there->differences[i], &want = here->differences[i];
    EXPECT_EQ(got.bad_rows, i == 2 ? 1 : 0);
    EXPECT_EQ(got.first_bad_token, i == 2 ? 7 : -1);
    EXPECT_EQ(got.first_bad_slot, i == 2 ? slot : -1);
    EXPECT_EQ(got.first_bad_head, i == 2 ? 1 : -1);
    EXPECT_EQ(got.max_abs, want.max_abs);
    EXPECT_EQ(got.rms, want.rms);
  }
}

TEST_F(ClientDeviceMoveTest, BatchesAndStreamsTakePoolsOnTheDevice) {
  const DeviceMemory memory = Register(tcp_, Allocation());
  std::vector<std::byte> here = Keys();
  ASSERT_THAT(here_.MoveKeys(KeysCall(absl::MakeSpan(here), MoveMode::kCopyOnWrite)), IsOk());
  Store(Keys());
  const auto copied = tcp_.BatchMoveKeys({KeysCall(memory.Pool(kPoolAt), MoveMode::kCopyOnWrite)});
  ASSERT_THAT(copied, IsOk());
  EXPECT_THAT((*copied)[0], IsOk());
  EXPECT_EQ(Stored() == here, true);
  const auto stream = tcp_.StreamMoveKeys();
  ASSERT_THAT(stream->Write(1, KeysCall(memory.Pool(kPoolAt), MoveMode::kCompare)), IsOk());
  const auto compared = stream->Read();
  ASSERT_TRUE(compared.has_value());
  ASSERT_THAT(compared->result, IsOk());
  EXPECT_EQ(compared->result->differences[2].bad_rows, 0);
  EXPECT_THAT(stream->Finish(), IsOk());
}

TEST_F(ClientDeviceMoveTest, WhatIsNotRegisteredHereIsRefusedByItsField) {
  DeviceMemory memory = Register(tcp_, Allocation());
  const MoveCall call = KeysCall(memory.Pool(kPoolAt), MoveMode::kMove);
  EXPECT_THAT(unix_.MoveKeys(call), StatusIs(kInvalid, HasSubstr("item.pools[0]: memory of a GPU; "
                                                                 "must be registered with this")));
  EXPECT_THAT(here_.MoveKeys(call), StatusIs(kInvalid, HasSubstr("item.pools[0]: memory of a GPU; "
                                                                 "must be of the host")));
  EXPECT_THAT(
      tcp_.MoveKeys(KeysCall(memory.Pool(memory.size() + 1), MoveMode::kMove)),
      StatusIs(kInvalid, HasSubstr("item.pools[0].device.offset_bytes: 1040385; must be in")));
  MoveCall mixed = call;
  std::vector<std::byte> more(64);
  mixed.pools.push_back(absl::MakeSpan(more));
  EXPECT_THAT(tcp_.MoveKeys(mixed),
              StatusIs(kInvalid, HasSubstr("item.pools[1]: host memory, pools[0] is device")));
  ASSERT_THAT(memory.Release(), IsOk());
  EXPECT_THAT(tcp_.MoveKeys(call), StatusIs(absl::StatusCode::kFailedPrecondition,
                                            HasSubstr("item.pools[0]: memory of a GPU that was")));
}

}  // namespace
}  // namespace phasor
