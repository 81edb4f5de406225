// SPDX-License-Identifier: Apache-2.0
// Tests named regions of a whole server: places, names, owners and quotas.
#include "tests/e2e/named_regions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <thread>

#include "absl/synchronization/notification.h"
#include "tests/support/eventually.h"

namespace phasor {
namespace {

using Code = grpc::StatusCode;
using ::testing::HasSubstr;
using testing::Inverted;
using testing::kRegionBytes;
using testing::kRegionTokens;
using testing::NamedRegionsTest;
using testing::OpenDescriptors;
using testing::SharedMemory;
using Owner = testing::RegionOwner;

TEST_F(NamedRegionsTest, TensorsAreReadAndWrittenWhereTheirNamesSay) {
  const std::string bytes = "0123456789abcdef" + std::string(kRegionBytes, 'q') + "tail";
  const SharedMemory in(bytes), out(std::string(kRegionBytes + 8, 'o'));
  ASSERT_TRUE(me_->Register("in", in.key(), kRegionBytes + 8, 8).ok());
  ASSERT_TRUE(me_->Register("out", out.key(), kRegionBytes + 4, 4).ok());
  const std::string expected = Inverted(std::string(kRegionBytes, 'q'));

  std::string answer;
  ASSERT_TRUE(me_->Invert({"in", 8}, {}, &answer).ok());
  EXPECT_EQ(answer, expected);
  ASSERT_TRUE(me_->Invert({"in", 8}, {"out", 4}).ok());
  EXPECT_EQ(out.bytes(), std::string(8, 'o') + expected);
  EXPECT_EQ(in.bytes(), bytes);
  ASSERT_TRUE(me_->Invert({"in", 8}, {"in", 8}).ok());
  EXPECT_EQ(in.bytes(), "0123456789abcdef" + expected + "tail");
}

TEST_F(NamedRegionsTest, ItemsOfABatchFailAlone) {
  const SharedMemory good(std::string(kRegionBytes, 'g')), bad(std::string(kRegionBytes, 'b'));
  ASSERT_TRUE(me_->Register("good", good.key(), kRegionBytes).ok());
  ASSERT_TRUE(me_->Register("bad", bad.key(), kRegionBytes).ok());
  bad.Resize(5);
  v1::BatchApplyRoPERequest request;
  for (const char* name : {"missing", "bad", "good"}) {
    v1::ApplyRoPEItem item = testing::RopeOf(kRegionTokens);
    item.mutable_tensors()->RemoveLast();
    v1::RopeTensor& tensor = *item.mutable_tensors(0);
    tensor.mutable_tensor()->mutable_region()->set_region(name);
    *tensor.mutable_destination() = tensor.tensor();
    *request.add_items() = std::move(item);
  }
  testing::TestContext context;
  v1::BatchApplyRoPEResponse response;
  const grpc::Status status = me_->embedding->BatchApplyRoPE(&context, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(response.results_size(), 3);
  EXPECT_EQ(response.results(0).status().code(), Code::NOT_FOUND);
  EXPECT_EQ(response.results(1).status().code(), Code::INVALID_ARGUMENT);
  EXPECT_THAT(response.results(1).status().message(), HasSubstr("items[1].tensors[0].tensor"));
  EXPECT_EQ(response.results(2).status().code(), Code::OK);
  EXPECT_EQ(good.bytes(), Inverted(std::string(kRegionBytes, 'g')));
  EXPECT_EQ(bad.bytes(), "bbbbb");
}

TEST_F(NamedRegionsTest, StreamsUseRegionsToo) {
  const SharedMemory memory(std::string(kRegionBytes, 's'));
  ASSERT_TRUE(me_->Register("s", memory.key(), kRegionBytes).ok());
  testing::TestContext context;
  const auto stream = me_->embedding->StreamApplyRoPE(&context);
  v1::StreamApplyRoPERequest request;
  v1::StreamApplyRoPEResponse response;
  *request.mutable_item() = testing::RopeOf(kRegionTokens);
  request.mutable_item()->mutable_tensors()->RemoveLast();
  v1::RopeTensor& tensor = *request.mutable_item()->mutable_tensors(0);
  tensor.mutable_tensor()->mutable_region()->set_region("s");
  *tensor.mutable_destination() = tensor.tensor();
  ASSERT_TRUE(stream->Write(request) && stream->Read(&response));
  EXPECT_EQ(response.result().status().code(), Code::OK) << response.result().status().message();
  EXPECT_EQ(memory.bytes(), Inverted(std::string(kRegionBytes, 's')));
  memory.Resize(1);
  ASSERT_TRUE(stream->Write(request) && stream->Read(&response));
  EXPECT_EQ(response.result().status().code(), Code::INVALID_ARGUMENT);
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(NamedRegionsTest, RangesOutsideARegionAreRefusedEvenWhenTheirEndOverflows) {
  const SharedMemory memory(std::string(2 * kRegionBytes, 'm'));
  ASSERT_TRUE(me_->Register("r", memory.key(), kRegionBytes + 4, 4).ok());
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  for (const int64_t offset :
       {int64_t{5}, int64_t{-1}, kRegionBytes, kMax, kMax - kRegionBytes + 1, -kMax - 1}) {
    for (const grpc::Status& status :
         {me_->Invert({"r", offset}, {}), me_->Invert({"r"}, {"r", offset})}) {
      EXPECT_EQ(status.error_code(), Code::INVALID_ARGUMENT) << offset;
      EXPECT_THAT(status.error_message(), HasSubstr("region.offset_bytes")) << offset;
    }
  }
  EXPECT_EQ(memory.bytes(), std::string(2 * kRegionBytes, 'm'));
  for (const auto& [offset, bytes] :
       {std::pair<int64_t, int64_t>{kMax, kMax}, {1, kMax}, {kMax, 1}, {-1, 2}, {0, -1}}) {
    EXPECT_EQ(me_->Register("bad", memory.key(), bytes, offset).error_code(),
              Code::INVALID_ARGUMENT)
        << offset << " " << bytes;
  }
}

TEST_F(NamedRegionsTest, StridedTensorsAreComputedWhereTheyLie) {
  server_.reset();
  server_ = testing::StartServer(testing::SharedMemoryOptions());
  backend_ = nullptr;
  me_ = std::make_unique<Owner>(Address());
  const SharedMemory memory(std::string(4 * kRegionBytes, 'm'));
  ASSERT_TRUE(me_->Register("r", memory.key(), 4 * kRegionBytes).ok());
  v1::ApplyRoPERequest request;
  *request.mutable_item() = testing::RopeOf(kRegionTokens);
  request.mutable_item()->mutable_tensors()->RemoveLast();
  v1::RopeTensor& tensor = *request.mutable_item()->mutable_tensors(0);
  for (const int64_t stride : {32, 8, 1}) tensor.mutable_tensor()->add_strides(stride);
  tensor.mutable_tensor()->mutable_region()->set_region("r");
  *tensor.mutable_destination() = tensor.tensor();
  testing::TestContext context;
  v1::ApplyRoPEResponse response;
  const grpc::Status status = me_->embedding->ApplyRoPE(&context, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  const std::string bytes = memory.bytes();
  EXPECT_NE(bytes.substr(0, 192), std::string(192, 'm')) << "rows of 64 bytes, 128 apart";
  EXPECT_EQ(bytes.substr(64, 64), std::string(64, 'm')) << "between rows";
  EXPECT_EQ(bytes.substr(192), std::string(4 * kRegionBytes - 192, 'm'));
}

TEST_F(NamedRegionsTest, WhatIsOnlyReadTakesNoOutput) {
  const SharedMemory memory(std::string(kRegionBytes, 'm'));
  ASSERT_TRUE(me_->Register("r", memory.key(), kRegionBytes, 0, /*read_only=*/true).ok());
  std::string answer;
  EXPECT_TRUE(me_->Invert({"r"}, {}, &answer).ok());
  const int runs = backend_->runs();
  EXPECT_EQ(me_->Invert({"r"}, {"r"}).error_code(), Code::PERMISSION_DENIED);
  EXPECT_EQ(backend_->runs(), runs) << "refused before it was computed";
  EXPECT_EQ(memory.bytes(), std::string(kRegionBytes, 'm'));
}

TEST_F(NamedRegionsTest, RegisteringTwiceIsRefusedAndChangesNothing) {
  const SharedMemory memory(std::string(kRegionBytes, 'm')), other(std::string(kRegionBytes, 'o'));
  ASSERT_TRUE(me_->Register("r", memory.key(), kRegionBytes).ok());
  EXPECT_EQ(me_->Register("r", other.key(), kRegionBytes).error_code(), Code::ALREADY_EXISTS);
  ASSERT_TRUE(me_->Invert({"r"}, {"r"}).ok());
  EXPECT_EQ(other.bytes(), std::string(kRegionBytes, 'o'));
  // The same memory under another name is another region.
  EXPECT_TRUE(me_->Register("twin", memory.key(), kRegionBytes).ok());
}

TEST_F(NamedRegionsTest, ARegionIsNothingToOthers) {
  const SharedMemory memory(std::string(kRegionBytes, 'm'));
  ASSERT_TRUE(me_->Register("r", memory.key(), kRegionBytes).ok());
  const Owner other(Address());
  EXPECT_EQ(other.Invert({"r"}, {}).error_code(), Code::NOT_FOUND);
  EXPECT_EQ(other.Invert({"r"}, {"r"}).error_code(), Code::NOT_FOUND);
  EXPECT_EQ(other.Unregister("r").error_code(), Code::NOT_FOUND);
  EXPECT_EQ(other.Register("r", memory.key(), kRegionBytes).error_code(), Code::ALREADY_EXISTS);
  EXPECT_TRUE(other.List().empty());
  EXPECT_EQ(memory.bytes(), std::string(kRegionBytes, 'm'));
  EXPECT_EQ(me_->List(), std::vector<std::string>{"r"});
  EXPECT_TRUE(me_->Invert({"r"}, {"r"}).ok());
}

TEST_F(NamedRegionsTest, NamesAreNoPaths) {
  const SharedMemory memory(std::string(kRegionBytes, 'm'));
  for (const char* key : {"", "/", "//", "/../shm/x", "../../etc/passwd", "/etc/passwd",
                          "/dev/shm/x", "..", "/.", "a/b", "/proc/self/mem"}) {
    EXPECT_EQ(me_->Register("r", key, 1).error_code(), Code::INVALID_ARGUMENT) << key;
  }
  EXPECT_EQ(me_->Register("r", {"/x\0y", 4}, 1).error_code(), Code::INVALID_ARGUMENT);
  // A region's own name is only a name.
  ASSERT_TRUE(me_->Register("../../etc/passwd", memory.key(), kRegionBytes).ok());
  EXPECT_TRUE(me_->Invert({"../../etc/passwd"}, {"../../etc/passwd"}).ok());
  EXPECT_TRUE(me_->Unregister("../../etc/passwd").ok());
}

TEST_F(NamedRegionsTest, UnregisteringWhatIsInUseWaitsForItsUsers) {
  const SharedMemory memory(std::string(kRegionBytes, 'm'));
  ASSERT_TRUE(me_->Register("r", memory.key(), kRegionBytes).ok());
  backend_->Hold();
  grpc::Status status;
  std::thread call([&] { status = me_->Invert({"r"}, {"r"}); });
  backend_->WaitForRuns(1);
  absl::Notification answered;
  std::thread unregister([&] {
    EXPECT_TRUE(me_->Unregister("r").ok());
    answered.Notify();
  });
  // Its name is gone at once.
  EXPECT_TRUE(testing::Eventually([&] { return me_->List().empty(); }));
  EXPECT_EQ(me_->Unregister("r").error_code(), Code::NOT_FOUND);
  EXPECT_FALSE(answered.WaitForNotificationWithTimeout(absl::Milliseconds(50)));
  EXPECT_EQ(memory.bytes(), std::string(kRegionBytes, 'm'));
  backend_->Release();
  unregister.join();
  EXPECT_EQ(memory.bytes(), Inverted(std::string(kRegionBytes, 'm')))
      << "it was answered too early";
  call.join();
  EXPECT_TRUE(status.ok()) << status.error_message();
}

TEST_F(NamedRegionsTest, WhoeverGivesUpWaitingLeavesNothing) {
  const SharedMemory memory(std::string(kRegionBytes, 'm'));
  ASSERT_TRUE(me_->Register("r", memory.key(), kRegionBytes).ok());
  backend_->Hold();
  std::thread call([&] { EXPECT_TRUE(me_->Invert({"r"}, {"r"}).ok()); });
  backend_->WaitForRuns(1);
  testing::TestContext context(std::chrono::milliseconds(50));
  v1::UnregisterRequest request;
  request.set_name("r");
  v1::UnregisterResponse response;
  EXPECT_EQ(me_->memory->Unregister(&context, request, &response).error_code(),
            Code::DEADLINE_EXCEEDED);
  backend_->Release();
  call.join();
  ExpectHealthy();
}

TEST_F(NamedRegionsTest, OwnersHoldNoMoreThanTheyMay) {
  ServerOptions options = testing::SharedMemoryOptions();
  options.max_regions = 2;
  options.max_region_bytes = 3000;
  server_.reset();
  Start(options);
  const SharedMemory memory(std::string(4000, 'm'));
  ASSERT_TRUE(me_->Register("a", memory.key(), 2000).ok());
  EXPECT_EQ(me_->Register("b", memory.key(), 2000).error_code(), Code::RESOURCE_EXHAUSTED);
  ASSERT_TRUE(me_->Register("b", memory.key(), 1000).ok());
  EXPECT_EQ(me_->Register("c", memory.key(), 1).error_code(), Code::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(Owner(Address()).Register("c", memory.key(), 3000).ok());
  ASSERT_TRUE(me_->Unregister("a").ok());
  EXPECT_TRUE(me_->Register("d", memory.key(), 1).ok());
}

TEST_F(NamedRegionsTest, CyclesOfRegisteringLeaveNoDescriptor) {
  const SharedMemory memory(std::string(kRegionBytes, 'm'));
  const auto cycle = [&] {
    ASSERT_TRUE(me_->Register("r", memory.key(), kRegionBytes).ok());
    ASSERT_TRUE(me_->Unregister("r").ok());
  };
  cycle();
  const int64_t before = OpenDescriptors();
  for (int i = 0; i < 10000 && !HasFatalFailure(); ++i) cycle();
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST_F(NamedRegionsTest, WhereItIsOffNothingIsOpened) {
  server_.reset();
  Start(testing::TestOptions());
  const SharedMemory memory(std::string(kRegionBytes, 'm'));
  EXPECT_EQ(me_->Register("r", memory.key(), kRegionBytes).error_code(), Code::FAILED_PRECONDITION);
  EXPECT_EQ(me_->Invert({"r"}, {}).error_code(), Code::FAILED_PRECONDITION);
  EXPECT_TRUE(me_->List().empty());
}

}  // namespace
}  // namespace phasor
