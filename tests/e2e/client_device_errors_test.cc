// SPDX-License-Identifier: Apache-2.0
// Tests GPU memory end to end: what is refused, and what happens when it or the server ends.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "tests/e2e/device_server.h"
#include "tests/support/eventually.h"
#include "tests/support/status_matchers.h"

namespace phasor {
namespace {

using ::phasor::testing::IsOk;
using ::phasor::testing::kInvalid;
using ::phasor::testing::StatusIs;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class ClientDeviceErrorsTest : public ClientDeviceTest {
 protected:
  static RopeCall Rope(std::vector<RopeTensor> tensors) {
    return {.spec = kLlama, .positions = IntegerRange{.count = 4}, .tensors = std::move(tensors)};
  }
  absl::Status Apply(RopeCall call) const { return tcp_.ApplyRoPE(std::move(call)).status(); }
  // Until gRPC, which waits before it connects to where nobody was, has a connection again.
  absl::Status ApplyAgain(const RopeCall& call) const {
    absl::Status status = absl::UnavailableError("");
    testing::Eventually([&] {
      status = Apply(call);
      return !absl::IsUnavailable(status);
    });
    return status;
  }
};

TEST_F(ClientDeviceErrorsTest, WhatCannotBeRegisteredIsSaidWithItsField) {
  const auto refused = [&](const CudaIpcAllocation& allocation, const std::string& message) {
    for (const Client& client : {tcp_, unix_}) {
      EXPECT_THAT(client.RegisterDeviceMemory(allocation).status(),
                  StatusIs(kInvalid, StartsWith(message)));
    }
  };
  CudaIpcAllocation wrong = Allocation();
  wrong.handle.pop_back();
  refused(wrong, "region.cuda_ipc.handle: 63 bytes; must be 64");
  wrong.handle = std::string(64, 'x');
  refused(wrong, "region.cuda_ipc.handle: ");
  wrong = Allocation();
  wrong.device_uuid.clear();
  refused(wrong, "region.cuda_ipc.device_uuid: not set");
  wrong.device_uuid = "GPU-ffffffff-0405-0607-0809-0a0b0c0d0e0f";
  refused(wrong, "region.cuda_ipc.device_uuid: 'GPU-ffffffff");
  for (const int64_t size : {int64_t{-1}, int64_t{0}, memory_->bytes() - kOffset + 1, INT64_MAX}) {
    wrong = Allocation();
    wrong.size_bytes = size;
    refused(wrong, "region.size_bytes: ");
  }
  wrong = Allocation();
  wrong.offset_bytes = -1;
  refused(wrong, "region.size_bytes: ");
  EXPECT_EQ(device().open_mappings(), 0);
}

TEST_F(ClientDeviceErrorsTest, WhereThereIsNoDeviceNothingIsRegistered) {
  EXPECT_EQ(tcp_.GetServerInfo()->device_uuid, Allocation().device_uuid);
  EXPECT_EQ(here_.GetServerInfo()->device_uuid, "");
  EXPECT_THAT(here_.RegisterDeviceMemory(Allocation()).status(),
              StatusIs(absl::StatusCode::kUnimplemented, StartsWith("device memory: not taken")));
  for (const std::string target : {"dns:///elsewhere:1", "ipv4:127.0.0.1:1,127.0.0.1:2"}) {
    EXPECT_THAT(Connect(target).RegisterDeviceMemory(Allocation()).status(),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         StartsWith("target: not one server of this host")));
  }
  server_.reset();
  ServerOptions options;
  options.shared_memory = true;
  Start(options);
  EXPECT_EQ(tcp_.GetServerInfo()->device_uuid, "");
  EXPECT_THAT(tcp_.RegisterDeviceMemory(Allocation()).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("uses no device")));
  server_.reset();
  backend_ = std::make_unique<testing::DeviceBackend>();
  Start({}, backend_->Take());
  EXPECT_THAT(tcp_.RegisterDeviceMemory(Allocation()).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("--shared-memory")));
}

TEST_F(ClientDeviceErrorsTest, ViewsThatDoNotFitAreSaidWithTheirField) {
  const DeviceMemory memory = Register(tcp_, Allocation());
  const int64_t size = memory.size();
  EXPECT_THAT(Apply(Rope({memory.View(Heads(4, 1), size - 1020)})),
              StatusIs(kInvalid,
                       "item.tensors[0].tensor: 1020 bytes of memory; must be the "
                       "1024 that FLOAT32 [4, 1, 64] spans"));
  for (const int64_t offset : {int64_t{-4}, size + 1, INT64_MIN, INT64_MAX}) {
    EXPECT_THAT(Apply(Rope({{memory.View(Heads(4, 1)), memory.View(Heads(4, 1), offset)}})),
                StatusIs(kInvalid, StartsWith("item.tensors[0].output.device.offset_bytes: ")));
  }
  EXPECT_THAT(Apply(Rope({memory.View(Heads(4, 1), 2)})),
              StatusIs(kInvalid, HasSubstr("destination.device.offset_bytes: 2")));
  EXPECT_THAT(Apply(Rope({{memory.View(Heads(4, 1)), memory.View(Heads(4, 1), 256)}})),
              StatusIs(kInvalid, HasSubstr("overlaps item.tensors[0]")));
  EXPECT_THAT(
      Apply(Rope({{memory.View(Heads(4, 1)), memory.View(Heads(4, 1, {128, 64, 1}))}})),
      StatusIs(kInvalid, StartsWith("item.tensors[0].output: in place with other strides")));
  std::vector<float> x(4 * kHead);
  EXPECT_THAT(Apply(Rope({{View(x, {4, 1, kHead}), memory.View(Heads(4, 1, {128, 64, 1}))}})),
              StatusIs(kInvalid, StartsWith("item.tensors[0].output.strides: given")));
  EXPECT_THAT(tcp_.Encode({.preset = "transformer", .dim = 32}, {1, 2},
                          memory.View({Dtype::kFloat32, {64}, {}}))
                  .status(),
              StatusIs(kInvalid, StartsWith("item.output.shape: 1 dimensions")));
  EXPECT_THAT(tcp_.Encode({.preset = "transformer", .dim = 32}, {1, 2},
                          memory.View({Dtype::kFloat32, {2, 33}, {}}))
                  .status(),
              StatusIs(kInvalid, StartsWith("item.destination: ")));
}

TEST_F(ClientDeviceErrorsTest, WhatStaysOnTheHostIsRefused) {
  const DeviceMemory memory = Register(tcp_, Allocation());
  const MutableTensorView tensor = memory.View(Heads(4, 1));
  const auto refused = [&](const absl::Status& status, const std::string& path) {
    EXPECT_THAT(status, StatusIs(kInvalid, path + ": memory of a GPU; must be of the host"));
  };
  RopeCall call = Rope({tensor});
  refused(tcp_.ApplyRoPEInChunks(call).status(), "item.tensors[0].tensor");
  refused(here_.ApplyRoPE(call).status(), "item.tensors[0].tensor");
  refused(here_.StreamApplyRoPE()->Write(1, call), "item.tensors[0].tensor");
  refused(here_
              .Encode({.preset = "transformer", .dim = 32}, {1, 2},
                      memory.View({Dtype::kFloat32, {2, 32}, {}}))
              .status(),
          "item.output");
  call.positions = memory.View({Dtype::kInt64, {4}, {}}, 4096);
  refused(Apply(call), "item.positions.tensor");
  std::vector<float> k(4 * kHead);
  call = Rope({{View(k, {4, 1, kHead}), memory.View({Dtype::kFloat32, {1, 4, 1, kHead}, {}})}});
  call.paged = PagedWrite{.values = {View(k, {4, 1, kHead}),
                                     memory.View({Dtype::kFloat32, {1, 4, 1, kHead}, {}}, 1024)},
                          .slot_mapping = memory.View({Dtype::kInt32, {4}, {}}, 4096)};
  refused(Apply(call), "item.paged_cache.slot_mapping");
  BiasCall bias{.spec = {.preset = "alibi"}, .heads = 2};
  bias.query_positions = bias.key_positions = IntegerRange{.count = 8};
  bias.output = memory.View({Dtype::kFloat32, {2, 8, 8}, {}});
  refused(tcp_.AttentionBias(bias).status(), "item.output");
  refused(tcp_.CreateTable("t", memory.View({Dtype::kFloat32, {4, 64}, {}})).status(), "table");
}

TEST_F(ClientDeviceErrorsTest, AReadOnlyRegistrationIsForInputs) {
  const DeviceMemory memory = Register(tcp_, Allocation(/*read_only=*/true));
  std::vector<float> out(4 * kHead);
  EXPECT_THAT(Apply(Rope({{memory.View(Heads(4, 1)), MutableView(out, {4, 1, kHead})}})), IsOk());
  EXPECT_EQ(Apply(Rope({memory.View(Heads(4, 1))})).code(), absl::StatusCode::kPermissionDenied);
}

TEST_F(ClientDeviceErrorsTest, OtherClientsAndReleasedMemoryAreRefused) {
  DeviceMemory memory = Register(tcp_, Allocation());
  const RopeCall call = Rope({memory.View(Heads(4, 1))});
  EXPECT_EQ(
      unix_.ApplyRoPE(call).status(),
      absl::InvalidArgumentError("item.tensors[0].tensor: memory of a GPU; must be registered "
                                 "with this client"));
  ASSERT_THAT(Apply(call), IsOk());
  ASSERT_THAT(memory.Release(), IsOk());
  EXPECT_EQ(Apply(call),
            absl::FailedPreconditionError("item.tensors[0].tensor: memory of a GPU that was "
                                          "released; must be registered"));
  const auto batch = tcp_.BatchApplyRoPE({call});
  ASSERT_THAT(batch, IsOk());
  EXPECT_EQ((*batch)[0].status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(tcp_.StreamApplyRoPE()->Write(1, call).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Apply(Rope({DeviceMemory().View(Heads(4, 1))})).code(), kInvalid);
}

TEST_F(ClientDeviceErrorsTest, ReleaseSaysWhenACallStillUsesTheMemory) {
  DeviceMemory memory = Register(tcp_, Allocation());
  absl::Notification computing, go_on;
  device().FailWith([&](const std::string& call, int64_t) {
    if (call != "Synchronize" || computing.HasBeenNotified()) return absl::OkStatus();
    computing.Notify();
    go_on.WaitForNotification();
    return absl::OkStatus();
  });
  auto done = tcp_.ApplyRoPEAsync(Rope({memory.View(Heads(4, 1))}));
  computing.WaitForNotification();
  EXPECT_EQ(memory.Release(absl::Milliseconds(50)).code(), absl::StatusCode::kDeadlineExceeded);
  go_on.Notify();
  EXPECT_THAT(done.get(), IsOk());
}

TEST_F(ClientDeviceErrorsTest, WhenItsServerEndsMemoryIsRegisteredAgain) {
  DeviceMemory memory = Register(tcp_, Allocation());
  const RopeCall call = Rope({memory.View(Heads(4, 1))});
  ASSERT_THAT(Apply(call), IsOk());
  const std::string address = server_->listeners()[0];
  server_.reset();
  backend_ = std::make_unique<testing::DeviceBackend>();
  const auto memory_there = device().Export(8192 + kOffset);
  ServerOptions options;
  options.shared_memory = true;
  options.listen = {address};
  options.log_level = "off";
  auto server = Server::Start(options, backend_->Take());
  ASSERT_THAT(server, IsOk());
  server_ = *std::move(server);
  EXPECT_THAT(ApplyAgain(call), StatusIs(absl::StatusCode::kNotFound,
                                         StartsWith("item.tensors[0].tensor.device.region: ")));
  EXPECT_EQ(memory.Release().code(), absl::StatusCode::kNotFound);
  CudaIpcAllocation allocation = Allocation();
  allocation.handle = memory_there->handle_bytes();
  allocation.size_bytes = 8192;
  memory = Register(tcp_, allocation);
  EXPECT_THAT(Apply(Rope({memory.View(Heads(4, 1))})), IsOk());
}

TEST_F(ClientDeviceErrorsTest, AnAbortedCallMakesTheMemoryDirtyUntilItIsRegisteredAgain) {
  DeviceMemory memory = Register(tcp_, Allocation());
  device().FailWith([](const std::string& call, int64_t) {
    return call == "Synchronize" ? absl::InternalError("fault") : absl::OkStatus();
  });
  EXPECT_EQ(Apply(Rope({memory.View(Heads(4, 1))})).code(), absl::StatusCode::kAborted);
  device().FailWith(nullptr);
  EXPECT_THAT(Apply(Rope({memory.View(Heads(4, 1))})),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("dirty")));
  memory = Register(tcp_, Allocation());
  EXPECT_THAT(Apply(Rope({memory.View(Heads(4, 1))})), IsOk());
  EXPECT_THAT(memory.Release(), IsOk());
  EXPECT_EQ(device().open_mappings(), 0);
}

}  // namespace
}  // namespace phasor
