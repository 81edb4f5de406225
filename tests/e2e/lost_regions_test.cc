// SPDX-License-Identifier: Apache-2.0
// Tests named regions of a whole server against clients that take their memory away or die.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "tests/e2e/named_regions.h"
#include "tests/support/eventually.h"
#include "tests/support/subprocess.h"

namespace phasor {
namespace {

using Code = grpc::StatusCode;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using testing::Inverted;
using testing::kRegionBytes;
using testing::OpenDescriptors;
using testing::SharedMemory;
using LostRegionsTest = testing::NamedRegionsTest;
using Owner = testing::RegionOwner;

TEST_F(LostRegionsTest, AClientThatCutsItsMemoryShortAfterRegisteringGetsAnError) {
  const SharedMemory memory(std::string(kRegionBytes, 'm'));
  ASSERT_TRUE(me_->Register("r", memory.key(), kRegionBytes).ok());
  memory.Resize(kRegionBytes - 1);
  const grpc::Status status = me_->Invert({"r"}, {"r"});
  EXPECT_EQ(status.error_code(), Code::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("item.tensors[0].tensor: the shared memory was"));
  EXPECT_EQ(memory.bytes(), std::string(kRegionBytes - 1, 'm'));
  ExpectHealthy();
}

TEST_F(LostRegionsTest, AClientThatCutsItsMemoryShortDuringARunGetsAnError) {
  const SharedMemory memory(std::string(2 * kRegionBytes, 'm'));
  ASSERT_TRUE(me_->Register("r", memory.key(), 2 * kRegionBytes).ok());
  for (const bool in_place : {false, true}) {
    memory.Resize(2 * kRegionBytes);
    backend_->Hold();
    const int runs = backend_->runs();
    grpc::Status status;
    std::thread call([&] { status = me_->Invert({"r"}, {"r", in_place ? 0 : kRegionBytes}); });
    backend_->WaitForRuns(runs + 1);
    memory.Resize(kRegionBytes / 2);
    backend_->Release();
    call.join();
    EXPECT_EQ(status.error_code(), in_place ? Code::ABORTED : Code::INVALID_ARGUMENT)
        << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr("shrunk"));
    EXPECT_EQ(memory.bytes().size(), kRegionBytes / 2) << "it did not grow again";
  }
  ExpectHealthy();
}

// What was mapped is gone when the backend touches it.
TEST_F(LostRegionsTest, PagesThatVanishDuringARunFailOnlyTheCallsThatUsedThem) {
  const int64_t page = sysconf(_SC_PAGESIZE);
  const SharedMemory memory(std::string(static_cast<size_t>(2 * page), 'm'));
  ASSERT_TRUE(me_->Register("r", memory.key(), 2 * page).ok());
  for (const bool in_place : {false, true}) {
    backend_->Hold();
    const int runs = backend_->runs();
    grpc::Status status;
    std::thread call([&] { status = me_->Invert({"r", page}, {"r", in_place ? page : 0}); });
    backend_->WaitForRuns(runs + 1);
    memory.Resize(0);
    backend_->Release();
    call.join();
    EXPECT_EQ(status.error_code(), in_place ? Code::ABORTED : Code::INVALID_ARGUMENT)
        << status.error_message();
    EXPECT_TRUE(memory.bytes().empty()) << "it did not grow again";
    ExpectHealthy();
    memory.Resize(2 * page);
    EXPECT_EQ(me_->Invert({"r"}, {"r"}).error_code(), Code::RESOURCE_EXHAUSTED);
    ASSERT_TRUE(me_->Unregister("r").ok());
    ASSERT_TRUE(me_->Register("r", memory.key(), 2 * page).ok());
    EXPECT_TRUE(me_->Invert({"r"}, {"r"}).ok());
  }
}

TEST_F(LostRegionsTest, MemoryMayChangeItsSizeAllTheTime) {
  const SharedMemory memory(std::string(kRegionBytes, 'm'));
  ASSERT_TRUE(me_->Register("r", memory.key(), kRegionBytes).ok());
  std::atomic<bool> stop = false;
  std::thread owner([&] {
    while (!stop) {
      memory.Resize(0);
      memory.Resize(kRegionBytes);
    }
  });
  for (int i = 0; i < 500; ++i) {
    EXPECT_THAT(me_->Invert({"r"}, {"r"}).error_code(),
                AnyOf(Code::OK, Code::INVALID_ARGUMENT, Code::ABORTED, Code::RESOURCE_EXHAUSTED));
    if (i % 10 != 0) continue;  // once lost, a region stays lost
    ASSERT_TRUE(me_->Unregister("r").ok());
    while (me_->Register("r", memory.key(), kRegionBytes).error_code() == Code::INVALID_ARGUMENT) {
    }
  }
  stop = true;
  owner.join();
  ExpectHealthy();
}

TEST_F(LostRegionsTest, AClientMayUnlinkItsMemory) {
  auto memory = std::make_unique<SharedMemory>(std::string(kRegionBytes, 'm'));
  ASSERT_TRUE(me_->Register("r", memory->key(), kRegionBytes).ok());
  const std::string key = memory->key();
  memory.reset();
  std::string answer;
  EXPECT_TRUE(me_->Invert({"r"}, {"r"}).ok());
  EXPECT_TRUE(me_->Invert({"r"}, {}, &answer).ok());
  EXPECT_EQ(answer, std::string(kRegionBytes, 'm')) << "inverted twice";
  EXPECT_EQ(me_->Register("again", key, kRegionBytes).error_code(), Code::NOT_FOUND);
}

// Not a test: what the next one kills.
TEST(LostRegionsOwner, DISABLED_Runs) {
  const char* const address = getenv("PHASOR_OWNER_OF");
  ASSERT_NE(address, nullptr);
  const auto* const memory = new SharedMemory(std::string(kRegionBytes, 'm'));
  const Owner owner(address);
  ASSERT_TRUE(owner.Register("killed", memory->key(), kRegionBytes, 0, false, 10000).ok());
  printf("%s\n", memory->key().c_str());
  fflush(stdout);
  while (true) (void)owner.Invert({"killed"}, {"killed"});
}

TEST_F(LostRegionsTest, AnOwnerThatIsKilledDuringARunLeavesNothing) {
  ASSERT_EQ(setenv("PHASOR_OWNER_OF", Address().c_str(), 1), 0);
  testing::Subprocess owner({"/proc/self/exe", "--gtest_filter=LostRegionsOwner.*",
                             "--gtest_also_run_disabled_tests", "--gtest_brief=1"});
  std::string key;
  while (!key.starts_with("/phasor_test_")) {
    key = owner.ReadLine();
    ASSERT_FALSE(key.empty()) << "the owner has ended";
  }
  EXPECT_TRUE(me_->List().empty()) << "connects";
  const int64_t before = OpenDescriptors();
  const int held = backend_->runs() + 2;  // the next one may have begun already
  backend_->HoldFrom(held);
  backend_->WaitForRuns(held);
  owner.Signal(SIGKILL);
  EXPECT_EQ(owner.Wait(), 128 + SIGKILL);
  backend_->Release();
  EXPECT_EQ(shm_unlink(key.c_str()), 0);
  EXPECT_EQ(me_->Unregister("killed").error_code(), Code::NOT_FOUND) << "it was another's";
  // Forgotten when its second is over: its name is free again.
  const SharedMemory memory(std::string(kRegionBytes, 'n'));
  grpc::Status status;
  const bool forgotten = testing::Eventually([&] {
    status = me_->Register("killed", memory.key(), kRegionBytes);
    if (status.ok()) return true;
    EXPECT_EQ(status.error_code(), Code::ALREADY_EXISTS);
    return false;
  });
  ASSERT_TRUE(forgotten) << status.error_message();
  ASSERT_TRUE(me_->Unregister("killed").ok());
  EXPECT_TRUE(testing::Eventually([&] { return OpenDescriptors() < before; }))
      << "its connection is closed too";
  ExpectHealthy();
}

}  // namespace
}  // namespace phasor
