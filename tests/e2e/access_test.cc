// SPDX-License-Identifier: Apache-2.0
// Tests who may call what, with tokens and a policy, for every method of a server.
#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <vector>

#include "inference/grpc_service.grpc.pb.h"
#include "kernels/base/sha256.h"
#include "phasor/v1/position_embedding_service.grpc.pb.h"
#include "phasor/v1/table_service.grpc.pb.h"
#include "server/telemetry/snapshot.h"
#include "tests/e2e/secure_server.h"
#include "tests/support/empty_call.h"
#include "tests/support/is_serving.h"
#include "tests/support/reflection_call.h"
#include "tests/support/requests.h"
#include "tests/support/running_server.h"
#include "tests/support/shared_memory.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace phasor {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::IsOk;
using ::testing::Not;
using testing::StatusIs;
using Code = grpc::StatusCode;

// Tokens are as long as they must be, and tell apart.
std::string TokenOf(const std::string& name) { return StrCat(name, ":", std::string(64, 'z')); }
std::string LineOf(const std::string& name) {
  return StrCat(name, " sha256:", Sha256Hex(TokenOf(name)), "\n");
}

// "package.Service/Method" of whatever a server has, as its own reflection tells, without health
// and reflection itself.
std::vector<std::string> AllMethods() {
  const auto server = testing::StartServer();
  testing::ReflectionCall call(testing::NewChannel(server->listeners()[0]));
  const std::string names = call.Services();
  std::vector<std::string> methods;
  for (const char* package : {"phasor.v1.", "inference.", "grpc."}) {
    for (size_t at = names.find(package); at != names.npos; at = names.find(package, at + 1)) {
      const size_t end = names.find_first_not_of(
          "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._", at);
      const std::string name = names.substr(at, end - at);
      if (name.starts_with("grpc.")) {
        EXPECT_TRUE(name.starts_with("grpc.health.v1.Health") ||
                    name.starts_with("grpc.reflection"))
            << name << " is open to everybody";
        continue;
      }
      const auto* const service =
          google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(name);
      EXPECT_NE(service, nullptr) << name;
      for (int i = 0; service != nullptr && i < service->method_count(); ++i) {
        methods.push_back(StrCat(name, "/", service->method(i)->name()));
      }
    }
  }
  return methods;
}

class AccessMatrixTest : public SecureServerTest {
 protected:
  void UseTokens(const std::vector<std::string>& names) {
    std::string lines;
    for (const std::string& name : names) lines += LineOf(name);
    Rename("tokens", lines);
    options_.tokens_file = Path("tokens");
  }
  void UsePolicy(const std::string& identities) {
    Rename("policy", StrCat("{\"identities\": [", identities, "]}"));
    options_.policy_file = Path("policy");
  }
  // "small" may have 150000 bytes in flight, "large" as many as the server has.
  void StartWithAQuota() {
    UseTokens({"small", "large"});
    UsePolicy(R"({"identity": "token:small", "methods": ["*"], "max_inflight_bytes": 150000},
                 {"identity": "token:large", "methods": ["*"]})");
    Start();
  }
  ClientOptions With(const std::string& name) const { return {.token = TokenOf(name)}; }

  // Any method with an empty message, streams too: what they answer is no matter, only whether they
  // refuse.
  grpc::Status Call(grpc::GenericStub& stub, const std::string& method, const std::string& token) {
    testing::TestContext context;
    if (!token.empty()) context.AddMetadata("authorization", "Bearer " + token);
    return testing::CallEmpty(stub, method, &context);
  }
};

TEST_F(AccessMatrixTest, EveryMethodAsksForATokenAndForLeave) {
  const std::vector<std::string> methods = AllMethods();
  EXPECT_GE(methods.size(), 35);
  std::vector<std::string> names;
  std::string identities;
  for (size_t i = 0; i < methods.size(); ++i) {
    names.push_back(StrCat("only-", i));
    identities += StrCat(i == 0 ? "" : ",", "{\"identity\": \"token:only-", i,
                         "\", \"methods\": [\"", methods[i], "\"]}");
  }
  UseTokens(names);
  UsePolicy(identities);
  options_.shared_memory = true;
  Start();
  grpc::GenericStub stub(testing::NewChannel(Target()));
  int64_t denied = 0;
  for (size_t m = 0; m < methods.size(); ++m) {
    EXPECT_EQ(Call(stub, methods[m], "").error_code(), Code::UNAUTHENTICATED) << methods[m];
    EXPECT_EQ(Call(stub, methods[m], TokenOf("nobody")).error_code(), Code::UNAUTHENTICATED)
        << methods[m];
    for (size_t i = 0; i < methods.size(); ++i) {
      const Code code = Call(stub, methods[m], TokenOf(names[i])).error_code();
      if (i == m) {
        EXPECT_THAT(code, AllOf(Not(Code::UNAUTHENTICATED), Not(Code::PERMISSION_DENIED),
                                Not(Code::UNAVAILABLE)))
            << methods[m];
      } else {
        EXPECT_EQ(code, Code::PERMISSION_DENIED) << methods[m] << " with leave for " << methods[i];
        ++denied;
      }
    }
  }
  EXPECT_EQ(server_->security_stats().unauthenticated, 2 * static_cast<int64_t>(methods.size()));
  EXPECT_EQ(server_->security_stats().permission_denied, denied);
  // No secret and nothing that opens one's way in is in the log, at its most talkative.
  const std::string log = Log();
  EXPECT_THAT(log, HasSubstr("\"code\":\"UNAUTHENTICATED\""));
  EXPECT_THAT(log, Not(HasSubstr("zzzz")));
  for (const std::string& name : names) EXPECT_THAT(log, Not(HasSubstr(Sha256Hex(TokenOf(name)))));
}

TEST_F(AccessMatrixTest, ARefusedCallIsOneLineOfTheLog) {
  UseTokens({"any"});
  Start();
  grpc::GenericStub stub(testing::NewChannel(Target()));
  const std::string method = "phasor.v1.PositionEmbeddingService/Encode";
  EXPECT_EQ(Call(stub, method, "").error_code(), Code::UNAUTHENTICATED);
  const std::string log = Log();
  const size_t line = log.find("UNAUTHENTICATED");
  ASSERT_NE(line, std::string::npos);
  EXPECT_EQ(log.find("UNAUTHENTICATED", line + 1), std::string::npos) << log;
  EXPECT_THAT(log, HasSubstr(StrCat("\"method\":\"", method, "\"")));
  EXPECT_THAT(log, HasSubstr("\"peer\":\""));
}

TEST_F(AccessMatrixTest, WithTokensAndNoPolicyEveryTokenMayCallEverything) {
  const std::vector<std::string> methods = AllMethods();
  UseTokens({"any"});
  Start();
  grpc::GenericStub stub(testing::NewChannel(Target()));
  for (const std::string& method : methods) {
    EXPECT_THAT(Call(stub, method, TokenOf("any")).error_code(),
                AllOf(Not(Code::UNAUTHENTICATED), Not(Code::PERMISSION_DENIED)))
        << method;
  }
}

TEST_F(AccessMatrixTest, HealthIsOpenAndReflectionIsOff) {
  UseTokens({"any"});
  Start();
  const auto channel = testing::NewChannel(Target());
  EXPECT_TRUE(testing::IsServing(channel));
  EXPECT_EQ(testing::ReflectionCall(channel).Status().error_code(), Code::UNIMPLEMENTED);
}

TEST_F(AccessMatrixTest, TheClientLibrarySendsItsTokenWithCallsAndStreams) {
  UseTokens({"any"});
  Start();
  for (const std::string& target : {Target(), StrCat("unix:", Path("socket"))}) {
    EXPECT_THAT(CallOnce(target, With("any")), IsOk()) << target;
    EXPECT_EQ(CallOnce(target, {}).code(), absl::StatusCode::kUnauthenticated) << target;
    EXPECT_EQ(CallOnce(target, With("nobody")).code(), absl::StatusCode::kUnauthenticated);
    for (const bool sends : {false, true}) {
      const auto client = Client::Connect(target, sends ? With("any") : ClientOptions{});
      ASSERT_THAT(client, IsOk());
      const auto expected =
          sends ? absl::StatusCode::kFailedPrecondition : absl::StatusCode::kUnauthenticated;
      const std::vector<float> values(4);
      EXPECT_EQ(client->CreateTable("t", View(values, {2, 2})).status().code(), expected);
    }
  }
}

TEST_F(AccessMatrixTest, ATokenIsReplacedOnBothSidesWithoutARestart) {
  UseTokens({"old"});
  Rename("mine", TokenOf("old"));
  Start();
  const auto client = Client::Connect(Target(), {.max_attempts = 1, .token_file = Path("mine")});
  ASSERT_THAT(client, IsOk());
  EXPECT_THAT(client->GetServerInfo(), IsOk());
  Rename("tokens", LineOf("old") + LineOf("new"));
  EXPECT_TRUE(Eventually([&] { return CallOnce(Target(), With("new")).ok(); }));
  Rename("mine", TokenOf("new") + "\n");
  Rename("tokens", LineOf("new"));
  EXPECT_TRUE(Eventually([&] { return !CallOnce(Target(), With("old")).ok(); }));
  EXPECT_TRUE(Eventually([&] { return client->GetServerInfo().ok(); }));
  Rename("tokens", "nonsense");
  EXPECT_FALSE(server_->ReloadCredentials().ok());
  EXPECT_THAT(client->GetServerInfo(), IsOk());
  EXPECT_THAT(Log(), HasSubstr("\"event\":\"credentials kept as they were\""));
}

TEST_F(AccessMatrixTest, AnIdentityHasNoMoreBytesInFlightThanItMay) {
  StartWithAQuota();
  const auto stub = v1::PositionEmbeddingService::NewStub(testing::NewChannel(Target()));
  const auto encode = [&](const std::string& name, int64_t rows) {
    testing::TestContext context;
    context.AddMetadata("authorization", "Bearer " + TokenOf(name));
    v1::EncodeResponse response;
    return stub->Encode(&context, testing::EncodeRequestOf(rows), &response);
  };
  // 128 kB, given back each time once the answer has been sent, which the caller may see before.
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(Eventually([&] { return encode("small", 4000).ok(); })) << i;
  }
  const grpc::Status status = encode("small", 5000);
  EXPECT_EQ(status.error_code(), Code::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("quota of token:small: "));
  EXPECT_THAT(status.error_message(), HasSubstr("150000 (max_inflight_bytes of the policy)"));
  EXPECT_TRUE(encode("large", 5000).ok());

  // Its streams count too: the item is refused, and the stream goes on.
  testing::TestContext context;
  context.AddMetadata("authorization", "Bearer " + TokenOf("small"));
  EXPECT_TRUE(Eventually([&] { return encode("small", 4500).ok(); })) << "nothing is held";
  // Fits only once those are given back, and leaves room for the stream's.
  EXPECT_TRUE(Eventually([&] { return encode("small", 1000).ok(); }));
  const auto stream = stub->StreamEncode(&context);
  for (const auto& [rows, code] :
       {std::pair{100, Code::OK}, {5000, Code::RESOURCE_EXHAUSTED}, {2000, Code::OK}}) {
    v1::StreamEncodeRequest request;
    *request.mutable_item() = testing::EncodeOf(rows);
    ASSERT_TRUE(stream->Write(request));
    v1::StreamEncodeResponse response;
    ASSERT_TRUE(stream->Read(&response));
    EXPECT_EQ(response.result().status().code(), static_cast<int>(code));
  }
  // So do the positions that it keeps for an item in chunks.
  v1::StreamEncodeRequest kept;
  kept.set_chunked(true);
  *kept.mutable_item() = testing::EncodeOf(20000);
  testing::SetShape(kept.mutable_item()->mutable_positions()->mutable_tensor(), v1::DTYPE_INT64,
                    {20000});
  kept.add_raw(std::string(20000 * 8, '\0'));
  ASSERT_TRUE(stream->Write(kept));
  v1::StreamEncodeResponse response;
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_THAT(response.result().status().message(), HasSubstr("quota of token:small: "));
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
}

// Descriptions of specs are answers without tensors, and large if the spec is wide.
TEST_F(AccessMatrixTest, LargeDescriptionsAreBytesInFlight) {
  StartWithAQuota();
  const auto stub = v1::PositionEmbeddingService::NewStub(testing::NewChannel(Target()));
  const auto resolve = [&](const std::string& name, int64_t dim) {
    testing::TestContext context;
    context.AddMetadata("authorization", "Bearer " + TokenOf(name));
    v1::ResolveSpecRequest request;
    request.mutable_spec()->set_preset("transformer");
    request.mutable_spec()->set_dim(dim);
    v1::ResolveSpecResponse response;
    return stub->ResolveSpec(&context, request, &response);
  };
  const grpc::Status status = resolve("small", 65536);
  EXPECT_EQ(status.error_code(), Code::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("quota of token:small: "));
  EXPECT_TRUE(resolve("large", 65536).ok());
  // Each is given back.
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(Eventually([&] { return resolve("small", 8192).ok(); })) << i;
  }
}

TEST_F(AccessMatrixTest, LargeRequestsForDescriptionsAreBytesInFlight) {
  StartWithAQuota();
  const auto stub = v1::PositionEmbeddingService::NewStub(testing::NewChannel(Target()));
  const auto resolve = [&](const std::string& name) {
    testing::TestContext context;
    context.AddMetadata("authorization", "Bearer " + TokenOf(name));
    v1::ResolveSpecRequest request;
    request.mutable_spec()->set_config_json(
        R"({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 1})" +
        std::string(160'000, ' '));
    v1::ResolveSpecResponse response;
    return stub->ResolveSpec(&context, request, &response);
  };
  const grpc::Status status = resolve("small");
  EXPECT_EQ(status.error_code(), Code::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("quota of token:small: "));
  EXPECT_TRUE(resolve("large").ok());
}

TEST_F(AccessMatrixTest, AnAnswerOfAStreamIsInFlightUntilItIsTaken) {
  UseTokens({"slow"});
  UsePolicy(R"({"identity": "token:slow", "methods": ["*"], "max_inflight_bytes": 12000000})");
  Start();
  const auto stub = v1::PositionEmbeddingService::NewStub(testing::NewChannel(Target()));
  const auto encode = [&] {
    testing::TestContext context;
    context.AddMetadata("authorization", "Bearer " + TokenOf("slow"));
    v1::EncodeResponse response;
    return stub->Encode(&context, testing::EncodeRequestOf(125000), &response).error_code();
  };
  testing::TestContext context;
  context.AddMetadata("authorization", "Bearer " + TokenOf("slow"));
  const auto stream = stub->StreamEncode(&context);
  v1::StreamEncodeRequest request;
  *request.mutable_item() = testing::EncodeOf(310000);  // 10 MB
  ASSERT_TRUE(stream->Write(request));
  stream->WaitForInitialMetadata();  // comes before the answer
  EXPECT_EQ(encode(), Code::UNAVAILABLE) << "4 MB more, and nobody has taken the answer";
  v1::StreamEncodeResponse response;
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_EQ(response.result().status().code(), 0);
  EXPECT_TRUE(Eventually([&] { return encode() == Code::OK; }));
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(AccessMatrixTest, AnIdentityHoldsNoMoreRegionsThanItMay) {
  UseTokens({"one", "two"});
  UsePolicy(R"({"identity": "*", "methods": ["*"], "max_regions": 1})");
  options_.shared_memory = true;
  Start();
  const testing::SharedMemory memory("abc");
  const auto stub = inference::GRPCInferenceService::NewStub(testing::NewChannel(Target()));
  const auto add = [&](const std::string& token, const std::string& region) {
    testing::TestContext context;
    context.AddMetadata("authorization", "Bearer " + TokenOf(token));
    inference::SystemSharedMemoryRegisterRequest request;
    request.set_name(region);
    request.set_key(memory.key());
    request.set_byte_size(3);
    inference::SystemSharedMemoryRegisterResponse response;
    return stub->SystemSharedMemoryRegister(&context, request, &response).error_code();
  };
  EXPECT_EQ(add("one", "a"), Code::OK);
  EXPECT_EQ(add("one", "b"), Code::RESOURCE_EXHAUSTED);
  EXPECT_EQ(add("two", "b"), Code::OK);
}

TEST_F(AccessMatrixTest, AnIdentityHasNotAllPlacesForUploads) {
  UseTokens({"one", "two"});
  const testing::TempDir dir;
  options_.tables_dir = dir.path();
  Start();
  const auto stub = v1::TableService::NewStub(testing::NewChannel(Target()));
  v1::CreateTableRequest table;
  table.mutable_table()->set_name("t");
  testing::SetShape(table.mutable_table()->mutable_tensor(), v1::DTYPE_FLOAT32, {4, 2});
  table.mutable_table()->set_sha256(std::string(64, '0'));
  struct Upload {
    Upload(v1::TableService::Stub* tables, const std::string& token) {
      context.AddMetadata("authorization", "Bearer " + TokenOf(token));
      writer = tables->CreateTable(&context, &response);
    }
    testing::TestContext context;
    v1::CreateTableResponse response;
    std::unique_ptr<grpc::ClientWriter<v1::CreateTableRequest>> writer;
  };
  const auto upload_nothing = [&](const std::string& token) {
    Upload upload(stub.get(), token);
    upload.writer->Write(table);
    upload.writer->WritesDone();
    return upload.writer->Finish();
  };
  std::vector<std::unique_ptr<Upload>> waiting;
  EXPECT_TRUE(Eventually([&] {
    waiting.push_back(std::make_unique<Upload>(stub.get(), "one"));
    waiting.back()->writer->Write(table);
    return upload_nothing("one").error_code() == Code::UNAVAILABLE;
  }));
  EXPECT_THAT(upload_nothing("one").error_message(), HasSubstr("4 uploads of one caller"));
  EXPECT_THAT(upload_nothing("two").error_message(), HasSubstr("raw: 0 bytes"));
  for (const auto& upload : waiting) upload->context.TryCancel();
}

}  // namespace
}  // namespace phasor
