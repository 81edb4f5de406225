// SPDX-License-Identifier: Apache-2.0
// Tests every method of the service in a whole server: answers, errors, the same bytes as
// phasor.v1.
#include "server/oip/service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "phasor/v1/position_embedding_service.grpc.pb.h"
#include "tests/server/oip/requests.h"
#include "tests/support/running_server.h"
#include "tests/support/shared_memory.h"

namespace phasor::oip {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using Code = grpc::StatusCode;

class InferenceServiceTest : public ::testing::Test {
 protected:
  template <typename Request, typename Response>
  grpc::Status Call(grpc::Status (inference::GRPCInferenceService::Stub::*call)(
                        grpc::ClientContext*, const Request&, Response*),
                    const Request& request, Response* response) {
    return testing::Call(*stub_, call, request, response);
  }

  using S = inference::GRPCInferenceService::Stub;
  const std::unique_ptr<Server> server_ = testing::StartServer(testing::SharedMemoryOptions());
  const std::shared_ptr<grpc::Channel> channel_ = testing::NewChannel(server_->listeners()[0]);
  const std::unique_ptr<S> stub_ = inference::GRPCInferenceService::NewStub(channel_);
};

TEST_F(InferenceServiceTest, SaysWhatItIsAndThatItIsReady) {
  inference::ServerLiveResponse live;
  ASSERT_TRUE(Call(&S::ServerLive, inference::ServerLiveRequest(), &live).ok());
  EXPECT_TRUE(live.live());
  inference::ServerReadyResponse ready;
  ASSERT_TRUE(Call(&S::ServerReady, inference::ServerReadyRequest(), &ready).ok());
  EXPECT_TRUE(ready.ready());
  inference::ServerMetadataResponse metadata;
  ASSERT_TRUE(Call(&S::ServerMetadata, inference::ServerMetadataRequest(), &metadata).ok());
  EXPECT_EQ(metadata.name(), "phasor");
  EXPECT_THAT(metadata.extensions(), Contains("statistics"));
  EXPECT_THAT(metadata.extensions(), Contains("system_shared_memory"));
}

TEST_F(InferenceServiceTest, AnUnknownModelIsNotReadyAndOtherwiseNotFound) {
  inference::ModelReadyRequest request;
  inference::ModelReadyResponse response;
  request.set_name("llama-3");
  ASSERT_TRUE(Call(&S::ModelReady, request, &response).ok());
  EXPECT_TRUE(response.ready());
  request.set_name("bert");
  ASSERT_TRUE(Call(&S::ModelReady, request, &response).ok());
  EXPECT_FALSE(response.ready());
  request.set_version("x");
  EXPECT_EQ(Call(&S::ModelReady, request, &response).error_code(), Code::INVALID_ARGUMENT);

  inference::ModelMetadataRequest metadata;
  inference::ModelMetadataResponse metadata_response;
  metadata.set_name("bert");
  const grpc::Status status = Call(&S::ModelMetadata, metadata, &metadata_response);
  EXPECT_EQ(status.error_code(), Code::NOT_FOUND);
  EXPECT_THAT(status.error_message(), StartsWith("name: Request for unknown model: 'bert'"));
  inference::ModelConfigRequest config;
  inference::ModelConfigResponse config_response;
  config.set_name("bert");
  EXPECT_EQ(Call(&S::ModelConfig, config, &config_response).error_code(), Code::NOT_FOUND);
  inference::ModelStatisticsRequest statistics;
  inference::ModelStatisticsResponse statistics_response;
  statistics.set_name("bert");
  EXPECT_EQ(Call(&S::ModelStatistics, statistics, &statistics_response).error_code(),
            Code::NOT_FOUND);
}

TEST_F(InferenceServiceTest, TheSameTensorsGiveTheBytesOfOurOwnApi) {
  std::string q(3 * 2 * 8 * 2, '\0');
  for (size_t i = 0; i < q.size(); ++i) q[i] = static_cast<char>(i % 2 == 0 ? 37 * i : 0x3C);
  const std::string positions = BytesOfValues<double>({0.5, 131072, -7.25});
  inference::ModelInferRequest request;
  request.set_model_name("rope-interleaved");
  AddInput("POSITIONS", "FP64", {3}, &request);
  AddInput("Q", "BF16", {3, 2, 8}, &request);
  request.add_raw_input_contents(positions);
  request.add_raw_input_contents(q);
  inference::ModelInferResponse response;
  ASSERT_TRUE(Call(&S::ModelInfer, request, &response).ok());

  v1::ApplyRoPERequest own;
  own.mutable_item()->mutable_spec()->set_preset("rope-interleaved");
  own.mutable_item()->set_direction(v1::DIRECTION_FORWARD);
  own.mutable_item()->set_layout(v1::ROPE_LAYOUT_TOKENS_HEADS);
  auto* const at = own.mutable_item()->mutable_positions()->mutable_tensor();
  at->set_dtype(v1::DTYPE_FLOAT64);
  at->add_shape(3);
  auto* const tensor = own.mutable_item()->add_tensors()->mutable_tensor();
  tensor->set_dtype(v1::DTYPE_BFLOAT16);
  for (const int64_t extent : {3, 2, 8}) tensor->add_shape(extent);
  own.add_raw(positions);
  own.add_raw(q);
  v1::ApplyRoPEResponse own_response;
  const auto own_stub = v1::PositionEmbeddingService::NewStub(channel_);
  grpc::ClientContext context;
  ASSERT_TRUE(own_stub->ApplyRoPE(&context, own, &own_response).ok());
  ASSERT_EQ(own_response.raw_size(), 1);
  EXPECT_NE(own_response.raw(0), q);
  EXPECT_EQ(response.raw_output_contents(0), own_response.raw(0));
}

TEST_F(InferenceServiceTest, EncodersAreModelsAndFollowAReload) {
  ServerOptions options = testing::SharedMemoryOptions();
  Spec spec;
  spec.preset = "transformer";
  spec.dim = 8;
  options.encoders = {{"rows", spec}};
  ASSERT_TRUE(server_->Reload(options).ok());
  inference::ModelInferRequest request = EncodeAt({3, 4});
  inference::ModelInferResponse of_preset;
  ASSERT_TRUE(Call(&S::ModelInfer, request, &of_preset).ok());
  request.set_model_name("rows");
  request.clear_parameters();
  inference::ModelInferResponse response;
  ASSERT_TRUE(Call(&S::ModelInfer, request, &response).ok());
  EXPECT_EQ(response.model_name(), "rows");
  EXPECT_EQ(response.raw_output_contents(0), of_preset.raw_output_contents(0));

  options.encoders[0].spec.dim = 16;
  ASSERT_TRUE(server_->Reload(options).ok());
  ASSERT_TRUE(Call(&S::ModelInfer, request, &response).ok());
  EXPECT_EQ(response.raw_output_contents(0).size(), 2u * 16 * 4);
  inference::ModelStatisticsRequest look;
  inference::ModelStatisticsResponse statistics;
  look.set_name("rows");
  ASSERT_TRUE(Call(&S::ModelStatistics, look, &statistics).ok());
  EXPECT_EQ(statistics.model_stats(0).inference_count(), 2u);

  options.encoders[0].name = "others";
  ASSERT_TRUE(server_->Reload(options).ok());
  EXPECT_EQ(Call(&S::ModelInfer, request, &response).error_code(), Code::NOT_FOUND);
  inference::ModelReadyRequest ready;
  inference::ModelReadyResponse is_ready;
  ready.set_name("others");
  ASSERT_TRUE(Call(&S::ModelReady, ready, &is_ready).ok());
  EXPECT_TRUE(is_ready.ready());
}

TEST_F(InferenceServiceTest, StatisticsGrowBetweenTwoLooks) {
  inference::ModelInferResponse response;
  ASSERT_TRUE(Call(&S::ModelInfer, EncodeAt({1, 2}), &response).ok());
  EXPECT_EQ(response.id(), "r1");
  inference::ModelStatisticsRequest request;
  inference::ModelStatisticsResponse statistics;
  request.set_name("transformer");
  ASSERT_TRUE(Call(&S::ModelStatistics, request, &statistics).ok());
  ASSERT_EQ(statistics.model_stats_size(), 1);
  EXPECT_EQ(statistics.model_stats(0).version(), "1");
  EXPECT_EQ(statistics.model_stats(0).inference_stats().queue().count(), 1u);
  request.clear_name();
  ASSERT_TRUE(Call(&S::ModelStatistics, request, &statistics).ok());
  EXPECT_GT(statistics.model_stats_size(), 100);
}

TEST_F(InferenceServiceTest, RegionsAreRegisteredListedAndForgotten) {
  const testing::SharedMemory memory("0123456789");
  inference::SystemSharedMemoryRegisterRequest add;
  inference::SystemSharedMemoryRegisterResponse added;
  add.set_name("in");
  add.set_key(memory.key());
  add.set_offset(2);
  add.set_byte_size(8);
  ASSERT_TRUE(Call(&S::SystemSharedMemoryRegister, add, &added).ok());
  EXPECT_EQ(Call(&S::SystemSharedMemoryRegister, add, &added).error_code(), Code::ALREADY_EXISTS);

  inference::SystemSharedMemoryStatusRequest look;
  inference::SystemSharedMemoryStatusResponse seen;
  ASSERT_TRUE(Call(&S::SystemSharedMemoryStatus, look, &seen).ok());
  EXPECT_EQ(seen.regions().at("in").key(), memory.key());
  EXPECT_EQ(seen.regions().at("in").offset(), 2u);
  EXPECT_EQ(seen.regions().at("in").byte_size(), 8u);

  inference::SystemSharedMemoryUnregisterRequest drop;
  inference::SystemSharedMemoryUnregisterResponse dropped;
  // Somebody else's "all" are not ours.
  const auto other =
      inference::GRPCInferenceService::NewStub(testing::NewChannel(server_->listeners()[0]));
  ASSERT_TRUE(testing::Call(*other, &S::SystemSharedMemoryUnregister, drop, &dropped).ok());
  ASSERT_TRUE(Call(&S::SystemSharedMemoryStatus, look, &seen).ok());
  EXPECT_EQ(seen.regions_size(), 1);
  ASSERT_TRUE(Call(&S::SystemSharedMemoryUnregister, drop, &dropped).ok());
  ASSERT_TRUE(Call(&S::SystemSharedMemoryStatus, look, &seen).ok());
  EXPECT_EQ(seen.regions_size(), 0);
  look.set_name("in");
  EXPECT_EQ(Call(&S::SystemSharedMemoryStatus, look, &seen).error_code(), Code::NOT_FOUND);
  drop.set_name("in");
  EXPECT_TRUE(Call(&S::SystemSharedMemoryUnregister, drop, &dropped).ok());
}

TEST_F(InferenceServiceTest, SizesOfTheWireDoNotOverflow) {
  const testing::SharedMemory memory("0123456789");
  inference::SystemSharedMemoryRegisterRequest add;
  inference::SystemSharedMemoryRegisterResponse added;
  add.set_name("in");
  add.set_key(memory.key());
  add.set_offset(8);
  for (const uint64_t bytes : {std::numeric_limits<uint64_t>::max(), uint64_t{1} << 63,
                               (uint64_t{1} << 63) - 1, uint64_t{3}}) {
    add.set_byte_size(bytes);
    EXPECT_EQ(Call(&S::SystemSharedMemoryRegister, add, &added).error_code(),
              Code::INVALID_ARGUMENT);
  }
}

TEST_F(InferenceServiceTest, WithoutADeviceItsMemoryIsRefusedAfterItsLengthWasChecked) {
  inference::CudaSharedMemoryRegisterRequest add;
  inference::CudaSharedMemoryRegisterResponse added;
  for (const size_t bytes : {0, 63, 65}) {
    add.set_raw_handle(std::string(bytes, 'h'));
    const grpc::Status status = Call(&S::CudaSharedMemoryRegister, add, &added);
    EXPECT_EQ(status.error_code(), Code::INVALID_ARGUMENT);
    EXPECT_THAT(status.error_message(), HasSubstr("raw_handle"));
  }
  add.set_raw_handle(std::string(64, 'h'));
  add.set_name("mem");
  add.set_byte_size(1);
  EXPECT_EQ(Call(&S::CudaSharedMemoryRegister, add, &added).error_code(),
            Code::FAILED_PRECONDITION);
  inference::CudaSharedMemoryStatusResponse seen;
  EXPECT_TRUE(
      Call(&S::CudaSharedMemoryStatus, inference::CudaSharedMemoryStatusRequest(), &seen).ok());
  inference::CudaSharedMemoryUnregisterResponse dropped;
  EXPECT_TRUE(
      Call(&S::CudaSharedMemoryUnregister, inference::CudaSharedMemoryUnregisterRequest(), &dropped)
          .ok());
}

TEST_F(InferenceServiceTest, WhatIsNotBuiltSaysSo) {
  inference::RepositoryModelLoadResponse load;
  grpc::Status status =
      Call(&S::RepositoryModelLoad, inference::RepositoryModelLoadRequest(), &load);
  EXPECT_EQ(status.error_code(), Code::UNIMPLEMENTED);
  EXPECT_THAT(status.error_message(), HasSubstr("always loaded"));
  inference::RepositoryModelUnloadResponse unload;
  EXPECT_EQ(Call(&S::RepositoryModelUnload, inference::RepositoryModelUnloadRequest(), &unload)
                .error_code(),
            Code::UNIMPLEMENTED);
  inference::TraceSettingRequest change;
  (*change.mutable_settings())["trace_rate"].add_value("2");
  inference::TraceSettingResponse trace;
  EXPECT_EQ(Call(&S::TraceSetting, change, &trace).error_code(), Code::UNIMPLEMENTED);
  inference::LogSettingsResponse log;
  EXPECT_EQ(Call(&S::LogSettings, inference::LogSettingsRequest(), &log).error_code(),
            Code::UNIMPLEMENTED);
  inference::RepositoryIndexResponse index;
  ASSERT_TRUE(Call(&S::RepositoryIndex, inference::RepositoryIndexRequest(), &index).ok());
  EXPECT_GT(index.models_size(), 100);
  inference::RepositoryIndexRequest named;
  named.set_repository_name("/models");
  status = Call(&S::RepositoryIndex, named, &index);
  EXPECT_EQ(status.error_code(), Code::UNIMPLEMENTED);  // as Triton answers
  EXPECT_THAT(status.error_message(), HasSubstr("repository_name: set"));
}

TEST(InferenceServiceDefaultsTest, SharedMemoryIsClosedUnlessTheOptionOpensIt) {
  const auto server = testing::StartServer();
  const auto stub =
      inference::GRPCInferenceService::NewStub(testing::NewChannel(server->listeners()[0]));
  grpc::ClientContext context;
  inference::SystemSharedMemoryRegisterRequest add;
  inference::SystemSharedMemoryRegisterResponse added;
  add.set_name("in");
  add.set_key("/x");
  add.set_byte_size(1);
  EXPECT_EQ(stub->SystemSharedMemoryRegister(&context, add, &added).error_code(),
            Code::FAILED_PRECONDITION);
  grpc::ClientContext metadata_context;
  inference::ServerMetadataResponse metadata;
  ASSERT_TRUE(
      stub->ServerMetadata(&metadata_context, inference::ServerMetadataRequest(), &metadata).ok());
  EXPECT_THAT(metadata.extensions(), Not(Contains("system_shared_memory")));
}

}  // namespace
}  // namespace phasor::oip
