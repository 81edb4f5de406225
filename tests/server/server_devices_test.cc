// SPDX-License-Identifier: Apache-2.0
// Tests a whole server on four fake GPUs: where calls of phasor.v1 run, and what callers learn of
// each GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <string>
#include <vector>

#include "phasor/v1/position_embedding_service.grpc.pb.h"
#include "phasor/v1/shared_memory_service.grpc.pb.h"
#include "proto/convert_move.h"
#include "tests/support/device_backends.h"
#include "tests/support/is_serving.h"
#include "tests/support/requests.h"
#include "tests/support/running_server.h"

namespace phasor {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::IsServing;
using Code = grpc::StatusCode;
using Positions = v1::PositionEmbeddingService::Stub;

class ServerDevicesTest : public ::testing::Test {
 protected:
  explicit ServerDevicesTest(const std::string& device_fault = "retry")
      : gpus_(4, GpuOptions(device_fault == "retry")),
        server_(testing::StartServer(Options(device_fault), gpus_.Take())) {
    for (size_t i = 0; i < gpus_.size(); ++i) exports_.push_back(gpus_.device(i).Export(4096));
  }
  static ServerOptions Options(const std::string& device_fault) {
    ServerOptions options = testing::SharedMemoryOptions();
    options.device_fault = device_fault;
    return options;
  }
  // A lost device stays lost while a test runs.
  static cuda::CudaBackendOptions GpuOptions(bool retry) {
    return {.chunk_bytes = int64_t{64} << 10,
            .slots = 2,
            .least_bytes = 0,
            .life = {.retry = retry, .now = [] { return cuda::DeviceLifeOptions::Tick(); }}};
  }

  // `uuid`: empty: that of the device.
  grpc::Status Register(const std::string& name, size_t device, const std::string& uuid = "") {
    v1::RegisterRequest request;
    request.mutable_region()->set_name(name);
    request.mutable_region()->set_size_bytes(4096);
    v1::CudaIpcRegion& cuda = *request.mutable_region()->mutable_cuda_ipc();
    cuda.set_handle(exports_[device]->handle_bytes());
    cuda.set_device_uuid(uuid.empty() ? gpus_.cuda(device).device_uuid() : uuid);
    const auto stub = v1::SharedMemoryService::NewStub(channel_);
    v1::RegisterResponse response;
    return testing::Call(*stub, &v1::SharedMemoryService::Stub::Register, request, &response);
  }
  // q and k in place in a region each.
  static v1::ApplyRoPERequest RopeIn(const std::string& q, const std::string& k) {
    v1::ApplyRoPERequest request;
    *request.mutable_item() = testing::RopeOf(4);
    const std::string names[] = {q, k};
    for (int i = 0; i < 2; ++i) {
      v1::RopeTensor& tensor = *request.mutable_item()->mutable_tensors(i);
      tensor.mutable_tensor()->mutable_device()->set_region(names[i]);
      tensor.mutable_tensor()->mutable_device()->set_offset_bytes(1024 * i);
      *tensor.mutable_destination() = tensor.tensor();
    }
    return request;
  }
  grpc::Status Apply(const v1::ApplyRoPERequest& request) {
    response_.Clear();
    return testing::Call(*positions_, &Positions::ApplyRoPE, request, &response_);
  }
  v1::GetServerInfoResponse Info() {
    v1::GetServerInfoResponse info;
    EXPECT_TRUE(
        testing::Call(*positions_, &Positions::GetServerInfo, v1::GetServerInfoRequest(), &info)
            .ok());
    return info;
  }

  testing::DeviceBackends gpus_;
  std::vector<std::shared_ptr<testing::FakeExport>> exports_;
  const std::unique_ptr<Server> server_;
  const std::shared_ptr<grpc::Channel> channel_ = testing::NewChannel(server_->listeners()[0]);
  const std::unique_ptr<Positions> positions_ = v1::PositionEmbeddingService::NewStub(channel_);
  v1::ApplyRoPEResponse response_;
};

TEST_F(ServerDevicesTest, ACallRunsOnTheDeviceOfItsRegion) {
  const v1::ApplyRoPERequest inline_call = testing::RopeRequestOf(4);
  ASSERT_TRUE(Apply(inline_call).ok());
  const v1::ApplyRoPEResponse want = response_;
  for (size_t i = 1; i < gpus_.size(); ++i) {
    const std::string name = "on" + std::to_string(i);
    ASSERT_TRUE(Register(name, i).ok());
    for (int t = 0; t < 2; ++t) {
      std::memcpy(exports_[i]->data() + 1024 * t, inline_call.raw(t).data(),
                  inline_call.raw(t).size());
    }
    const grpc::Status status = Apply(RopeIn(name, name));
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(gpus_.cuda(i).device_counts().jobs, 1) << i;
    for (int t = 0; t < 2; ++t) {
      const auto* const now = reinterpret_cast<const char*>(exports_[i]->data() + 1024 * t);
      EXPECT_EQ(std::string(now, want.raw(t).size()), want.raw(t)) << i << " " << t;
    }
  }
}

TEST_F(ServerDevicesTest, RegionsOfTwoDevicesInAnItemAreRefusedByField) {
  ASSERT_TRUE(Register("one", 1).ok());
  ASSERT_TRUE(Register("three", 3).ok());
  const grpc::Status status = Apply(RopeIn("one", "three"));
  EXPECT_EQ(status.error_code(), Code::INVALID_ARGUMENT);
  EXPECT_EQ(status.error_message(),
            "item.tensors[1].tensor.device.region: region 'three' is on device 3 (Fake GPU, "
            "GPU-30010203-0405-0607-0809-0a0b0c0d0e0f), item.tensors[0].tensor on device 1 (Fake "
            "GPU, GPU-10010203-0405-0607-0809-0a0b0c0d0e0f); tensors of an item must be on one "
            "device");
  v1::BatchApplyRoPERequest batch;
  *batch.add_items() = RopeIn("one", "one").item();
  *batch.add_items() = RopeIn("three", "three").item();
  v1::BatchApplyRoPEResponse answer;
  EXPECT_TRUE(testing::Call(*positions_, &Positions::BatchApplyRoPE, batch, &answer).ok());
  for (const auto& result : answer.results()) EXPECT_EQ(result.status().code(), 0);
  EXPECT_EQ(gpus_.cuda(1).device_counts().jobs, 1);
  EXPECT_EQ(gpus_.cuda(3).device_counts().jobs, 1);
}

// Two layers of keys in a region each, moved in place.
TEST_F(ServerDevicesTest, KeysAreMovedOnTheDeviceOfTheirRegions) {
  const auto move_in = [](const std::string& first, const std::string& second) {
    MoveRequest request;
    request.pools = {1024, 1024};
    request.layouts = {{.pages = 8, .heads = 1, .head_dim = 64}};
    request.specs = {{.spec = {.preset = "rope-half-split"}}};
    request.layers = {{.spec = 0}, {.spec = 0, .place = {1, 0}}};
    request.groups = {{.runs = {{.block_table = {5, 1}, .count = 2, .from = 3, .to = 90}}}};
    request.mode = MoveMode::kMove;
    v1::MoveKeysRequest wire;
    *wire.mutable_item() = ToWire(request);
    if (first.empty()) return wire;
    for (int i = 0; i < 2; ++i) {
      v1::DeviceRef& place = *wire.mutable_item()->mutable_pools(i)->mutable_device();
      place.set_region(i == 0 ? first : second);
      place.set_offset_bytes(1024 * i);
    }
    return wire;
  };
  const auto call = [&](const v1::MoveKeysRequest& request, v1::MoveKeysResponse* response) {
    return testing::Call(*positions_, &Positions::MoveKeys, request, response);
  };
  v1::MoveKeysRequest inline_pools = move_in("", "");
  std::string keys(2048, '\0');
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = i % 2 == 0 ? static_cast<char>(i / 2) : '\x3f';
  inline_pools.add_raw(keys.substr(0, 1024));
  inline_pools.add_raw(keys.substr(1024));
  v1::MoveKeysResponse want, got;
  ASSERT_TRUE(call(inline_pools, &want).ok());
  ASSERT_EQ(want.raw_size(), 2);
  ASSERT_NE(want.raw(0), inline_pools.raw(0));
  for (const size_t i : {1, 3}) {
    const std::string name = "on" + std::to_string(i);
    ASSERT_TRUE(Register(name, i).ok());
    std::memcpy(exports_[i]->data(), keys.data(), keys.size());
    const grpc::Status status = call(move_in(name, name), &got);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(got.result().info().backend(), "cuda");
    EXPECT_EQ(got.raw_size(), 0);
    EXPECT_EQ(gpus_.cuda(i).device_counts().jobs, 1) << i;
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(exports_[i]->data()), 2048),
              want.raw(0) + want.raw(1));
  }
  const grpc::Status two = call(move_in("on1", "on3"), &got);
  EXPECT_EQ(two.error_code(), Code::INVALID_ARGUMENT);
  EXPECT_THAT(two.error_message(),
              AllOf(HasSubstr("item.pools[1].device.region: region 'on3' is on device 3"),
                    HasSubstr("item.pools[0] on device 1")));
  gpus_.Lose(1);
  const grpc::Status lost = call(move_in("on1", "on1"), &got);
  EXPECT_EQ(lost.error_code(), Code::FAILED_PRECONDITION) << lost.error_message();
  EXPECT_TRUE(call(move_in("on3", "on3"), &got).ok());
}

// A device that fails in the middle of a move in place.
TEST_F(ServerDevicesTest, AHalfDoneMoveIsAbortedAndItsRegionDirty) {
  ASSERT_TRUE(Register("on2", 2).ok());
  MoveRequest request;
  request.pools = {1024};
  request.layouts = {{.pages = 8, .heads = 1, .head_dim = 64}};
  request.specs = {{.spec = {.preset = "rope-half-split"}}};
  request.layers = {{.spec = 0}};
  request.groups = {{.runs = {{.block_table = {5, 1}, .count = 2, .from = 3, .to = 90}}}};
  request.mode = MoveMode::kMove;
  v1::MoveKeysRequest wire;
  *wire.mutable_item() = ToWire(request);
  wire.mutable_item()->mutable_pools(0)->mutable_device()->set_region("on2");
  v1::MoveKeysResponse response;
  gpus_.device(2).FailWith([](const std::string& call, int64_t) {
    return call == "Synchronize" ? absl::InternalError("broken") : absl::OkStatus();
  });
  grpc::Status status = testing::Call(*positions_, &Positions::MoveKeys, wire, &response);
  EXPECT_EQ(status.error_code(), Code::ABORTED) << status.error_message();
  gpus_.device(2).FailWith(nullptr);
  status = testing::Call(*positions_, &Positions::MoveKeys, wire, &response);
  EXPECT_EQ(status.error_code(), Code::FAILED_PRECONDITION) << status.error_message();
  EXPECT_THAT(status.error_message(), AllOf(HasSubstr("item.pools[0].device"), HasSubstr("dirty")));
}

TEST_F(ServerDevicesTest, ARegionIsOnTheDeviceThatItNames) {
  const grpc::Status wrong = Register("wrong", 2, gpus_.cuda(1).device_uuid());
  EXPECT_EQ(wrong.error_code(), Code::INVALID_ARGUMENT);
  EXPECT_THAT(wrong.error_message(), HasSubstr("region.cuda_ipc.handle: "));
  const grpc::Status unknown = Register("unknown", 2, "GPU-9");
  EXPECT_THAT(unknown.error_message(),
              AllOf(HasSubstr("region.cuda_ipc.device_uuid: 'GPU-9'; must be that of one of"),
                    HasSubstr(gpus_.cuda(3).device_uuid())));
}

TEST_F(ServerDevicesTest, EveryDeviceIsListed) {
  const v1::GetServerInfoResponse info = Info();
  ASSERT_EQ(info.devices_size(), 4);
  EXPECT_EQ(info.devices(3).number(), 3);
  EXPECT_EQ(info.devices(3).uuid(), gpus_.cuda(3).device_uuid());
  EXPECT_EQ(info.device().SerializeAsString(), info.devices(0).SerializeAsString());
  EXPECT_THAT(server_->devices(),
              ElementsAre(HasSubstr("device 0 (Fake GPU, GPU-0001"), HasSubstr("device 1"),
                          HasSubstr("device 2"), HasSubstr("device 3")));
}

TEST_F(ServerDevicesTest, HealthTellsOfEachDeviceAndOfAll) {
  EXPECT_TRUE(IsServing(channel_, "phasor.device"));
  EXPECT_TRUE(IsServing(channel_, "phasor.device.1"));
  gpus_.Lose(1);
  EXPECT_FALSE(IsServing(channel_, "phasor.device.1"));
  EXPECT_TRUE(IsServing(channel_, "phasor.device.0"));
  EXPECT_TRUE(IsServing(channel_, "phasor.device")) << "three compute";
  EXPECT_EQ(Info().devices(1).state(), v1::DEVICE_STATE_WAITING);
  EXPECT_EQ(Info().devices(0).state(), v1::DEVICE_STATE_WORKING);
  gpus_.Lose(0);
  ASSERT_TRUE(Apply(testing::RopeRequestOf(4)).ok());
  EXPECT_EQ(response_.result().info().backend(), "cuda");
  EXPECT_EQ(gpus_.cuda(2).device_counts().jobs, 1);
  for (const size_t i : {2, 3}) gpus_.Lose(i);
  EXPECT_FALSE(IsServing(channel_, "phasor.device"));
  EXPECT_TRUE(IsServing(channel_));
  ASSERT_TRUE(Apply(testing::RopeRequestOf(4)).ok());
  EXPECT_EQ(response_.result().info().backend(), "cpu");
}

class RestartingServerDevicesTest : public ServerDevicesTest {
 protected:
  RestartingServerDevicesTest() : ServerDevicesTest("restart") {}
};

TEST_F(RestartingServerDevicesTest, AnyLossEndsServingOnce) {
  std::atomic<int> asked = 0;
  server_->WhenRestartIsDue([&] { ++asked; });
  gpus_.Lose(2);
  EXPECT_EQ(asked, 1);
  gpus_.Lose(0);
  EXPECT_EQ(asked, 1);
  EXPECT_FALSE(IsServing(channel_));
}

}  // namespace
}  // namespace phasor
