// SPDX-License-Identifier: Apache-2.0
// Tests every method of the service in a real gRPC server: answers and errors.
#include "server/api/service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/spec/presets.h"
#include "server/grpc/callback_threads.h"
#include "tests/server/api/test_server.h"
#include "tests/support/eventually.h"
#include "tests/support/requests.h"

namespace phasor::rpc {
namespace {

using ::phasor::testing::EncodeOf;
using ::phasor::testing::EncodeRequestOf;
using ::phasor::testing::Eventually;
using ::phasor::testing::RopeRequestOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ServiceTest : public ::testing::Test {
 protected:
  // Calls a method of the generated stub.
  template <typename Response, typename Request>
  Response Ok(grpc::Status (v1::PositionEmbeddingService::Stub::*method)(grpc::ClientContext*,
                                                                         const Request&, Response*),
              const Request& request) {
    grpc::ClientContext context;
    Response response;
    const grpc::Status status = ((*stub_).*method)(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_code() << " " << status.error_message();
    return response;
  }

  template <typename Response, typename Request>
  grpc::Status Fails(grpc::Status (v1::PositionEmbeddingService::Stub::*method)(
                         grpc::ClientContext*, const Request&, Response*),
                     const Request& request) {
    grpc::ClientContext context;
    Response response;
    return ((*stub_).*method)(&context, request, &response);
  }

  int64_t PlanLookups() {
    const engine::EngineStats stats = server_.engine().stats();
    return stats.plan_cache_hits + stats.plan_cache_misses;
  }

  using Stub = v1::PositionEmbeddingService::Stub;
  TestServer server_;
  std::unique_ptr<Stub> stub_ = v1::PositionEmbeddingService::NewStub(server_.channel());
};

std::string Inverted(std::string bytes) {
  for (char& c : bytes) c = static_cast<char>(~c);
  return bytes;
}

TEST_F(ServiceTest, EncodeAnswersRows) {
  const auto response = Ok(&Stub::Encode, EncodeRequestOf(3));
  EXPECT_THAT(response.result().output().shape(), ElementsAre(3, 8));
  EXPECT_THAT(response.raw(), ElementsAre(std::string(96, '\x5A')));
  EXPECT_EQ(response.result().info().backend(), "fake");
}

TEST_F(ServiceTest, EncodeOfZeroPositionsAnswersEmpty) {
  const auto response = Ok(&Stub::Encode, EncodeRequestOf(0));
  EXPECT_THAT(response.result().output().shape(), ElementsAre(0, 8));
  EXPECT_THAT(response.raw(), ElementsAre(""));
}

TEST_F(ServiceTest, ApplyRoPEAnswersEveryTensorAtEverySizeOfCall) {
  for (const int64_t tokens : {1, 40, 5000, 50'000}) {  // copied, inline, queued, 4.8 MB
    const v1::ApplyRoPERequest request = RopeRequestOf(tokens);
    const auto response = Ok(&Stub::ApplyRoPE, request);
    ASSERT_EQ(response.raw_size(), 2) << tokens;
    EXPECT_TRUE(response.raw(0) == Inverted(request.raw(0))) << tokens;
    EXPECT_TRUE(response.raw(1) == Inverted(request.raw(1))) << tokens;
  }
  EXPECT_GT(server_.engine().stats().calls_inline, 0);
  EXPECT_GT(server_.engine().stats().calls_queued, 0);
}

TEST_F(ServiceTest, BatchAnswersEachItemForItself) {
  v1::BatchEncodeRequest request;
  for (const int64_t count : {1, 2, 3}) *request.add_items() = EncodeOf(count);
  request.mutable_items(1)->mutable_spec()->set_dim(7);
  const auto response = Ok(&Stub::BatchEncode, request);
  ASSERT_EQ(response.results_size(), 3);
  EXPECT_EQ(response.results(1).status().code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(response.results(1).status().message(), HasSubstr("items[1].spec.dim"));
  EXPECT_THAT(response.raw(), ElementsAre(std::string(32, '\x5A'), std::string(96, '\x5A')));
}

TEST_F(ServiceTest, BatchOfRotationsKeepsItsOrder) {
  v1::BatchApplyRoPERequest request;
  std::vector<std::string> expected;
  for (const int64_t tokens : {2, 700, 1}) {
    const v1::ApplyRoPERequest one = RopeRequestOf(tokens);
    *request.add_items() = one.item();
    request.mutable_raw()->MergeFrom(one.raw());
    for (const std::string& raw : one.raw()) expected.push_back(Inverted(raw));
  }
  const auto response = Ok(&Stub::BatchApplyRoPE, request);
  EXPECT_EQ(response.results_size(), 3);
  EXPECT_TRUE(
      std::equal(expected.begin(), expected.end(), response.raw().begin(), response.raw().end()));
}

TEST_F(ServiceTest, BatchOfZeroItemsAnswersEmpty) {
  EXPECT_EQ(Ok(&Stub::BatchEncode, v1::BatchEncodeRequest()).results_size(), 0);
  EXPECT_EQ(Ok(&Stub::BatchApplyRoPE, v1::BatchApplyRoPERequest()).results_size(), 0);
}

TEST_F(ServiceTest, NanPositionFailsWithItsPath) {
  v1::EncodeRequest request = EncodeRequestOf(0);
  testing::SetShape(request.mutable_item()->mutable_positions()->mutable_tensor(),
                    v1::DTYPE_FLOAT32, {1});
  request.add_raw(std::string("\x00\x00\xC0\x7F", 4));
  const grpc::Status status = Fails(&Stub::Encode, request);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("item.positions"));
}

TEST_F(ServiceTest, BytesThatAreNoMessageAreInvalidForEveryMethod) {
  for (const char* method : {"Encode", "ApplyRoPE", "BatchEncode", "BatchApplyRoPE", "ResolveSpec",
                             "ResolveModel", "ListPresets", "GetServerInfo"}) {
    const grpc::Status status = server_.Call(method, "\x0A\x7F");
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << method;
    EXPECT_THAT(status.error_message(), HasSubstr("request: ")) << method;
  }
}

TEST_F(ServiceTest, MetadataOverTheLimitIsResourceExhaustedForEveryMethod) {
  const std::string field = "\xA2\x06\x80\x80\x04" + std::string(1 << 16, 'x');
  for (const char* method : {"Encode", "ApplyRoPE", "BatchEncode", "BatchApplyRoPE", "ResolveSpec",
                             "ResolveModel", "ListPresets", "GetServerInfo"}) {
    EXPECT_EQ(server_.Call(method, field).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED)
        << method;
  }
}

TEST_F(ServiceTest, ResolveSpecListsFrequencies) {
  v1::ResolveSpecRequest request;
  *request.mutable_spec() = EncodeOf(1).spec();
  const auto response = Ok(&Stub::ResolveSpec, request);
  ASSERT_EQ(response.pairs_size(), 4);
  EXPECT_DOUBLE_EQ(response.pairs(0).inv_freq(), 1.0);
  EXPECT_DOUBLE_EQ(response.pairs(2).inv_freq(), 0.01);
  EXPECT_EQ(response.width(), 8);
}

TEST_F(ServiceTest, ResolveSpecNamesWhatIsWrong) {
  v1::ResolveSpecRequest request;
  EXPECT_THAT(Fails(&Stub::ResolveSpec, request).error_message(), HasSubstr("spec: not set"));
  request.mutable_spec()->set_preset("nobody");
  EXPECT_EQ(Fails(&Stub::ResolveSpec, request).error_code(), grpc::StatusCode::NOT_FOUND);
  request.mutable_spec()->set_preset("llama-3");
  request.mutable_spec()->set_sequence_length(1);
  EXPECT_THAT(Fails(&Stub::ResolveSpec, request).error_message(),
              HasSubstr("spec.sequence_length: has no meaning"));
}

// A request that takes long to answer.
std::string ComparisonRequest() {
  v1::ResolveSpecRequest request;
  request.mutable_spec()->set_preset("llama-3.1-8b");
  request.mutable_parity_comparison()->set_dtype(v1::DTYPE_BFLOAT16);
  return request.SerializeAsString();
}

TEST_F(ServiceTest, OtherCallsAreAnsweredBesideAComparison) {
  const CallbackThreads one(1, [] { return false; });  // gRPC has no other thread to answer on
  EXPECT_TRUE(Eventually([&] {
    const int64_t before = PlanLookups();
    std::vector<PendingCall> comparisons(4);
    for (PendingCall& call : comparisons) server_.Start("ResolveSpec", ComparisonRequest(), &call);
    EXPECT_TRUE(Eventually([&] { return PlanLookups() > before; }));
    EXPECT_TRUE(server_.Call("GetServerInfo", "").ok());
    const bool beside = !comparisons[3].done.HasBeenNotified();
    for (PendingCall& call : comparisons) {
      call.done.WaitForNotification();
      EXPECT_TRUE(call.status.ok()) << call.status.error_message();
    }
    return beside;
  }));
}

TEST_F(ServiceTest, AComparisonForNobodyIsNotMade) {
  EXPECT_TRUE(Eventually([&] {
    const int64_t before = PlanLookups();
    std::vector<PendingCall> comparisons(8);
    for (PendingCall& call : comparisons) server_.Start("ResolveSpec", ComparisonRequest(), &call);
    for (int i = 1; i < 8; ++i) comparisons[i].context.TryCancel();
    for (PendingCall& call : comparisons) call.done.WaitForNotification();
    EXPECT_TRUE(server_.Call("ResolveSpec", ComparisonRequest()).ok());  // behind all others
    return PlanLookups() - before < 9;
  }));
}

TEST_F(ServiceTest, ResolveModelListsLayers) {
  v1::ResolveModelRequest request;
  EXPECT_THAT(Fails(&Stub::ResolveModel, request).error_message(), HasSubstr("spec: not set"));
  request.mutable_spec()->set_preset("llama-2");
  EXPECT_THAT(Fails(&Stub::ResolveModel, request).error_message(),
              HasSubstr("spec.config_json: not set"));
  request.mutable_spec()->clear_preset();
  request.mutable_spec()->set_config_json(R"({"model_type": "cohere2", "num_hidden_layers": 4})");
  const auto response = Ok(&Stub::ResolveModel, request);
  ASSERT_EQ(response.parts_size(), 1);
  ASSERT_EQ(response.parts(0).layers_size(), 4);
  EXPECT_EQ(response.parts(0).layers(0).spec(), 0);
  EXPECT_FALSE(response.parts(0).layers(3).has_spec());
  v1::ResolveSpecRequest one;
  *one.mutable_spec() = response.specs(0).spec();
  EXPECT_EQ(Ok(&Stub::ResolveSpec, one).info().spec_fingerprint(), response.specs(0).fingerprint());
}

TEST_F(ServiceTest, ListPresetsListsAllOfThem) {
  const auto response = Ok(&Stub::ListPresets, v1::ListPresetsRequest());
  ASSERT_EQ(response.presets_size(), static_cast<int>(Presets().size()));
  for (int i = 0; i < response.presets_size(); ++i) {
    EXPECT_EQ(response.presets(i).name(), Presets()[i].name);
    EXPECT_FALSE(response.presets(i).summary().empty());
  }
}

TEST_F(ServiceTest, GetServerInfoSaysVersionBackendLimitsAndListeners) {
  server_.service().SetListeners({"127.0.0.1:1", "unix:/x"});
  const auto info = Ok(&Stub::GetServerInfo, v1::GetServerInfoRequest());
  EXPECT_EQ(info.version(), "1.2.3");
  EXPECT_EQ(info.numerics_version(), kNumericsVersion);
  EXPECT_THAT(info.backends(), ElementsAre("fake"));
  EXPECT_EQ(info.cpu_target(), "fake");
  EXPECT_EQ(info.cpu_threads(), 1);
  EXPECT_THAT(info.listeners(), ElementsAre("127.0.0.1:1", "unix:/x"));
  EXPECT_EQ(info.limits().max_message_bytes(), 64 << 20);
  EXPECT_EQ(info.limits().max_header_bytes(), 1 << 16);
  EXPECT_EQ(info.limits().max_batch_items(), 8);
  EXPECT_GT(info.limits().inline_bytes(), 0);
  EXPECT_GT(info.limits().max_inflight_bytes(), 0);
}

}  // namespace
}  // namespace phasor::rpc
