// SPDX-License-Identifier: Apache-2.0
// Tests three replicas under load, behind a real Envoy and behind the client's round robin. Load
// spreads, one replica is killed, all are restarted in turn, and no caller sees an error.
// PHASOR_FLEET_ROUNDS sets how often.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <linux/tcp.h>
#include <netinet/in.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/client.h"
#include "phasor/v1/position_embedding_service.grpc.pb.h"
#include "tests/support/empty_call.h"
#include "tests/support/envoy_proxy.h"
#include "tests/support/eventually.h"
#include "tests/support/http2_frames.h"
#include "tests/support/replica.h"
#include "tests/support/requests.h"
#include "tests/support/running_server.h"
#include "tests/support/steady_load.h"

namespace phasor {
namespace {

using ::testing::Contains;
using testing::EnvoyProxy;
using testing::Eventually;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Replica;
using testing::SteadyLoad;
using v1::PositionEmbeddingService;

constexpr int kReplicas = 3;
constexpr double kCallsPerSecond = 500;

int Rounds() {
  const char* const rounds = std::getenv("PHASOR_FLEET_ROUNDS");
  return rounds == nullptr ? 1 : std::atoi(rounds);
}

// By port.
using Counts = std::map<int, int64_t>;

// What this process has sent over TCP, by the port that it went to.
Counts BytesSent() {
  Counts sent;
  for (int fd = 0; fd < 1024; ++fd) {
    sockaddr_in peer = {};
    socklen_t length = sizeof(peer);
    tcp_info info = {};
    socklen_t size = sizeof(info);
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) == 0 &&
        getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0) {
      sent[ntohs(peer.sin_port)] += static_cast<int64_t>(info.tcpi_bytes_acked);
    }
  }
  return sent;
}

class FleetTest : public ::testing::Test {
 protected:
  void SetUp() override { StartReplicas(Rounds() > 1 ? "3s" : "300ms"); }
  void StartReplicas(const std::string& drain_delay) {
    replicas_.clear();
    for (int i = 0; i < kReplicas; ++i) {
      replicas_.push_back(std::make_unique<Replica>(
          std::vector<std::string>{"--threads=1", "--drain-delay=" + drain_delay}));
    }
  }

  std::vector<std::string> Addresses() const {
    std::vector<std::string> addresses;
    for (const auto& replica : replicas_) addresses.push_back(replica->address());
    return addresses;
  }

  // Calls at a steady rate while replicas come and go; `count` says what each has been sent.
  void LoseNothing(const std::string& target, const std::function<Counts()>& count) {
    SteadyLoad load(*Client::Connect(target), kCallsPerSecond);
    load.Await(200);  // all are connected
    for (int round = 0; round < Rounds(); ++round) {
      ExpectSpread(load, count);
      Replica& victim = *replicas_[static_cast<size_t>(round % kReplicas)];
      victim.Pause();
      load.Await(20);  // some have begun there and are not answered
      victim.Kill();
      load.Await(200);
      victim.Start();
      ExpectWorkFor(victim, count);
      for (const auto& replica : replicas_) {
        replica->Roll();
        ExpectWorkFor(*replica, count);
      }
      EXPECT_EQ(load.failed(), 0) << load.failure();
    }
    load.Stop();
    EXPECT_EQ(load.failed(), 0) << load.failure();
    std::printf("MEASURED %s: %d calls at %.0f a second, %d failed, the slowest took %s\n",
                target.c_str(), static_cast<int>(load.ended()), load.calls_per_second(),
                static_cast<int>(load.failed()), absl::FormatDuration(load.slowest()).c_str());
  }

  void ExpectSpread(const SteadyLoad& load, const std::function<Counts()>& count) const {
    const Counts before = count();
    load.Await(600);
    Counts sent = count();
    int64_t all = 0;
    for (auto& [port, n] : sent) {
      if (const auto old = before.find(port); old != before.end()) n -= old->second;
    }
    for (const auto& replica : replicas_) all += sent[replica->port()];
    for (const auto& replica : replicas_) {
      const double share = static_cast<double>(sent[replica->port()]) / static_cast<double>(all);
      EXPECT_GT(share, 0.2) << replica->address();
      EXPECT_LT(share, 0.5) << replica->address();
    }
  }
  void ExpectWorkFor(const Replica& replica, const std::function<Counts()>& count) const {
    const int64_t before = count()[replica.port()];
    EXPECT_TRUE(Eventually([&] { return count()[replica.port()] > before + 10; }))
        << replica.address() << " gets no calls";
  }

  std::vector<std::unique_ptr<Replica>> replicas_;
};

TEST_F(FleetTest, RoundRobinOfTheClientLosesNoCall) {
  std::vector<std::string> addresses = Addresses();
  LoseNothing("ipv4:" + absl::StrJoin(addresses, ","), &BytesSent);
}

class EnvoyTest : public FleetTest {
 protected:
  void SetUp() override {
    if (!EnvoyProxy::Binary(PHASOR_SOURCE_DIR).has_value())
      GTEST_SKIP() << "SKIP: no Envoy; ./dev test installs it (tests/requirements.txt)";
    FleetTest::SetUp();
    StartEnvoy();
  }
  void StartEnvoy(const std::string& request_timeout = "300s") {
    envoy_ = std::make_unique<EnvoyProxy>(*EnvoyProxy::Binary(PHASOR_SOURCE_DIR), PHASOR_SOURCE_DIR,
                                          Addresses(), request_timeout);
    ASSERT_TRUE(Eventually([this] { return envoy_->Healthy() == kReplicas; })) << envoy_->Log();
  }

  std::unique_ptr<EnvoyProxy> envoy_;
};

TEST_F(EnvoyTest, EnvoyLosesNoCall) {
  LoseNothing(envoy_->address("loopback"), [this] { return envoy_->Sent(); });
}

// With time to notice, Envoy alone is enough.
TEST_F(EnvoyTest, CallersThatRepeatNothingLoseNoCallToARoll) {
  envoy_.reset();
  StartReplicas("3s");
  StartEnvoy();
  SteadyLoad load(*Client::Connect(envoy_->address("loopback"), {.max_attempts = 1}),
                  kCallsPerSecond);
  for (int i = 0; i < (Rounds() > 1 ? kReplicas : 1); ++i) {
    replicas_[static_cast<size_t>(i)]->Roll();
    ExpectWorkFor(*replicas_[static_cast<size_t>(i)], [this] { return envoy_->Sent(); });
  }
  load.Stop();
  EXPECT_EQ(load.failed(), 0) << load.failure();
}

// A call over TLS from who believes `root` only.
grpc::Status EncodeOverTls(const std::string& address, const std::string& root) {
  grpc::ChannelArguments arguments;
  arguments.SetSslTargetNameOverride("localhost");
  const auto channel =
      grpc::CreateCustomChannel(address, grpc::SslCredentials({.pem_root_certs = root}), arguments);
  testing::TestContext context;
  context.AddMetadata("authorization", "Bearer secret-of-the-caller");
  v1::EncodeResponse response;
  return PositionEmbeddingService::NewStub(channel)->Encode(&context, testing::EncodeRequestOf(2),
                                                            &response);
}

TEST_F(EnvoyTest, ANewCertificateIsTakenUp) {
  const std::string address = envoy_->address("tls");
  const std::string old = envoy_->Certificate();
  EXPECT_TRUE(EncodeOverTls(address, old).ok());
  envoy_->MakeCertificate();
  ASSERT_NE(envoy_->Certificate(), old);
  EXPECT_TRUE(Eventually([&] { return EncodeOverTls(address, envoy_->Certificate()).ok(); }));
  EXPECT_FALSE(EncodeOverTls(address, old).ok());
}

TEST_F(EnvoyTest, TlsEndsThereAndNoSecretIsLogged) {
  const grpc::Status status = EncodeOverTls(envoy_->address("tls"), envoy_->Certificate());
  ASSERT_TRUE(status.ok()) << status.error_message();

  testing::TestContext plain;
  v1::EncodeResponse response;
  EXPECT_EQ(PositionEmbeddingService::NewStub(testing::NewChannel(envoy_->address("tls")))
                ->Encode(&plain, testing::EncodeRequestOf(2), &response)
                .error_code(),
            grpc::StatusCode::UNAVAILABLE);
  // Lines are written when a call is over, some time after it was answered.
  ASSERT_TRUE(Eventually([this] { return envoy_->Log().find("/Encode") != std::string::npos; }));
  EXPECT_THAT(envoy_->Log(), Not(HasSubstr("secret")));
  for (const absl::string_view line : absl::StrSplit(envoy_->Log(), '\n')) {
    if (line.find("/Encode") == line.npos) continue;
    const auto json = nlohmann::json::parse(line);
    EXPECT_EQ(json["grpc_status"], "OK") << line;
    EXPECT_EQ(json["tls"], "TLSv1.3") << line;
  }
}

// What Phasor's own limits only soften (CVE-2023-44487).
TEST_F(EnvoyTest, RapidResetsCloseTheConnection) {
  const FileDescriptor hostile = ConnectTo(envoy_->address("loopback"));
  ASSERT_TRUE(testing::Send(hostile, testing::kHello));
  const std::string cancel("\0\0\0\x08", 4);
  uint32_t stream = 1;
  EXPECT_TRUE(Eventually([&] {
    testing::Send(hostile, testing::CallHeaders(testing::kEndHeaders, stream) +
                               testing::Frame(testing::FrameType::kReset, 0, cancel, stream));
    stream += 2;
    return testing::IsClosed(hostile);
  }));
  EXPECT_EQ(envoy_->Stat("http.calls.downstream_rq_too_many_premature_resets"), 1);
  const Client client = *Client::Connect(envoy_->address("loopback"));
  EXPECT_TRUE(client.CheckHealth().ok());
}

// A byte now and then of a message of 1000: gRPC hands a server only whole ones, so that Phasor
// cannot tell. Streams that are answered have more time.
TEST_F(EnvoyTest, AMessageThatTricklesInIsEnded) {
  envoy_.reset();
  StartEnvoy("5s");
  const auto stub =
      PositionEmbeddingService::NewStub(testing::NewChannel(envoy_->address("loopback")));
  testing::TestContext context;
  const auto stream = stub->StreamEncode(&context);
  v1::StreamEncodeRequest item;
  *item.mutable_item() = testing::EncodeOf(1);
  v1::StreamEncodeResponse answer;
  ASSERT_TRUE(stream->Write(item));
  ASSERT_TRUE(stream->Read(&answer));

  const FileDescriptor loris = ConnectTo(envoy_->address("loopback"));
  const auto byte = [](std::string_view bytes) {
    return testing::Frame(testing::FrameType::kData, 0, std::string(bytes));
  };
  ASSERT_TRUE(testing::Send(loris, std::string(testing::kHello) +
                                       testing::CallHeaders(testing::kEndHeaders) +
                                       byte({"\0\0\0\3\xe8x", 6})));
  EXPECT_TRUE(Eventually([&] {
    testing::Send(loris, byte("x"));
    return envoy_->Stat("http.calls.downstream_rq_timeout") >= 1;
  }));
  ASSERT_TRUE(stream->Write(item));
  EXPECT_TRUE(stream->Read(&answer));
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
}

// What has no business on a network.
TEST_F(EnvoyTest, SharedMemoryAndReflectionStayBehindIt) {
  const auto channel = testing::NewChannel(envoy_->address("loopback"));
  grpc::GenericStub stub(channel);
  const auto code_of = [&](const std::string& method) {
    testing::TestContext context;
    return testing::CallEmpty(stub, method, &context).error_code();
  };
  using enum grpc::StatusCode;
  EXPECT_EQ(code_of("phasor.v1.SharedMemoryService/RegisterRegion"), PERMISSION_DENIED);
  EXPECT_EQ(code_of("inference.GRPCInferenceService/SystemSharedMemoryRegister"),
            PERMISSION_DENIED);
  EXPECT_EQ(code_of("grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"),
            UNIMPLEMENTED);
  EXPECT_EQ(code_of("phasor.v1.PositionEmbeddingService/ListPresets"), OK);
  EXPECT_EQ(code_of("inference.GRPCInferenceService/ServerLive"), OK);
}

}  // namespace
}  // namespace phasor
