// SPDX-License-Identifier: Apache-2.0
// Tests a whole server on a fake GPU: calls of phasor.v1 on GPU memory, and what all callers learn
// when the GPU is lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <string>

#include "phasor/v1/position_embedding_service.grpc.pb.h"
#include "phasor/v1/shared_memory_service.grpc.pb.h"
#include "tests/support/device_backend.h"
#include "tests/support/eventually.h"
#include "tests/support/is_serving.h"
#include "tests/support/requests.h"
#include "tests/support/running_server.h"

namespace phasor {
namespace {

using ::testing::HasSubstr;
using testing::IsServing;
using Code = grpc::StatusCode;
using Regions = v1::SharedMemoryService::Stub;
using Positions = v1::PositionEmbeddingService::Stub;

// On a clock of the test's, by which a lost device waits for a second.
cuda::CudaBackendOptions DeviceOptions(bool retry, bool host_tensors,
                                       const std::atomic<int>* seconds) {
  cuda::CudaBackendOptions options = testing::DeviceBackend::Options();
  options.life = {.retry = retry, .now = [seconds] {
                    return cuda::DeviceLifeOptions::Tick(std::chrono::seconds(*seconds));
                  }};
  options.host_tensors = host_tensors;
  return options;
}

class ServerDeviceTest : public ::testing::Test {
 protected:
  explicit ServerDeviceTest(const std::string& device_fault = "retry", bool host_tensors = true)
      : backend_(DeviceOptions(device_fault == "retry", host_tensors, &seconds_)),
        server_(testing::StartServer(Options(device_fault), backend_.Take())) {}

  static ServerOptions Options(const std::string& device_fault) {
    ServerOptions options = testing::SharedMemoryOptions();
    options.device_fault = device_fault;
    return options;
  }

  v1::RegisterRequest RegionOf(const std::string& name) {
    v1::RegisterRequest request;
    request.mutable_region()->set_name(name);
    request.mutable_region()->set_size_bytes(4096);
    v1::CudaIpcRegion& cuda = *request.mutable_region()->mutable_cuda_ipc();
    cuda.set_handle(memory_->handle_bytes());
    cuda.set_offset_bytes(4096);
    cuda.set_device_uuid("GPU-00010203-0405-0607-0809-0a0b0c0d0e0f");
    return request;
  }
  grpc::Status Register(const v1::RegisterRequest& request) {
    v1::RegisterResponse response;
    return testing::Call(*regions_, &Regions::Register, request, &response);
  }
  grpc::Status Unregister(const std::string& name) {
    v1::UnregisterRequest request;
    request.set_name(name);
    v1::UnregisterResponse response;
    return testing::Call(*regions_, &Regions::Unregister, request, &response);
  }
  v1::ListResponse List() {
    v1::ListResponse response;
    EXPECT_TRUE(testing::Call(*regions_, &Regions::List, v1::ListRequest(), &response).ok());
    return response;
  }
  grpc::Status Apply(const v1::ApplyRoPERequest& request) {
    response_.Clear();
    return testing::Call(*positions_, &Positions::ApplyRoPE, request, &response_);
  }
  v1::Device Device() {
    v1::GetServerInfoResponse info;
    EXPECT_TRUE(
        testing::Call(*positions_, &Positions::GetServerInfo, v1::GetServerInfoRequest(), &info)
            .ok());
    return info.device();
  }

  // q and k of some tokens side by side in rows of 24 lanes of the region, in place.
  static v1::ApplyRoPERequest Fused(const std::string& region, int64_t tokens = 4) {
    v1::ApplyRoPERequest request;
    *request.mutable_item() = testing::RopeOf(tokens);
    for (int i = 0; i < 2; ++i) {
      v1::RopeTensor& tensor = *request.mutable_item()->mutable_tensors(i);
      for (const int64_t stride : {24, 8, 1}) tensor.mutable_tensor()->add_strides(stride);
      tensor.mutable_tensor()->mutable_device()->set_region(region);
      tensor.mutable_tensor()->mutable_device()->set_offset_bytes(64 * i);
      *tensor.mutable_destination() = tensor.tensor();
    }
    return request;
  }
  // The same tensors in the message.
  static v1::ApplyRoPERequest Inline() {
    v1::ApplyRoPERequest request = testing::RopeRequestOf(4);
    for (std::string& raw : *request.mutable_raw()) {
      for (size_t i = 0; i < raw.size(); i += 4) {
        const float value = 1.0F + static_cast<float>(i % 64) / 64 + static_cast<float>(raw.size());
        std::memcpy(raw.data() + i, &value, 4);
      }
    }
    return request;
  }
  // Rows of q and k beside each other.
  static std::string Rows(const std::string& q, const std::string& k) {
    std::string rows;
    for (size_t t = 0; t < 4; ++t) rows += q.substr(64 * t, 64) + k.substr(32 * t, 32);
    return rows;
  }
  void Fill() {
    const v1::ApplyRoPERequest request = Inline();
    const std::string rows = Rows(request.raw(0), request.raw(1));
    std::memcpy(memory_->data() + 4096, rows.data(), rows.size());
  }

  std::atomic<int> seconds_ = 0;
  testing::DeviceBackend backend_;
  testing::FakeDevice& device_ = backend_.device();
  const std::shared_ptr<testing::FakeExport> memory_ = device_.Export(8192);
  const std::unique_ptr<Server> server_;
  const std::shared_ptr<grpc::Channel> channel_ = testing::NewChannel(server_->listeners()[0]);
  const std::unique_ptr<Regions> regions_ = v1::SharedMemoryService::NewStub(channel_);
  const std::unique_ptr<Positions> positions_ = v1::PositionEmbeddingService::NewStub(channel_);
  v1::ApplyRoPEResponse response_;
};

// As --backend=auto is.
class ChoosingServerTest : public ServerDeviceTest {
 protected:
  ChoosingServerTest() : ServerDeviceTest("retry", /*host_tensors=*/false) {}
};

class RestartingServerTest : public ServerDeviceTest {
 protected:
  RestartingServerTest() : ServerDeviceTest("restart") {}
};

TEST_F(ServerDeviceTest, AFusedBufferIsRotatedWhereItLies) {
  ASSERT_TRUE(Register(RegionOf("qkv")).ok());
  Fill();
  const int64_t copies = device_.calls("CopyToHost");
  const grpc::Status status = Apply(Fused("qkv"));
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(device_.calls("CopyToHost"), copies);
  EXPECT_EQ(response_.result().info().backend(), "cuda");
  EXPECT_EQ(response_.raw_size(), 0);
  EXPECT_EQ(response_.result().tensors(1).device().region(), "qkv");
  EXPECT_EQ(response_.result().tensors(1).device().offset_bytes(), 64);
  ASSERT_TRUE(Apply(Inline()).ok());
  const std::string want = Rows(response_.raw(0), response_.raw(1));
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(memory_->data() + 4096), want.size()), want);
}

TEST_F(ServerDeviceTest, KeysAndValuesGoToPagesOfTheDevice) {
  ASSERT_TRUE(Register(RegionOf("pages")).ok());
  v1::ApplyRoPERequest request = Inline();
  v1::PagedCacheWrite& paged = *request.mutable_item()->mutable_paged_cache();
  paged.set_key_index(1);
  *paged.mutable_values() = request.item().tensors(1).tensor();
  testing::SetShape(paged.mutable_key_cache(), v1::DTYPE_FLOAT32, {2, 4, 1, 8});
  *paged.mutable_value_cache() = paged.key_cache();
  testing::SetShape(paged.mutable_slot_mapping(), v1::DTYPE_INT32, {4});
  request.add_raw(request.raw(1));
  const std::string caches[] = {std::string(256, 'K'), std::string(256, 'V')};
  for (const std::string& cache : caches) request.add_raw(cache);
  const int32_t slots[] = {5, 0, -1, 7};
  request.add_raw(slots, sizeof slots);
  ASSERT_TRUE(Apply(request).ok());
  const v1::ApplyRoPEResponse want = response_;
  ASSERT_EQ(want.raw_size(), 3);

  std::memcpy(memory_->data() + 4096, caches[0].data(), 256);
  std::memcpy(memory_->data() + 4096 + 512, caches[1].data(), 256);
  paged.mutable_key_cache()->mutable_device()->set_region("pages");
  paged.mutable_value_cache()->mutable_device()->set_region("pages");
  paged.mutable_value_cache()->mutable_device()->set_offset_bytes(512);
  request.mutable_raw()->DeleteSubrange(3, 2);
  const grpc::Status status = Apply(request);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response_.result().info().backend(), "cuda");
  ASSERT_EQ(response_.raw_size(), 1);
  EXPECT_EQ(response_.raw(0), want.raw(0));
  const auto* const pages = reinterpret_cast<const char*>(memory_->data() + 4096);
  EXPECT_EQ(std::string(pages, 256), want.raw(1));
  EXPECT_EQ(std::string(pages + 512, 256), want.raw(2));
  EXPECT_NE(want.raw(1), caches[0]);

  paged.mutable_slot_mapping()->mutable_device()->set_region("pages");
  EXPECT_THAT(Apply(request).error_message(), HasSubstr("slot_mapping.device: "));
}

TEST_F(ServerDeviceTest, ARegionIsItsOwnersAndEndsWithItsName) {
  ASSERT_TRUE(Register(RegionOf("qkv")).ok());
  ASSERT_EQ(List().regions_size(), 1);
  EXPECT_FALSE(List().regions(0).dirty());
  const auto other =
      v1::PositionEmbeddingService::NewStub(testing::NewChannel(server_->listeners()[0]));
  v1::ApplyRoPEResponse response;
  EXPECT_EQ(testing::Call(*other, &Positions::ApplyRoPE, Fused("qkv"), &response).error_code(),
            Code::NOT_FOUND);
  EXPECT_EQ(Unregister("other").error_code(), Code::NOT_FOUND);
  ASSERT_TRUE(Unregister("qkv").ok());
  EXPECT_EQ(Apply(Fused("qkv")).error_code(), Code::NOT_FOUND);
  EXPECT_EQ(device_.open_mappings(), 0);
}

TEST_F(ServerDeviceTest, WhatIsWrongIsSaidWithItsField) {
  v1::RegisterRequest request = RegionOf("qkv");
  request.mutable_region()->mutable_cuda_ipc()->set_handle("x");
  EXPECT_THAT(Register(request).error_message(), HasSubstr("region.cuda_ipc.handle: 1 bytes"));
  request = RegionOf("qkv");
  request.mutable_region()->set_read_only(true);
  ASSERT_TRUE(Register(request).ok());
  const grpc::Status read_only = Apply(Fused("qkv"));
  EXPECT_EQ(read_only.error_code(), Code::PERMISSION_DENIED) << read_only.error_message();
  v1::ApplyRoPERequest rope = Fused("qkv");
  v1::RopeTensor& tensor = *rope.mutable_item()->mutable_tensors(0);
  tensor.mutable_tensor()->mutable_device()->set_offset_bytes(4096 - 4);
  EXPECT_THAT(Apply(rope).error_message(), HasSubstr("device.offset_bytes: "));
  rope = Fused("none");
  EXPECT_THAT(Apply(rope).error_message(), HasSubstr("tensors[0].tensor.device.region: "));
  rope = testing::RopeRequestOf(4);
  v1::TensorSpec& positions = *rope.mutable_item()->mutable_positions()->mutable_tensor();
  testing::SetShape(&positions, v1::DTYPE_INT64, {4});
  positions.mutable_device()->set_region("qkv");
  EXPECT_EQ(Apply(rope).error_code(), Code::UNIMPLEMENTED);
}

TEST_F(ServerDeviceTest, AnAbortedCallMakesItsRegionDirty) {
  ASSERT_TRUE(Register(RegionOf("qkv")).ok());
  Fill();
  device_.FailWith([](const std::string& call, int64_t) {
    return call == "Synchronize" ? absl::InternalError("fault") : absl::OkStatus();
  });
  EXPECT_EQ(Apply(Fused("qkv")).error_code(), Code::ABORTED);
  device_.FailWith(nullptr);
  EXPECT_TRUE(List().regions(0).dirty());
  EXPECT_EQ(Apply(Fused("qkv")).error_code(), Code::FAILED_PRECONDITION);
  ASSERT_TRUE(Unregister("qkv").ok());
  ASSERT_TRUE(Register(RegionOf("qkv")).ok());
  EXPECT_TRUE(Apply(Fused("qkv")).ok());
}

// 3 MiB of tensors on the device, which refuses the kernels: the CPU needs copies of them.
TEST_F(ServerDeviceTest, CopiesForTheCpuAreOfTheByteBudget) {
  constexpr int64_t kTokens = 32768;
  const auto memory = device_.Export(kTokens * 96);
  v1::RegisterRequest region = RegionOf("large");
  region.mutable_region()->set_size_bytes(kTokens * 96);
  region.mutable_region()->mutable_cuda_ipc()->set_handle(memory->handle_bytes());
  region.mutable_region()->mutable_cuda_ipc()->set_offset_bytes(0);
  ASSERT_TRUE(Register(region).ok());
  device_.FailWith([](const std::string& call, int64_t) {
    return call == "Run" ? absl::InternalError("refused") : absl::OkStatus();
  });
  ServerOptions options = Options("retry");
  options.max_inflight_bytes = 2 << 20;
  ASSERT_TRUE(server_->Reload(options).ok());
  const grpc::Status refused = Apply(Fused("large", kTokens));
  EXPECT_EQ(refused.error_code(), Code::RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.error_message(), HasSubstr("copies of the device's memory"));
  EXPECT_FALSE(List().regions(0).dirty());
  options.max_inflight_bytes = 4 << 20;
  ASSERT_TRUE(server_->Reload(options).ok());
  for (int i = 0; i < 3; ++i) {  // what was taken is given back
    const grpc::Status status = Apply(Fused("large", kTokens));
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(response_.result().info().backend(), "cpu");
  }
}

TEST_F(ServerDeviceTest, OneItemOfABatchIsAbortedAndNoOther) {
  ASSERT_TRUE(Register(RegionOf("qkv")).ok());
  Fill();
  v1::BatchApplyRoPERequest batch;
  *batch.add_items() = Inline().item();
  *batch.add_items() = Fused("qkv").item();
  *batch.mutable_raw() = Inline().raw();
  device_.FailWith([](const std::string& call, int64_t) {
    return call == "Synchronize" ? absl::InternalError("fault") : absl::OkStatus();
  });
  v1::BatchApplyRoPEResponse answer;
  const grpc::Status status =
      testing::Call(*positions_, &Positions::BatchApplyRoPE, batch, &answer);
  ASSERT_TRUE(status.ok()) << status.error_message();
  device_.FailWith(nullptr);
  ASSERT_EQ(answer.results_size(), 2);
  EXPECT_EQ(answer.results(1).status().code(), static_cast<int>(Code::ABORTED));
  EXPECT_EQ(answer.results(0).status().code(), 0);
  EXPECT_EQ(answer.results(0).info().backend(), "cpu") << "in the device's place";
  ASSERT_TRUE(Apply(Inline()).ok());
  EXPECT_EQ(answer.raw(0), response_.raw(0));
}

TEST_F(ServerDeviceTest, ItemsOfStreamsAreRotatedWhereTheyLie) {
  ASSERT_TRUE(Register(RegionOf("qkv")).ok());
  Fill();
  testing::TestContext context;
  const auto stream = positions_->StreamApplyRoPE(&context);
  v1::StreamApplyRoPERequest request;
  request.set_id(7);
  *request.mutable_item() = Fused("qkv").item();
  ASSERT_TRUE(stream->Write(request));
  v1::StreamApplyRoPEResponse answer;
  ASSERT_TRUE(stream->Read(&answer));
  EXPECT_EQ(answer.result().status().code(), 0) << answer.result().status().message();
  EXPECT_EQ(answer.result().info().backend(), "cuda");
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
  ASSERT_TRUE(Apply(Inline()).ok());
  const std::string want = Rows(response_.raw(0), response_.raw(1));
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(memory_->data() + 4096), want.size()), want);
}

TEST_F(ChoosingServerTest, AnswersNameWhatComputedThem) {
  ASSERT_TRUE(Apply(testing::RopeRequestOf(4)).ok());
  EXPECT_EQ(response_.result().info().backend(), "cpu");
  ASSERT_TRUE(Register(RegionOf("qkv")).ok());
  Fill();
  ASSERT_TRUE(Apply(Fused("qkv")).ok());
  EXPECT_EQ(response_.result().info().backend(), "cuda") << "it lies there";
  const auto counts = backend_.cuda().device_counts();
  EXPECT_EQ(counts.jobs_sooner_on_cpu, 1);
  EXPECT_EQ(counts.jobs, 1);
}

TEST_F(ServerDeviceTest, ALostDeviceIsToldOfAndRevivedWithoutACall) {
  EXPECT_EQ(Device().state(), v1::DEVICE_STATE_WORKING);
  EXPECT_EQ(Device().name(), "Fake GPU");
  EXPECT_TRUE(IsServing(channel_, "phasor.device"));
  backend_.Lose();
  EXPECT_EQ(Device().state(), v1::DEVICE_STATE_WAITING);
  EXPECT_EQ(Device().error(), "lost");
  EXPECT_EQ(Device().losses(), 1);
  EXPECT_FALSE(IsServing(channel_, "phasor.device"));
  EXPECT_TRUE(IsServing(channel_));
  ASSERT_TRUE(Apply(Inline()).ok());
  EXPECT_EQ(response_.result().info().backend(), "cpu") << "until its wait is over";
  EXPECT_EQ(Register(RegionOf("qkv")).error_code(), Code::UNAVAILABLE);
  seconds_ = 1;
  EXPECT_TRUE(testing::Eventually([&] { return IsServing(channel_, "phasor.device"); }));
  EXPECT_EQ(Device().state(), v1::DEVICE_STATE_WORKING);
  EXPECT_EQ(Device().revivals(), 1);
  ASSERT_TRUE(Apply(Inline()).ok());
  EXPECT_EQ(response_.result().info().backend(), "cuda") << "of a fresh context";
}

TEST_F(RestartingServerTest, ALostDeviceEndsServing) {
  std::atomic<int> asked = 0;
  server_->WhenRestartIsDue([&] { ++asked; });
  EXPECT_EQ(asked, 0);
  backend_.Lose();
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(Device().state(), v1::DEVICE_STATE_LOST);
  EXPECT_FALSE(IsServing(channel_));
  ASSERT_TRUE(Apply(Inline()).ok()) << "until the process ends";
  EXPECT_EQ(response_.result().info().backend(), "cpu");
  server_->WhenRestartIsDue([&] { ++asked; });
  EXPECT_EQ(asked, 2) << "at once, for who comes late";
}

}  // namespace
}  // namespace phasor
