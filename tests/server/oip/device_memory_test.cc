// SPDX-License-Identifier: Apache-2.0
// Tests CUDA shared memory as Triton's clients use it, in a whole server with a fake device:
// results have the same bytes as those of inline tensors, and are computed in place.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "inference/grpc_service.grpc.pb.h"
#include "server/oip/service.h"
#include "tests/server/oip/requests.h"
#include "tests/support/device_backend.h"
#include "tests/support/running_server.h"
#include "tests/support/shared_memory.h"

namespace phasor::oip {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Code = grpc::StatusCode;

class OipDeviceMemoryTest : public ::testing::Test {
 protected:
  using S = inference::GRPCInferenceService::Stub;

  template <typename Request, typename Response>
  grpc::Status Call(grpc::Status (S::*call)(grpc::ClientContext*, const Request&, Response*),
                    const Request& request, Response* response) {
    testing::TestContext context;
    const grpc::Status status = (*stub_.*call)(&context, request, response);
    dirty_.clear();
    for (const auto& [key, value] : context.GetServerTrailingMetadata()) {
      if (key == "phasor-dirty-region-bin") dirty_.emplace_back(value.data(), value.size());
    }
    return status;
  }
  grpc::Status Register(const std::string& name, int64_t bytes = 8192, int64_t device_id = 0) {
    inference::CudaSharedMemoryRegisterRequest request;
    request.set_name(name);
    request.set_raw_handle(memory_->handle_bytes());
    request.set_byte_size(static_cast<uint64_t>(bytes));
    request.set_device_id(device_id);
    inference::CudaSharedMemoryRegisterResponse response;
    return Call(&S::CudaSharedMemoryRegister, request, &response);
  }
  inference::CudaSharedMemoryStatusResponse Status() {
    inference::CudaSharedMemoryStatusResponse response;
    EXPECT_TRUE(
        Call(&S::CudaSharedMemoryStatus, inference::CudaSharedMemoryStatusRequest(), &response)
            .ok());
    return response;
  }
  grpc::Status Unregister(const std::string& name) {
    inference::CudaSharedMemoryUnregisterRequest request;
    request.set_name(name);
    inference::CudaSharedMemoryUnregisterResponse response;
    return Call(&S::CudaSharedMemoryUnregister, request, &response);
  }
  grpc::Status Infer(const inference::ModelInferRequest& request) {
    return Call(&S::ModelInfer, request, &response_);
  }

  // Puts the bytes of input `i` on the device instead.
  void Move(inference::ModelInferRequest& request, int i, int64_t offset,
            const std::string& region = "mem") {
    const std::string bytes = request.raw_input_contents(raw_of_[static_cast<size_t>(i)]);
    std::memcpy(memory_->data() + offset, bytes.data(), bytes.size());
    SetRegion(region, static_cast<int64_t>(bytes.size()), offset,
              request.mutable_inputs(i)->mutable_parameters());
    auto* const raw = request.mutable_raw_input_contents();
    raw->DeleteSubrange(raw_of_[static_cast<size_t>(i)], 1);
    for (size_t k = static_cast<size_t>(i) + 1; k < raw_of_.size(); ++k) --raw_of_[k];
  }
  void Want(inference::ModelInferRequest& request, const std::string& name, int64_t bytes,
            int64_t offset) {
    request.add_outputs()->set_name(name);
    SetRegion("mem", bytes, offset,
              request.mutable_outputs(request.outputs_size() - 1)->mutable_parameters());
  }
  std::string Memory(int64_t offset, size_t bytes) const {
    return {reinterpret_cast<const char*>(memory_->data() + offset), bytes};
  }

  testing::DeviceBackend backend_;
  testing::FakeDevice& device_ = backend_.device();
  std::shared_ptr<testing::FakeExport> memory_ = device_.Export(8192);
  const std::unique_ptr<Server> server_ =
      testing::StartServer(testing::SharedMemoryOptions(), backend_.Take());
  const std::unique_ptr<S> stub_ =
      inference::GRPCInferenceService::NewStub(testing::NewChannel(server_->listeners()[0]));
  inference::ModelInferResponse response_;
  std::vector<int> raw_of_ = {0, 1, 2};  // entries of the inputs of a request
  std::vector<std::string> dirty_;       // regions that the last answer named as such
};

TEST_F(OipDeviceMemoryTest, RegionsAreRegisteredListedAndClosed) {
  inference::ServerMetadataResponse metadata;
  ASSERT_TRUE(Call(&S::ServerMetadata, inference::ServerMetadataRequest(), &metadata).ok());
  EXPECT_THAT(metadata.extensions(), Contains("cuda_shared_memory"));
  ASSERT_TRUE(Register("mem", 8192, 3).ok());
  EXPECT_EQ(Register("mem").error_code(), Code::ALREADY_EXISTS);
  const auto seen = Status();
  ASSERT_EQ(seen.regions_size(), 1);
  EXPECT_EQ(seen.regions().at("mem").byte_size(), 8192u);
  EXPECT_EQ(seen.regions().at("mem").device_id(), 3u) << "what the client calls it";
  EXPECT_TRUE(dirty_.empty());
  EXPECT_TRUE(Unregister("mem").ok());
  EXPECT_TRUE(Unregister("mem").ok()) << "a name that is not known is no error";
  EXPECT_EQ(device_.open_mappings(), 0);
  ASSERT_TRUE(Register("mem").ok());
  EXPECT_TRUE(Unregister("").ok());
  EXPECT_EQ(Status().regions_size(), 0);
}

TEST_F(OipDeviceMemoryTest, WhatCannotBeOpenedIsRefusedWithItsField) {
  EXPECT_EQ(Register("mem", 8193).error_code(), Code::INVALID_ARGUMENT);
  EXPECT_THAT(Register("mem", 8193).error_message(), HasSubstr("byte_size: 8193 bytes from 0"));
  EXPECT_THAT(Register("mem", -1).error_message(), HasSubstr("byte_size: "));
  EXPECT_THAT(Register("mem", 10, -1).error_message(), HasSubstr("device_id: -1"));
  inference::CudaSharedMemoryRegisterRequest request;
  inference::CudaSharedMemoryRegisterResponse response;
  request.set_name("mem");
  request.set_byte_size(1);
  for (const size_t bytes : {0, 63, 64, 65}) {
    request.set_raw_handle(std::string(bytes, 'h'));
    const grpc::Status status = Call(&S::CudaSharedMemoryRegister, request, &response);
    EXPECT_EQ(status.error_code(), Code::INVALID_ARGUMENT) << bytes;
    EXPECT_THAT(status.error_message(), HasSubstr("raw_handle: "));
  }
  EXPECT_EQ(device_.open_mappings(), 0);
}

TEST_F(OipDeviceMemoryTest, NamesAreOneSetWithThoseOfTheHostsMemory) {
  const testing::SharedMemory memory("0123456789");
  inference::SystemSharedMemoryRegisterRequest add;
  inference::SystemSharedMemoryRegisterResponse added;
  add.set_name("host");
  add.set_key(memory.key());
  add.set_byte_size(10);
  ASSERT_TRUE(Call(&S::SystemSharedMemoryRegister, add, &added).ok());
  EXPECT_EQ(Register("host").error_code(), Code::ALREADY_EXISTS);
  ASSERT_TRUE(Register("mem").ok());
  add.set_name("mem");
  EXPECT_EQ(Call(&S::SystemSharedMemoryRegister, add, &added).error_code(), Code::ALREADY_EXISTS);
}

TEST_F(OipDeviceMemoryTest, TensorsAreRotatedWhereTheyLie) {
  ASSERT_TRUE(Infer(RotateAt(7)).ok());
  const std::string q = response_.raw_output_contents(0), k = response_.raw_output_contents(1);
  ASSERT_TRUE(Register("mem").ok());
  inference::ModelInferRequest request = RotateAt(7);
  for (const int i : {0, 1, 2}) Move(request, i, 512 * i);
  Want(request, "Q_OUT", 64, 512);    // in place
  Want(request, "K_OUT", 100, 2048);  // elsewhere
  const int64_t trips_back = device_.calls("CopyToHost");
  ASSERT_TRUE(Infer(request).ok());
  EXPECT_EQ(Memory(512, q.size()), q);
  EXPECT_EQ(Memory(2048, k.size()), k);
  EXPECT_EQ(Memory(1024, k.size()), BytesOfValues(std::vector<float>(8, 1.0F)));
  EXPECT_EQ(device_.calls("CopyToHost") - trips_back, 1) << "positions only";
  ASSERT_EQ(response_.raw_output_contents_size(), 2);
  EXPECT_EQ(response_.raw_output_contents(0), "");
}

TEST_F(OipDeviceMemoryTest, SomeTensorsMayBeInTheMessage) {
  ASSERT_TRUE(Infer(RotateAt(7)).ok());
  const std::string q = response_.raw_output_contents(0), k = response_.raw_output_contents(1);
  ASSERT_TRUE(Register("mem").ok());
  inference::ModelInferRequest request = RotateAt(7);
  Move(request, 2, 1024);
  Want(request, "Q_OUT", 64, 4096);
  request.add_outputs()->set_name("K_OUT");
  ASSERT_TRUE(Infer(request).ok());
  EXPECT_EQ(Memory(4096, q.size()), q);
  EXPECT_EQ(response_.raw_output_contents(1), k);
}

TEST_F(OipDeviceMemoryTest, EncodingsAndBiasesGoThere) {
  ASSERT_TRUE(Infer(EncodeAt({1, 2})).ok());
  const std::string rows = response_.raw_output_contents(0);
  ASSERT_TRUE(Register("mem").ok());
  inference::ModelInferRequest request = EncodeAt({1, 2});
  Want(request, "ENCODING", 64, 64);
  ASSERT_TRUE(Infer(request).ok());
  EXPECT_EQ(Memory(64, rows.size()), rows);

  inference::ModelInferRequest bias;
  bias.set_model_name("alibi");
  (*bias.mutable_parameters())["heads"].set_int64_param(2);
  for (const char* const name : {"QUERY_POSITIONS", "KEY_POSITIONS"}) {
    AddInput(name, "INT64", {3}, &bias);
    bias.add_raw_input_contents(BytesOfValues<int64_t>({0, 1, 2}));
  }
  ASSERT_TRUE(Infer(bias).ok());
  const std::string scores = response_.raw_output_contents(0);
  Want(bias, "BIAS", 72, 256);
  ASSERT_TRUE(Infer(bias).ok());
  EXPECT_EQ(Memory(256, scores.size()), scores);
}

TEST_F(OipDeviceMemoryTest, ResultsOverlapNothingButTheirOwnInput) {
  ASSERT_TRUE(Register("mem").ok());
  ASSERT_TRUE(Register("again").ok()) << "another name for the same bytes";
  for (const int64_t offset : {512 + 32, 1024, 512 - 32}) {
    raw_of_ = {0, 1, 2};
    inference::ModelInferRequest request = RotateAt(7);
    Move(request, 1, 512);
    Move(request, 2, 1024, "again");
    Want(request, "Q_OUT", 64, offset);
    const grpc::Status status = Infer(request);
    EXPECT_EQ(status.error_code(), Code::INVALID_ARGUMENT) << offset;
    EXPECT_THAT(status.error_message(), HasSubstr("outputs[0]: overlaps inputs["));
  }
}

TEST_F(OipDeviceMemoryTest, RangesAreInsideTheRegion) {
  ASSERT_TRUE(Register("mem", 1024).ok());
  inference::ModelInferRequest request = RotateAt(7);
  Want(request, "Q_OUT", 64, 1024 - 60);
  EXPECT_EQ(Infer(request).error_code(), Code::INVALID_ARGUMENT);
  (*request.mutable_outputs(0)->mutable_parameters())["shared_memory_offset"].set_int64_param(
      INT64_MAX);
  EXPECT_EQ(Infer(request).error_code(), Code::INVALID_ARGUMENT);
  request.clear_outputs();
  Want(request, "Q_OUT", 60, 0);
  EXPECT_THAT(Infer(request).error_message(), HasSubstr("must be at least 64"));
}

TEST_F(OipDeviceMemoryTest, AFaultInPlaceIsAbortedAndTheRegionDirty) {
  ASSERT_TRUE(Register("mem").ok());
  inference::ModelInferRequest request = RotateAt(7);
  Move(request, 1, 512);
  Want(request, "Q_OUT", 64, 512);
  device_.FailWith([&](const std::string& call, int64_t) {
    return call == "Synchronize" ? absl::InternalError("fault") : absl::OkStatus();
  });
  const grpc::Status status = Infer(request);
  EXPECT_EQ(status.error_code(), Code::ABORTED);
  EXPECT_THAT(status.error_message(), HasSubstr("neither input nor output"));
  Status();
  EXPECT_THAT(dirty_, ElementsAre("mem"));
  device_.FailWith(nullptr);
  EXPECT_EQ(Infer(request).error_code(), Code::FAILED_PRECONDITION);
  ASSERT_TRUE(Unregister("mem").ok());
  ASSERT_TRUE(Register("mem").ok());
  EXPECT_TRUE(Infer(request).ok());
  Status();
  EXPECT_TRUE(dirty_.empty());
}

// The other result is for memory of the host that its owner cut short.
TEST_F(OipDeviceMemoryTest, AResultThatHasNoPlaceLeftFailsBeforeAnythingIsComputed) {
  const testing::SharedMemory shrunk(std::string(32, '.'));
  inference::SystemSharedMemoryRegisterRequest add;
  inference::SystemSharedMemoryRegisterResponse added;
  add.set_name("host");
  add.set_key(shrunk.key());
  add.set_byte_size(32);
  ASSERT_TRUE(Call(&S::SystemSharedMemoryRegister, add, &added).ok());
  ASSERT_TRUE(Register("mem").ok());
  shrunk.Resize(8);
  for (const int64_t offset : {512, 1024}) {
    raw_of_ = {0, 1, 2};
    inference::ModelInferRequest request = RotateAt(7);
    Move(request, 1, 512);
    const std::string q = Memory(512, 64);
    Want(request, "Q_OUT", 64, offset);
    request.add_outputs()->set_name("K_OUT");
    SetRegion("host", 32, 0, request.mutable_outputs(1)->mutable_parameters());
    const grpc::Status status = Infer(request);
    EXPECT_THAT(status.error_message(), HasSubstr("outputs[1]: the shared memory was shrunk"));
    EXPECT_EQ(status.error_code(), Code::INVALID_ARGUMENT);
    EXPECT_EQ(Memory(512, 64) == q, true) << offset;
  }
}

TEST_F(OipDeviceMemoryTest, AFaultOutOfPlaceIsAnsweredByTheCpu) {
  ASSERT_TRUE(Infer(RotateAt(7)).ok());
  const std::string q = response_.raw_output_contents(0);
  ASSERT_TRUE(Register("mem").ok());
  inference::ModelInferRequest request = RotateAt(7);
  Move(request, 1, 512);
  Want(request, "Q_OUT", 64, 1024);
  const int64_t next = device_.calls("Run");
  device_.FailWith([&](const std::string& call, int64_t n) {
    return call == "Run" && n == next ? absl::InternalError("fault") : absl::OkStatus();
  });
  EXPECT_TRUE(Infer(request).ok());
  EXPECT_EQ(Memory(1024, q.size()), q);
  Status();
  EXPECT_TRUE(dirty_.empty());
}

}  // namespace
}  // namespace phasor::oip
