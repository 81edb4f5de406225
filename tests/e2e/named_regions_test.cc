// SPDX-License-Identifier: Apache-2.0
// Tests named regions of a whole server against what clients may do: shrink or unlink them, die,
// lie, and interfere with others. The backend inverts every bit and can be made to wait.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <filesystem>
#include <iterator>
#include <limits>
#include <thread>

#include "absl/synchronization/notification.h"
#include "phasor/v1/position_embedding_service.grpc.pb.h"
#include "phasor/v1/shared_memory_service.grpc.pb.h"
#include "tests/support/eventually.h"
#include "tests/support/fake_backend.h"
#include "tests/support/requests.h"
#include "tests/support/running_server.h"
#include "tests/support/shared_memory.h"
#include "tests/support/subprocess.h"

namespace phasor {
namespace {

using Code = grpc::StatusCode;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using testing::SharedMemory;

constexpr int64_t kTokens = 2;
constexpr int64_t kBytes = kTokens * 2 * 8 * 4;  // of the first tensor of RopeOf

std::string Inverted(std::string bytes) {
  for (char& byte : bytes) byte = static_cast<char>(~byte);
  return bytes;
}

struct Owner {  // has a connection of its own
  explicit Owner(const std::string& address)
      : channel(testing::NewChannel(address)),
        memory(v1::SharedMemoryService::NewStub(channel)),
        embedding(v1::PositionEmbeddingService::NewStub(channel)) {}

  grpc::Status Register(const std::string& name, const std::string& key, int64_t bytes,
                        int64_t offset = 0, bool read_only = false, int64_t ttl_ms = 0) const {
    testing::TestContext context;
    v1::RegisterRequest request;
    request.mutable_region()->set_name(name);
    request.mutable_region()->set_size_bytes(bytes);
    request.mutable_region()->set_read_only(read_only);
    request.mutable_region()->set_ttl_ms(ttl_ms);
    request.mutable_region()->mutable_posix()->set_key(key);
    request.mutable_region()->mutable_posix()->set_offset_bytes(offset);
    v1::RegisterResponse response;
    return memory->Register(&context, request, &response);
  }
  grpc::Status Unregister(const std::string& name) const {
    testing::TestContext context;
    v1::UnregisterRequest request;
    request.set_name(name);
    v1::UnregisterResponse response;
    return memory->Unregister(&context, request, &response);
  }
  // Names of its regions.
  std::vector<std::string> List() const {
    testing::TestContext context;
    v1::ListResponse response;
    EXPECT_TRUE(memory->List(&context, {}, &response).ok());
    std::vector<std::string> names;
    for (const v1::Region& region : response.regions()) names.push_back(region.name());
    return names;
  }
  // Inverts `kBytes` from `in` to `out`, regions with their offsets; no `out`: to `*answer`.
  struct Place {
    std::string region;
    int64_t offset = 0;
  };
  grpc::Status Invert(const Place& in, const Place& out, std::string* answer = nullptr) const {
    testing::TestContext context;
    v1::ApplyRoPERequest request;
    *request.mutable_item() = testing::RopeOf(kTokens);
    request.mutable_item()->mutable_tensors()->RemoveLast();
    v1::RopeTensor& tensor = *request.mutable_item()->mutable_tensors(0);
    const auto place = [](const Place& at, v1::TensorSpec* spec) {
      spec->mutable_region()->set_region(at.region);
      spec->mutable_region()->set_offset_bytes(at.offset);
    };
    if (!out.region.empty()) {
      *tensor.mutable_destination() = tensor.tensor();
      place(out, tensor.mutable_destination());
    }
    place(in, tensor.mutable_tensor());
    v1::ApplyRoPEResponse response;
    const grpc::Status status = embedding->ApplyRoPE(&context, request, &response);
    if (status.ok() && answer != nullptr) *answer = response.raw(0);
    if (status.ok() && !out.region.empty()) {
      EXPECT_EQ(response.result().tensors(0).region().region(), out.region);
      EXPECT_EQ(response.raw_size(), 0);
    }
    return status;
  }

  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::SharedMemoryService::Stub> memory;
  std::unique_ptr<v1::PositionEmbeddingService::Stub> embedding;
};

class NamedRegionsTest : public ::testing::Test {
 protected:
  void Start(const ServerOptions& options) {
    auto backend = std::make_unique<FakeBackend>();
    backend_ = backend.get();
    server_ = testing::StartServer(options, std::move(backend));
    ASSERT_NE(server_, nullptr);
    me_ = std::make_unique<Owner>(Address());
  }
  void SetUp() override { Start(testing::SharedMemoryOptions()); }
  void TearDown() override {
    if (backend_ != nullptr) backend_->Release();
  }
  std::string Address() const { return server_->listeners()[0]; }
  // That the server still works, with memory that nobody touches.
  void ExpectHealthy() {
    const SharedMemory memory(std::string(kBytes, 'h'));
    const Owner owner(Address());
    EXPECT_TRUE(owner.Register("healthy", memory.key(), kBytes).ok());
    EXPECT_TRUE(owner.Invert({"healthy"}, {"healthy"}).ok());
    EXPECT_EQ(memory.bytes(), Inverted(std::string(kBytes, 'h')));
    EXPECT_TRUE(owner.Unregister("healthy").ok());
  }

  FakeBackend* backend_ = nullptr;  // the server's
  std::unique_ptr<Server> server_;
  std::unique_ptr<Owner> me_;
};

TEST_F(NamedRegionsTest, TensorsAreReadAndWrittenWhereTheirNamesSay) {
  const std::string bytes = "0123456789abcdef" + std::string(kBytes, 'q') + "tail";
  const SharedMemory in(bytes), out(std::string(kBytes + 8, 'o'));
  ASSERT_TRUE(me_->Register("in", in.key(), kBytes + 8, 8).ok());
  ASSERT_TRUE(me_->Register("out", out.key(), kBytes + 4, 4).ok());
  const std::string expected = Inverted(std::string(kBytes, 'q'));

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
  const SharedMemory good(std::string(kBytes, 'g')), bad(std::string(kBytes, 'b'));
  ASSERT_TRUE(me_->Register("good", good.key(), kBytes).ok());
  ASSERT_TRUE(me_->Register("bad", bad.key(), kBytes).ok());
  bad.Resize(5);
  v1::BatchApplyRoPERequest request;
  for (const char* name : {"missing", "bad", "good"}) {
    v1::ApplyRoPEItem item = testing::RopeOf(kTokens);
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
  EXPECT_EQ(good.bytes(), Inverted(std::string(kBytes, 'g')));
  EXPECT_EQ(bad.bytes(), "bbbbb");
}

TEST_F(NamedRegionsTest, StreamsUseRegionsToo) {
  const SharedMemory memory(std::string(kBytes, 's'));
  ASSERT_TRUE(me_->Register("s", memory.key(), kBytes).ok());
  testing::TestContext context;
  const auto stream = me_->embedding->StreamApplyRoPE(&context);
  v1::StreamApplyRoPERequest request;
  v1::StreamApplyRoPEResponse response;
  *request.mutable_item() = testing::RopeOf(kTokens);
  request.mutable_item()->mutable_tensors()->RemoveLast();
  v1::RopeTensor& tensor = *request.mutable_item()->mutable_tensors(0);
  tensor.mutable_tensor()->mutable_region()->set_region("s");
  *tensor.mutable_destination() = tensor.tensor();
  ASSERT_TRUE(stream->Write(request) && stream->Read(&response));
  EXPECT_EQ(response.result().status().code(), Code::OK) << response.result().status().message();
  EXPECT_EQ(memory.bytes(), Inverted(std::string(kBytes, 's')));
  memory.Resize(1);
  ASSERT_TRUE(stream->Write(request) && stream->Read(&response));
  EXPECT_EQ(response.result().status().code(), Code::INVALID_ARGUMENT);
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(NamedRegionsTest, RangesOutsideARegionAreRefusedEvenWhenTheirEndOverflows) {
  const SharedMemory memory(std::string(2 * kBytes, 'm'));
  ASSERT_TRUE(me_->Register("r", memory.key(), kBytes + 4, 4).ok());
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  for (const int64_t offset :
       {int64_t{5}, int64_t{-1}, kBytes, kMax, kMax - kBytes + 1, -kMax - 1}) {
    for (const grpc::Status& status :
         {me_->Invert({"r", offset}, {}), me_->Invert({"r"}, {"r", offset})}) {
      EXPECT_EQ(status.error_code(), Code::INVALID_ARGUMENT) << offset;
      EXPECT_THAT(status.error_message(), HasSubstr("region.offset_bytes")) << offset;
    }
  }
  EXPECT_EQ(memory.bytes(), std::string(2 * kBytes, 'm'));
  for (const auto& [offset, bytes] :
       {std::pair<int64_t, int64_t>{kMax, kMax}, {1, kMax}, {kMax, 1}, {-1, 2}, {0, -1}}) {
    EXPECT_EQ(me_->Register("bad", memory.key(), bytes, offset).error_code(),
              Code::INVALID_ARGUMENT)
        << offset << " " << bytes;
  }
}

TEST_F(NamedRegionsTest, StridedOutputsAreRefused) {
  const SharedMemory memory(std::string(4 * kBytes, 'm'));
  ASSERT_TRUE(me_->Register("r", memory.key(), 4 * kBytes).ok());
  v1::ApplyRoPERequest request;
  *request.mutable_item() = testing::RopeOf(kTokens);
  request.mutable_item()->mutable_tensors()->RemoveLast();
  v1::RopeTensor& tensor = *request.mutable_item()->mutable_tensors(0);
  for (const int64_t stride : {32, 8, 1}) tensor.mutable_tensor()->add_strides(stride);
  tensor.mutable_tensor()->mutable_region()->set_region("r");
  *tensor.mutable_destination() = tensor.tensor();
  testing::TestContext context;
  v1::ApplyRoPEResponse response;
  const grpc::Status status = me_->embedding->ApplyRoPE(&context, request, &response);
  EXPECT_EQ(status.error_code(), Code::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(),
              HasSubstr("destination.strides: set in a named region; must be empty"));
  EXPECT_EQ(memory.bytes(), std::string(4 * kBytes, 'm'));
}

TEST_F(NamedRegionsTest, WhatIsOnlyReadTakesNoOutput) {
  const SharedMemory memory(std::string(kBytes, 'm'));
  ASSERT_TRUE(me_->Register("r", memory.key(), kBytes, 0, /*read_only=*/true).ok());
  std::string answer;
  EXPECT_TRUE(me_->Invert({"r"}, {}, &answer).ok());
  const int runs = backend_->runs();
  EXPECT_EQ(me_->Invert({"r"}, {"r"}).error_code(), Code::PERMISSION_DENIED);
  EXPECT_EQ(backend_->runs(), runs) << "refused before it was computed";
  EXPECT_EQ(memory.bytes(), std::string(kBytes, 'm'));
}

TEST_F(NamedRegionsTest, AClientThatCutsItsMemoryShortAfterRegisteringGetsAnError) {
  const SharedMemory memory(std::string(kBytes, 'm'));
  ASSERT_TRUE(me_->Register("r", memory.key(), kBytes).ok());
  memory.Resize(kBytes - 1);
  const grpc::Status status = me_->Invert({"r"}, {"r"});
  EXPECT_EQ(status.error_code(), Code::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("item.tensors[0].tensor: the shared memory was"));
  EXPECT_EQ(memory.bytes(), std::string(kBytes - 1, 'm'));
  ExpectHealthy();
}

TEST_F(NamedRegionsTest, AClientThatCutsItsMemoryShortDuringARunGetsAnError) {
  const SharedMemory memory(std::string(2 * kBytes, 'm'));
  ASSERT_TRUE(me_->Register("r", memory.key(), 2 * kBytes).ok());
  for (const bool in_place : {false, true}) {
    memory.Resize(2 * kBytes);
    backend_->Hold();
    const int runs = backend_->runs();
    grpc::Status status;
    std::thread call([&] { status = me_->Invert({"r"}, {"r", in_place ? 0 : kBytes}); });
    backend_->WaitForRuns(runs + 1);
    memory.Resize(kBytes / 2);
    backend_->Release();
    call.join();
    EXPECT_EQ(status.error_code(), in_place ? Code::ABORTED : Code::INVALID_ARGUMENT)
        << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr("shrunk"));
    EXPECT_EQ(memory.bytes().size(), kBytes / 2) << "it did not grow again";
  }
  ExpectHealthy();
}

TEST_F(NamedRegionsTest, MemoryMayChangeItsSizeAllTheTime) {
  const SharedMemory memory(std::string(kBytes, 'm'));
  ASSERT_TRUE(me_->Register("r", memory.key(), kBytes).ok());
  std::atomic<bool> stop = false;
  std::thread owner([&] {
    while (!stop) {
      memory.Resize(0);
      memory.Resize(kBytes);
    }
  });
  for (int i = 0; i < 500; ++i) {
    EXPECT_THAT(me_->Invert({"r"}, {"r"}).error_code(),
                AnyOf(Code::OK, Code::INVALID_ARGUMENT, Code::ABORTED));
  }
  stop = true;
  owner.join();
  ExpectHealthy();
}

TEST_F(NamedRegionsTest, AClientMayUnlinkItsMemory) {
  auto memory = std::make_unique<SharedMemory>(std::string(kBytes, 'm'));
  ASSERT_TRUE(me_->Register("r", memory->key(), kBytes).ok());
  const std::string key = memory->key();
  memory.reset();
  std::string answer;
  EXPECT_TRUE(me_->Invert({"r"}, {"r"}).ok());
  EXPECT_TRUE(me_->Invert({"r"}, {}, &answer).ok());
  EXPECT_EQ(answer, std::string(kBytes, 'm')) << "inverted twice";
  EXPECT_EQ(me_->Register("again", key, kBytes).error_code(), Code::NOT_FOUND);
}

TEST_F(NamedRegionsTest, RegisteringTwiceIsRefusedAndChangesNothing) {
  const SharedMemory memory(std::string(kBytes, 'm')), other(std::string(kBytes, 'o'));
  ASSERT_TRUE(me_->Register("r", memory.key(), kBytes).ok());
  EXPECT_EQ(me_->Register("r", other.key(), kBytes).error_code(), Code::ALREADY_EXISTS);
  ASSERT_TRUE(me_->Invert({"r"}, {"r"}).ok());
  EXPECT_EQ(other.bytes(), std::string(kBytes, 'o'));
  // The same memory under another name is another region.
  EXPECT_TRUE(me_->Register("twin", memory.key(), kBytes).ok());
}

TEST_F(NamedRegionsTest, ARegionIsNothingToOthers) {
  const SharedMemory memory(std::string(kBytes, 'm'));
  ASSERT_TRUE(me_->Register("r", memory.key(), kBytes).ok());
  const Owner other(Address());
  EXPECT_EQ(other.Invert({"r"}, {}).error_code(), Code::NOT_FOUND);
  EXPECT_EQ(other.Invert({"r"}, {"r"}).error_code(), Code::NOT_FOUND);
  EXPECT_EQ(other.Unregister("r").error_code(), Code::NOT_FOUND);
  EXPECT_EQ(other.Register("r", memory.key(), kBytes).error_code(), Code::ALREADY_EXISTS);
  EXPECT_TRUE(other.List().empty());
  EXPECT_EQ(memory.bytes(), std::string(kBytes, 'm'));
  EXPECT_EQ(me_->List(), std::vector<std::string>{"r"});
  EXPECT_TRUE(me_->Invert({"r"}, {"r"}).ok());
}

TEST_F(NamedRegionsTest, NamesAreNoPaths) {
  const SharedMemory memory(std::string(kBytes, 'm'));
  for (const char* key : {"", "/", "//", "/../shm/x", "../../etc/passwd", "/etc/passwd",
                          "/dev/shm/x", "..", "/.", "a/b", "/proc/self/mem"}) {
    EXPECT_EQ(me_->Register("r", key, 1).error_code(), Code::INVALID_ARGUMENT) << key;
  }
  EXPECT_EQ(me_->Register("r", {"/x\0y", 4}, 1).error_code(), Code::INVALID_ARGUMENT);
  // A region's own name is only a name.
  ASSERT_TRUE(me_->Register("../../etc/passwd", memory.key(), kBytes).ok());
  EXPECT_TRUE(me_->Invert({"../../etc/passwd"}, {"../../etc/passwd"}).ok());
  EXPECT_TRUE(me_->Unregister("../../etc/passwd").ok());
}

TEST_F(NamedRegionsTest, UnregisteringWhatIsInUseWaitsForItsUsers) {
  const SharedMemory memory(std::string(kBytes, 'm'));
  ASSERT_TRUE(me_->Register("r", memory.key(), kBytes).ok());
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
  EXPECT_EQ(memory.bytes(), std::string(kBytes, 'm'));
  backend_->Release();
  unregister.join();
  EXPECT_EQ(memory.bytes(), Inverted(std::string(kBytes, 'm'))) << "it was answered too early";
  call.join();
  EXPECT_TRUE(status.ok()) << status.error_message();
}

TEST_F(NamedRegionsTest, WhoeverGivesUpWaitingLeavesNothing) {
  const SharedMemory memory(std::string(kBytes, 'm'));
  ASSERT_TRUE(me_->Register("r", memory.key(), kBytes).ok());
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

int64_t OpenDescriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
}

TEST_F(NamedRegionsTest, CyclesOfRegisteringLeaveNoDescriptor) {
  const SharedMemory memory(std::string(kBytes, 'm'));
  const auto cycle = [&] {
    ASSERT_TRUE(me_->Register("r", memory.key(), kBytes).ok());
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
  const SharedMemory memory(std::string(kBytes, 'm'));
  EXPECT_EQ(me_->Register("r", memory.key(), kBytes).error_code(), Code::FAILED_PRECONDITION);
  EXPECT_EQ(me_->Invert({"r"}, {}).error_code(), Code::FAILED_PRECONDITION);
  EXPECT_TRUE(me_->List().empty());
}

// Not a test: what the next one kills.
TEST(NamedRegionsOwner, DISABLED_Runs) {
  const char* const address = getenv("PHASOR_OWNER_OF");
  ASSERT_NE(address, nullptr);
  const auto* const memory = new SharedMemory(std::string(kBytes, 'm'));
  const Owner owner(address);
  ASSERT_TRUE(owner.Register("killed", memory->key(), kBytes, 0, false, 10000).ok());
  printf("%s\n", memory->key().c_str());
  fflush(stdout);
  while (true) (void)owner.Invert({"killed"}, {"killed"});
}

TEST_F(NamedRegionsTest, AnOwnerThatIsKilledDuringARunLeavesNothing) {
  ASSERT_EQ(setenv("PHASOR_OWNER_OF", Address().c_str(), 1), 0);
  testing::Subprocess owner({"/proc/self/exe", "--gtest_filter=NamedRegionsOwner.*",
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
  const SharedMemory memory(std::string(kBytes, 'n'));
  grpc::Status status;
  const bool forgotten = testing::Eventually([&] {
    status = me_->Register("killed", memory.key(), kBytes);
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
