// SPDX-License-Identifier: Apache-2.0
// Tests what the connection sends, and that it uses memory as promised. tests/e2e uses the real
// server.
#include "client/grpc/grpc_connection.h"

#include <poll.h>

#include <atomic>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "client/client.h"
#include "client/shared/lease_client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "phasor/v1/position_embedding_service.pb.h"
#include "phasor/v1/shared_memory_service.pb.h"
#include "tests/client/grpc/fake_server.h"
#include "tests/client/shared/answerer.h"
#include "tests/support/temp_dir.h"

namespace phasor::client_internal {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

Client ClientOf(const FakeServer& server) {
  auto connection = MakeGrpcConnection(server.target(), {});
  EXPECT_TRUE(connection.ok()) << connection.status();
  return Client(*connection);
}

// Answers ApplyRoPE with its own input.
FakeServer::Reply EchoRope(const FakeServer::Request& request) {
  v1::ApplyRoPERequest asked;
  EXPECT_TRUE(asked.ParseFromString(request.bytes));
  v1::ApplyRoPEResponse response;
  int raw = asked.item().positions().has_tensor() ? 1 : 0;
  for (const v1::RopeTensor& tensor : asked.item().tensors()) {
    *response.mutable_result()->add_tensors() = tensor.tensor();
    response.add_raw(asked.raw(raw++));
  }
  return {.bytes = response.SerializeAsString()};
}

TEST(GrpcConnectionTest, SendsTheItemThatTheCallDescribes) {
  v1::EncodeRequest asked;
  std::string method;
  FakeServer server([&](const FakeServer::Request& request) {
    method = request.method;
    EXPECT_TRUE(asked.ParseFromString(request.bytes));
    return FakeServer::Reply{.status = {grpc::StatusCode::NOT_FOUND, "seen"}};
  });
  const std::vector<double> embedding = {1, 2, 3, 4};
  EncodeCall call{.spec = {.preset = "transformer", .dim = 4}, .positions = {7}};
  call.output_dtype = Dtype::kFloat64;
  call.add_to = View(embedding, {1, 4});
  call.embedding_scale = 0.5;
  call.pins.backend = "cpu";
  EXPECT_EQ(ClientOf(server).Encode(call).status(), absl::NotFoundError("seen"));
  EXPECT_EQ(method, "/phasor.v1.PositionEmbeddingService/Encode");
  EXPECT_EQ(asked.item().spec().preset(), "transformer");
  EXPECT_EQ(asked.item().spec().dim(), 4);
  EXPECT_EQ(asked.item().output_dtype(), v1::DTYPE_FLOAT64);
  EXPECT_EQ(asked.item().embedding_scale(), 0.5);
  EXPECT_EQ(asked.item().pins().backend(), "cpu");
  ASSERT_EQ(asked.raw_size(), 2);
  EXPECT_EQ(asked.raw(0), std::string("\7\0\0\0\0\0\0\0", 8));
  EXPECT_EQ(asked.raw(1), std::string(reinterpret_cast<const char*>(embedding.data()), 32));
}

TEST(GrpcConnectionTest, GapsOfStridedTensorsDoNotTravel) {
  std::atomic<size_t> sent = 0;
  FakeServer server([&](const FakeServer::Request& request) {
    sent = request.bytes.size();
    return EchoRope(request);
  });
  std::vector<float> fused(64 * 1024, 1);
  auto info = ClientOf(server).ApplyRoPE({.preset = "rope-half-split"}, IntegerRange{.count = 64},
                                         {MutableView(fused, {64, 1, 4}, {1024, 4, 1})});
  EXPECT_TRUE(info.ok()) << info.status();
  EXPECT_LT(sent, 2000u);
  EXPECT_THAT(fused, Each(1));
}

TEST(GrpcConnectionTest, RetriedInPlaceCallsSendTheOriginalBytes) {
  std::vector<std::string> seen;
  FakeServer server([&](const FakeServer::Request& request) {
    if (request.method.ends_with("GetServerInfo")) {  // large tensors: is there shared memory?
      return FakeServer::Reply{.status = {grpc::StatusCode::UNIMPLEMENTED, ""}};
    }
    seen.push_back(request.bytes);
    if (seen.size() == 1) {
      return FakeServer::Reply{.status = {grpc::StatusCode::UNAVAILABLE, "busy"},
                               .pushback_ms = "0"};
    }
    return EchoRope(request);
  });
  std::vector<float> x(1 << 18);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
  const std::vector<float> before = x;
  auto info = ClientOf(server).ApplyRoPE({.preset = "rope-half-split"}, IntegerRange{.count = 1024},
                                         {MutableView(x, {1024, 2, 128})});
  EXPECT_TRUE(info.ok()) << info.status();
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(seen[0], seen[1]);
  EXPECT_EQ(x, before);  // the echo
}

// A server whose lease socket answers late: memory is ordinary if it must be there before.
TEST(GrpcConnectionTest, ADeadlineEndsTheWaitForSharedMemory) {
  const testing::TempDir dir;
  const std::string path = dir.path() + "/s";
  FakeServer server([&](const FakeServer::Request&) {
    v1::GetServerInfoResponse info;
    info.set_lease_socket(path);
    info.set_lease_instance("me");
    return FakeServer::Reply{.bytes = info.SerializeAsString()};
  });
  absl::Notification late;
  const Answerer answerer(path, {"OK one me\n", "OK two me\n"}, &late, 1);
  const Client client = ClientOf(server);
  const auto memory = client.AllocateShared(64);
  ASSERT_TRUE(memory.ok() && memory->shared()) << memory.status();
  EXPECT_EQ(client.AllocateShared(-1).status(), SharedMemory::Ordinary(-1).status());
  const Later answers([&] { late.Notify(); });
  const auto soon = client.AllocateShared(64, {.timeout = absl::Nanoseconds(1)});
  EXPECT_TRUE(soon.ok() && !soon->shared()) << soon.status();
}

// As many clients wait for the lease socket as may.
TEST(GrpcConnectionTest, ADeadlineEndsTheWaitForTheLeaseSocket) {
  const testing::TempDir dir;
  const std::string path = dir.path() + "/s";
  const int listener = ListenAt(path, /*backlog=*/0);
  const auto other = LeaseClient::Connect(path, "me");
  FakeServer server([&](const FakeServer::Request&) {
    v1::GetServerInfoResponse info;
    info.set_lease_socket(path);
    return FakeServer::Reply{.bytes = info.SerializeAsString()};
  });
  {
    const Later accepts([&] { close(accept(listener, nullptr, nullptr)); });
    const auto memory = ClientOf(server).AllocateShared(64, {.timeout = absl::Seconds(1)});
    EXPECT_TRUE(memory.ok() && !memory->shared()) << memory.status();
  }
  pollfd next = {listener, POLLIN, 0};
  EXPECT_EQ(poll(&next, 1, 0), 0) << "it has waited for its turn";
  close(listener);
}

// A server that refuses rotations, and says when to come back if it has not begun them.
class DeviceCallsTest : public ::testing::Test {
 protected:
  static CudaIpcAllocation Allocation() {
    return {.handle = std::string(64, 'h'),
            .offset_bytes = 512,
            .size_bytes = 4096,
            .device_uuid = "GPU-1",
            .read_only = true};
  }
  int Attempts(const RopeTensor& tensor, const std::string& pushback_ms) {
    calls_.clear();
    pushback_ms_ = pushback_ms;
    const absl::Status status =
        client_.ApplyRoPE({.preset = "rope-half-split"}, {1, 2}, {tensor}).status();
    EXPECT_EQ(status, absl::UnavailableError("busy"));
    return static_cast<int>(calls_.size());
  }

  std::string pushback_ms_;
  FakeServer::Reply on_register_;
  absl::Notification unregistered_;
  std::vector<FakeServer::Request> calls_, of_regions_;
  FakeServer server_{[this](const FakeServer::Request& request) {
    if (request.method.starts_with("/phasor.v1.SharedMemoryService/")) {
      of_regions_.push_back(request);
      if (!request.method.ends_with("Unregister")) return on_register_;
      if (!unregistered_.HasBeenNotified()) unregistered_.Notify();
      return FakeServer::Reply{};
    }
    calls_.push_back(request);
    return FakeServer::Reply{.status = {grpc::StatusCode::UNAVAILABLE, "busy"},
                             .pushback_ms = pushback_ms_};
  }};
  Client client_ = *Client::Connect(server_.target(), {.channels = 3});
  const TensorDesc desc_{Dtype::kFloat32, {2, 1, 8}, {}};
};

TEST_F(DeviceCallsTest, MemoryIsRegisteredAsItIsDescribedAndUnregisteredOnce) {
  auto memory = client_.RegisterDeviceMemory(Allocation());
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_TRUE(memory->Release().ok());
  EXPECT_TRUE(memory->Release().ok());
  ASSERT_EQ(of_regions_.size(), 2u);
  v1::RegisterRequest asked;
  ASSERT_TRUE(asked.ParseFromString(of_regions_[0].bytes));
  EXPECT_EQ(asked.region().size_bytes(), 4096);
  EXPECT_TRUE(asked.region().read_only());
  EXPECT_EQ(asked.region().cuda_ipc().handle(), std::string(64, 'h'));
  EXPECT_EQ(asked.region().cuda_ipc().offset_bytes(), 512);
  EXPECT_EQ(asked.region().cuda_ipc().device_uuid(), "GPU-1");
  v1::UnregisterRequest ended;
  ASSERT_TRUE(ended.ParseFromString(of_regions_[1].bytes));
  EXPECT_EQ(ended.name(), asked.region().name());
  memory = client_.RegisterDeviceMemory(Allocation());
  ASSERT_TRUE(memory.ok()) << memory.status();
  v1::RegisterRequest second;
  ASSERT_TRUE(second.ParseFromString(of_regions_[2].bytes));
  EXPECT_NE(second.region().name(), asked.region().name());
}

TEST_F(DeviceCallsTest, WhatMayHaveBeenRegisteredIsUnregistered) {
  on_register_.status = {grpc::StatusCode::UNAVAILABLE, "broken"};
  EXPECT_EQ(client_.RegisterDeviceMemory(Allocation()).status(), absl::UnavailableError("broken"));
  unregistered_.WaitForNotification();
  ASSERT_EQ(of_regions_.size(), 2u) << "it is not tried again";
  v1::RegisterRequest asked;
  v1::UnregisterRequest ended;
  ASSERT_TRUE(asked.ParseFromString(of_regions_[0].bytes));
  ASSERT_TRUE(ended.ParseFromString(of_regions_[1].bytes));
  EXPECT_EQ(ended.name(), asked.region().name());
}

TEST_F(DeviceCallsTest, WhatWasRefusedIsNotUnregistered) {
  on_register_.status = {grpc::StatusCode::INVALID_ARGUMENT, "region: wrong"};
  EXPECT_EQ(client_.RegisterDeviceMemory(Allocation()).status(),
            absl::InvalidArgumentError("region: wrong"));
  on_register_.status = grpc::Status::OK;
  EXPECT_TRUE(client_.RegisterDeviceMemory(Allocation())->Release().ok());
  EXPECT_EQ(of_regions_.size(), 3u);
}

TEST_F(DeviceCallsTest, OutputsThereAreNotWrittenTwice) {
  const auto memory = client_.RegisterDeviceMemory(Allocation());
  ASSERT_TRUE(memory.ok()) << memory.status();
  std::vector<float> x(16);
  const MutableTensorView there = memory->View(desc_), elsewhere = memory->View(desc_, 1024);
  const MutableTensorView here = MutableView(x, {2, 1, 8});
  EXPECT_EQ(Attempts(there, ""), 1) << "it may have begun";
  EXPECT_EQ(Attempts({there, elsewhere}, ""), 1);
  EXPECT_EQ(Attempts({here, elsewhere}, ""), 1);
  EXPECT_EQ(Attempts(there, "0"), 3) << "it was refused";
  EXPECT_EQ(Attempts({there, here}, ""), 3) << "only read";
}

TEST_F(DeviceCallsTest, TheConnectionIsTheOneThatTheServerKnowsTheMemoryBy) {
  const auto memory = client_.RegisterDeviceMemory(Allocation());
  ASSERT_TRUE(memory.ok()) << memory.status();
  const std::string peer = of_regions_[0].peer;
  std::vector<float> x(16);
  bool others = false;
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(Attempts(memory->View(desc_), ""), 1);
    EXPECT_EQ(calls_[0].peer, peer);
    Attempts(MutableView(x, {2, 1, 8}), "-1");
    others |= calls_[0].peer != peer;
  }
  EXPECT_TRUE(others);
}

TEST(GrpcConnectionTest, BatchItemsThatCannotBeSentTravelEmpty) {
  v1::BatchEncodeRequest asked;
  FakeServer server([&](const FakeServer::Request& request) {
    EXPECT_TRUE(asked.ParseFromString(request.bytes));
    v1::BatchEncodeResponse response;
    for (int i = 0; i < asked.items_size(); ++i) {
      response.add_results()->mutable_status()->set_code(5);
    }
    return FakeServer::Reply{.bytes = response.SerializeAsString()};
  });
  const std::vector<float> small(1);
  std::vector<EncodeCall> calls(2);
  calls[0].add_to = View(small, {1, 4});
  calls[1].spec.preset = "p";
  auto results = ClientOf(server).BatchEncode(calls);
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_EQ((*results)[0].status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ((*results)[1].status().code(), absl::StatusCode::kNotFound);
  ASSERT_EQ(asked.items_size(), 2);
  EXPECT_FALSE(asked.items(0).has_spec());
  EXPECT_EQ(asked.items(1).spec().preset(), "p");
  EXPECT_EQ(asked.raw_size(), 0);
}

TEST(GrpcConnectionTest, DropsAnswersThatComeAfterTheDeadlineUnread) {
  std::vector<float> x = {1, 2, 3, 4};
  FakeServer server([](const auto&) { return FakeServer::Reply{.never = true}; });
  auto info =
      ClientOf(server).ApplyRoPE({.preset = "rope-half-split"}, {1}, {MutableView(x, {1, 1, 4})},
                                 {.timeout = absl::Milliseconds(100)});
  EXPECT_EQ(info.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(x, ElementsAre(1, 2, 3, 4));
}

TEST(GrpcConnectionTest, AsksTheStandardHealthService) {
  FakeServer server([](const FakeServer::Request& request) {
    EXPECT_EQ(request.method, "/grpc.health.v1.Health/Check");
    EXPECT_EQ(request.bytes, "\x0A\x01s");
    return FakeServer::Reply{.bytes = "\x08\x02"};
  });
  EXPECT_EQ(*ClientOf(server).CheckHealth("s"), Health::kNotServing);
}

}  // namespace
}  // namespace phasor::client_internal
