// SPDX-License-Identifier: Apache-2.0
// Allocations of other processes: opening, copies, addresses, and the loss of the device.
#include "kernels/cuda/device_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/support/fake_driver.h"

namespace phasor::cuda {
namespace {

using testing::FakeDevice;
using testing::FakeDriver;
using ::testing::HasSubstr;

struct MemoryFixture {
  MemoryFixture()
      : life({.retry = true, .first_wait = std::chrono::milliseconds(0)},
             [this] { return driver.Reset(); }) {}

  void Lose() { life.Note(absl::UnavailableError("lost")); }

  std::shared_ptr<FakeDevice> device = std::make_shared<FakeDevice>();
  FakeDriver driver{device};
  DeviceLife life;
  DeviceMemory memory{&driver, &life};
};

TEST(DeviceMemoryTest, KnowsWhereAddressesLead) {
  MemoryFixture f;
  const auto exported = f.device->Export(8192);
  const std::byte* const begin = exported->device_view();
  EXPECT_EQ(f.memory.PlaceOf(begin), Place::kHost) << "not open yet";
  auto allocation = *f.memory.Open(exported->handle());
  EXPECT_EQ(allocation->data(), begin);
  EXPECT_EQ(allocation->bytes(), 8192);
  EXPECT_EQ(f.memory.PlaceOf(begin), Place::kDevice);
  EXPECT_EQ(f.memory.PlaceOf(begin + 8191), Place::kDevice);
  EXPECT_EQ(f.memory.PlaceOf(begin + 8192), Place::kHost);
  EXPECT_EQ(f.memory.PlaceOf(begin - 1), Place::kHost);
  EXPECT_EQ(f.memory.PlaceOf(nullptr), Place::kHost);
  allocation.reset();
  EXPECT_EQ(f.memory.PlaceOf(begin), Place::kHost);
}

TEST(DeviceMemoryTest, HoldsRangesThatMeetAnAllocation) {
  MemoryFixture f;
  const auto exported = f.device->Export(8192);
  const std::byte* const begin = exported->device_view();
  EXPECT_FALSE(f.memory.Holds(begin, 8192)) << "not open yet";
  auto allocation = *f.memory.Open(exported->handle());
  EXPECT_TRUE(f.memory.Holds(begin, 1));
  EXPECT_TRUE(f.memory.Holds(begin + 8191, 1));
  EXPECT_TRUE(f.memory.Holds(begin - 1, 2));
  EXPECT_TRUE(f.memory.Holds(begin - 10, 10000));
  EXPECT_FALSE(f.memory.Holds(begin - 10, 10));
  EXPECT_FALSE(f.memory.Holds(begin + 8192, 10));
  f.Lose();
  EXPECT_TRUE(f.memory.Holds(begin, 1)) << "calls may know its addresses";
  allocation.reset();
  EXPECT_FALSE(f.memory.Holds(begin, 1));
}

TEST(DeviceMemoryTest, ReadsAtAnAddressUntilTheDeviceIsLost) {
  MemoryFixture f;
  const auto exported = f.device->Export(8192);
  const auto allocation = *f.memory.Open(exported->handle());
  exported->data()[4097] = std::byte{9};
  std::byte read[2] = {};
  const std::byte* const from = allocation->data() + 4096;
  ASSERT_TRUE(f.memory.Read(from, 2, read).ok());
  EXPECT_EQ(read[1], std::byte{9});
  EXPECT_FALSE(f.memory.Read(nullptr, 2, read).ok()) << "no open memory";
  f.Lose();
  EXPECT_TRUE(absl::IsAborted(f.memory.Read(from, 2, read)));
}

TEST(DeviceMemoryTest, OpensAHandleOnceAndClosesItAfterTheLastUser) {
  MemoryFixture f;
  const auto exported = f.device->Export(4096);
  auto first = *f.memory.Open(exported->handle());
  auto second = *f.memory.Open(exported->handle());
  EXPECT_EQ(first, second);
  EXPECT_EQ(f.device->calls("OpenIpc"), 1);
  first.reset();
  EXPECT_EQ(f.device->open_mappings(), 1);
  second.reset();
  EXPECT_EQ(f.device->open_mappings(), 0);
  ASSERT_TRUE(f.memory.Open(exported->handle()).ok());
  EXPECT_EQ(f.device->calls("OpenIpc"), 2);
}

// Their mappings overlap, because each reaches to the end of the block.
TEST(DeviceMemoryTest, AllocationsOfOneBlockAreOpenAtOnce) {
  MemoryFixture f;
  const auto block = f.device->Export(8192);
  const std::byte* const begin = block->device_view();
  auto first = f.memory.Open(block->HandleAt(0));
  const auto second = f.memory.Open(block->HandleAt(4096));
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ((*second)->data(), begin + 4096);
  EXPECT_EQ((*second)->bytes(), 4096);
  first = absl::CancelledError();
  EXPECT_EQ(f.memory.PlaceOf(begin), Place::kHost);
  EXPECT_EQ(f.memory.PlaceOf(begin + 4096), Place::kDevice);
  block->data()[4097] = std::byte{9};
  std::byte read[2] = {};
  ASSERT_TRUE((*second)->Read(0, 2, read).ok());
  EXPECT_EQ(read[1], std::byte{9});
  EXPECT_EQ(f.device->open_mappings(), 1);
}

TEST(DeviceMemoryTest, CopiesBothWays) {
  MemoryFixture f;
  const auto exported = f.device->Export(4096);
  const auto allocation = *f.memory.Open(exported->handle());
  const std::string text = "what the client wrote";
  std::memcpy(exported->data() + 100, text.data(), text.size());
  std::string read(text.size(), '?');
  const auto bytes = static_cast<int64_t>(text.size());
  ASSERT_TRUE(allocation->Read(100, bytes, reinterpret_cast<std::byte*>(read.data())).ok());
  EXPECT_EQ(read, text);
  ASSERT_TRUE(
      allocation->Write(4096 - bytes, bytes, reinterpret_cast<const std::byte*>(text.data())).ok());
  EXPECT_EQ(std::memcmp(exported->data() + 4096 - bytes, text.data(), text.size()), 0);
  EXPECT_TRUE(allocation->Read(4096, 0, nullptr).ok());
  EXPECT_TRUE(allocation->Write(4096, 0, nullptr).ok());
  EXPECT_EQ(f.device->calls("CopyToHost") + f.device->calls("CopyToDevice"), 2) << "of something";
}

TEST(DeviceMemoryTest, RefusesHandlesThatTheDriverDoesNotKnow) {
  MemoryFixture f;
  EXPECT_EQ(f.memory.Open(IpcHandle{}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(f.life.working());
}

TEST(DeviceMemoryTest, ARefusedCopyMayBeTriedAgainALostDeviceNot) {
  MemoryFixture f;
  const auto exported = f.device->Export(4096);
  const auto allocation = *f.memory.Open(exported->handle());
  std::byte byte{};
  // Synchronize tells of copies that were queued.
  for (const auto& [failing, code] : {std::pair("CopyToHost", absl::StatusCode::kInternal),
                                      {"Synchronize", absl::StatusCode::kInternal},
                                      {"Synchronize", absl::StatusCode::kUnavailable}}) {
    f.device->FailWith(
        [&, name = std::string(failing), code = code](const std::string& call, int64_t) {
          return call == name ? absl::Status(code, "fault") : absl::OkStatus();
        });
    const absl::Status read = allocation->Read(0, 1, &byte);
    const bool lost = code == absl::StatusCode::kUnavailable;
    EXPECT_EQ(read.code(), lost ? absl::StatusCode::kAborted : absl::StatusCode::kUnavailable);
    EXPECT_EQ(allocation->usable(), !lost);
  }
}

TEST(DeviceMemoryTest, MemoryOfALostContextIsGoneAndNeverAnotherAllocations) {
  MemoryFixture f;
  const auto exported = f.device->Export(4096);
  auto before = *f.memory.Open(exported->handle());
  f.Lose();
  EXPECT_FALSE(before->usable());
  EXPECT_EQ(f.memory.PlaceOf(before->data()), Place::kGone);
  std::byte byte{};
  EXPECT_EQ(before->Read(0, 1, &byte).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(f.memory.Open(exported->handle()).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(f.life.context(), 0) << "whoever opens does not wait for a fresh context";
  EXPECT_TRUE(f.life.Enter());
  // The fresh context maps it at the same address, which a call may still be using.
  const auto refused = f.memory.Open(exported->handle());
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("calls still hold"));
  EXPECT_EQ(f.life.context(), 1);
  EXPECT_EQ(f.memory.PlaceOf(before->data()), Place::kGone);
  EXPECT_EQ(before->Read(0, 1, &byte).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(before->Write(0, 1, &byte).code(), absl::StatusCode::kAborted);
  before.reset();
  EXPECT_EQ(f.device->open_mappings(), 0) << "one ended with its context, one was refused";
  const auto after = *f.memory.Open(exported->handle());
  EXPECT_EQ(f.memory.PlaceOf(after->data()), Place::kDevice);
}

TEST(DeviceMemoryTest, ManyOpenAndCloseAtOnce) {
  MemoryFixture f;
  const auto exported = f.device->Export(4096);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < 200; ++n) {
        const auto allocation = f.memory.Open(exported->handle());
        ASSERT_TRUE(allocation.ok());
        ASSERT_EQ(f.memory.PlaceOf((*allocation)->data()), Place::kDevice);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(f.device->open_mappings(), 0);
}

}  // namespace
}  // namespace phasor::cuda
