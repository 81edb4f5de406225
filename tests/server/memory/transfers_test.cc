// SPDX-License-Identifier: Apache-2.0
// Tests copies from and to a device that an item is not computed on, and what becomes of items
// whose named regions were taken away.
#include "server/memory/transfers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <string>
#include <vector>

#include "tests/support/device_backend.h"
#include "tests/support/device_backends.h"
#include "tests/support/shared_memory.h"
#include "tests/support/status_matchers.h"

namespace phasor::memory {
namespace {

using ::phasor::testing::IsOk;
using ::phasor::testing::kInvalid;
using ::phasor::testing::SharedMemory;
using ::phasor::testing::StatusIs;
using ::testing::HasSubstr;

class TransfersTest : public ::testing::Test {
 protected:
  static std::shared_ptr<const Region> Open(const SharedMemory& memory) {
    return *Region::Open({memory.key(), 0, static_cast<int64_t>(memory.bytes().size())}, {});
  }
  std::shared_ptr<DeviceRegion> OnDevice() {
    return *DeviceRegion::Open({.handle = export_->handle(), .offset = 1, .bytes = 9},
                               gpu_.backend().devices(), {});
  }
  // Items of one input and one output.
  static std::vector<engine::Item> Items(size_t count) {
    engine::Item item;
    item.inputs.resize(1);
    item.outputs.resize(1);
    return std::vector<engine::Item>(count, item);
  }
  // A result of so many items, whose only outputs are `bytes`, one after another.
  engine::Result ResultOf(size_t items, const std::string& bytes) {
    engine::Result result;
    result.buffer = pool_.Get(static_cast<int64_t>(bytes.size()));
    std::memcpy(result.buffer->data(), bytes.data(), bytes.size());
    const auto each = static_cast<int64_t>(bytes.size() / items);
    for (size_t i = 0; i < items; ++i) {
      result.items.emplace_back().outputs = {{static_cast<int64_t>(i) * each, each}};
    }
    return result;
  }

  testing::DeviceBackends gpu_{1, testing::DeviceBackend::Options()};
  const std::shared_ptr<testing::FakeExport> export_ = gpu_.device(0).Export(4096);
  engine::BufferPool pool_{1 << 20};
  Transfers transfers_;
};

TEST_F(TransfersTest, InputsAreReadAndOutputsWritten) {
  const auto region = OnDevice();
  const std::string text = "123456789";
  ASSERT_THAT(region->Write(0, 9, reinterpret_cast<const std::byte*>(text.data())), IsOk());
  transfers_.AddInput(0, 0, {region, 1, 3});
  transfers_.AddOutput(0, 0, {region, 5, 2});
  EXPECT_EQ(transfers_.bytes(), 5);
  std::vector<engine::Item> items = Items(1);
  ASSERT_THAT(transfers_.Fetch(pool_, absl::MakeSpan(items)), IsOk());
  ASSERT_EQ(PieceBytes(items[0].inputs[0].bytes), 3);
  EXPECT_EQ(std::memcmp(items[0].inputs[0].bytes[0].data(), "234", 3), 0);
  engine::Result result = ResultOf(1, "XY");
  transfers_.Store(result);
  EXPECT_TRUE(result.items[0].status.ok());
  std::string after(9, '?');
  ASSERT_THAT(region->Read(0, 9, reinterpret_cast<std::byte*>(after.data())), IsOk());
  EXPECT_EQ(after, "12345XY89");
}

TEST_F(TransfersTest, AnItemThatFailedWritesNothing) {
  const auto region = OnDevice();
  transfers_.AddOutput(0, 0, {region, 0, 2});
  engine::Result result = ResultOf(1, "XY");
  result.items[0].status = absl::InvalidArgumentError("no");
  transfers_.Store(result);
  std::string after(2, '?');
  ASSERT_THAT(region->Read(0, 2, reinterpret_cast<std::byte*>(after.data())), IsOk());
  EXPECT_NE(after, "XY");
}

TEST_F(TransfersTest, AnItemWhoseMemoryIsGoneFailsAlone) {
  const SharedMemory memory("0123456789"), short_memory("abcdef");
  transfers_.AddRegion(0, Open(short_memory), "items[0]");
  transfers_.AddRegion(1, Open(memory), "items[1]");
  short_memory.Resize(3);
  std::vector<engine::Item> items = Items(2);
  ASSERT_THAT(transfers_.Fetch(pool_, absl::MakeSpan(items)), IsOk());
  EXPECT_THAT(items[0].status, StatusIs(kInvalid, HasSubstr("items[0]: ")));
  EXPECT_TRUE(items[1].status.ok());
}

TEST_F(TransfersTest, MemoryThatWasShrunkDuringTheCallFailsItAndInPlaceAbortsIt) {
  const SharedMemory memory("0123456789");
  transfers_.AddRegion(0, Open(memory), "items[0].out");
  transfers_.AddRegion(1, Open(memory), "items[1].out");
  std::atomic<bool> dirty = false;
  transfers_.NoteInPlace(1, &dirty);
  std::vector<engine::Item> items = Items(2);
  ASSERT_THAT(transfers_.Fetch(pool_, absl::MakeSpan(items)), IsOk());
  memory.Resize(4);
  engine::Result result = ResultOf(2, "XYZW");
  transfers_.Store(result);
  EXPECT_THAT(result.items[0].status, StatusIs(kInvalid, HasSubstr("items[0].out: ")));
  EXPECT_THAT(result.items[1].status,
              StatusIs(absl::StatusCode::kAborted, HasSubstr("items[1].out: ")));
  EXPECT_TRUE(result.items[0].outputs.empty() && result.items[1].outputs.empty());
  EXPECT_TRUE(dirty) << "device memory that the item changed, too, is neither input nor output";
}

TEST_F(TransfersTest, NoMemoryIsTheAnswerOfTheCall) {
  transfers_.AddInput(0, 0, {OnDevice(), 0, int64_t{1} << 60});
  std::vector<engine::Item> items = Items(1);
  EXPECT_THAT(transfers_.Fetch(pool_, absl::MakeSpan(items)),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("no memory")));
}

}  // namespace
}  // namespace phasor::memory
