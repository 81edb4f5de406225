// SPDX-License-Identifier: Apache-2.0
// Tests the phasor-server binary: flags, log lines, signals, exit status.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "kernels/backends.h"
#include "kernels/tensor/npy.h"
#include "phasor/v1/position_embedding_service.grpc.pb.h"
#include "proto/grpc_version.h"
#include "tests/support/callback_threads.h"
#include "tests/support/eventually.h"
#include "tests/support/reflection_call.h"
#include "tests/support/requests.h"
#include "tests/support/running_server.h"
#include "tests/support/server_process.h"
#include "tests/support/socket_client.h"
#include "tests/support/subprocess.h"
#include "tests/support/temp_dir.h"

namespace phasor {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using testing::ServerProcess;
using testing::Subprocess;
using v1::PositionEmbeddingService;

TEST(ServerProcessTest, ServesUntilSigtermAndExitsZero) {
  ServerProcess server;
  testing::TestContext context;
  v1::EncodeResponse response;
  EXPECT_TRUE(PositionEmbeddingService::NewStub(testing::NewChannel(server.address()))
                  ->Encode(&context, testing::EncodeRequestOf(2), &response)
                  .ok());
  server.Signal(SIGTERM);
  EXPECT_EQ(json::parse(server.ReadLine())["event"], "draining");
  const json stopped = json::parse(server.ReadLine());
  EXPECT_EQ(stopped["event"], "stopped");
  EXPECT_EQ(stopped["drained"], true);
  EXPECT_EQ(server.Wait(), 0);
}

// gRPC's own end joined threads that were in a poll of 10 s, after some of these exits.
TEST(ServerProcessTest, ExitIsSoonWhileClientsStayConnected) {
  for (int round = 0; round < 8; ++round) {
    ServerProcess server;
    const auto channel = testing::NewChannel(server.address());
    std::vector<std::thread> callers;
    for (int i = 0; i < 32; ++i) {
      callers.emplace_back([&channel] {
        for (int call = 0; call < 3; ++call) {
          testing::TestContext context;
          v1::EncodeResponse response;
          EXPECT_TRUE(PositionEmbeddingService::NewStub(channel)
                          ->Encode(&context, testing::EncodeRequestOf(20000), &response)
                          .ok());
        }
      });
    }
    for (std::thread& caller : callers) caller.join();
    server.Signal(SIGTERM);
    while (server.ReadEvent()["event"] != "stopped") {
    }
    const absl::Time stopped = absl::Now();
    ASSERT_EQ(server.Wait(), 0);
    ASSERT_LT(absl::Now() - stopped, absl::Seconds(8)) << "round " << round;
  }
}

// By itself gRPC lets all of them sleep for 100 ms after a second without calls.
TEST(ServerProcessTest, OneOfGrpcsThreadsIsAlwaysAwake) {
  if (!PHASOR_GRPC_HAS_CALLBACK_THREADS) GTEST_SKIP() << "this gRPC has no such threads";
  const ServerProcess server;
  EXPECT_TRUE(testing::OneCallbackThreadIsAlwaysAwake(std::to_string(server.pid())));
}

TEST(ServerProcessTest, LeavesNoSocketFilesBehind) {
  const testing::TempDir dir;
  const std::string served = dir.path() + "/served", leases = dir.path() + "/leases";
  ServerProcess server({"--listen=unix:" + served, "--lease-socket=" + leases});
  EXPECT_TRUE(std::filesystem::exists(served));
  EXPECT_TRUE(std::filesystem::exists(leases));
  server.Signal(SIGTERM);
  EXPECT_EQ(server.Wait(), 0);
  EXPECT_FALSE(std::filesystem::exists(served));
  EXPECT_FALSE(std::filesystem::exists(leases));
}

TEST(ServerProcessTest, SigintStopsItToo) {
  ServerProcess server;
  server.Signal(SIGINT);
  EXPECT_EQ(server.Wait(), 0);
}

TEST(ServerProcessTest, SecondSignalEndsItAtOnce) {
  ServerProcess server({"--drain-delay=1h"});
  server.Signal(SIGTERM);
  EXPECT_EQ(json::parse(server.ReadLine())["event"], "draining");
  server.Signal(SIGINT);
  EXPECT_EQ(server.Wait(), 128 + SIGINT);
}

// An HTTP/2 frame.
std::string Frame(char type, char flags, char stream, const std::string& payload) {
  std::string frame(9, '\0');
  frame[1] = static_cast<char>(payload.size() >> 8);
  frame[2] = static_cast<char>(payload.size());
  frame[3] = type;
  frame[4] = flags;
  frame[8] = stream;
  return frame + payload;
}

// HEADERS of a call of Encode, without compression.
std::string CallHeaders() {
  std::string block = "\x83\x86";  // POST, http
  const std::pair<std::string, std::string> headers[] = {
      {":path", "/phasor.v1.PositionEmbeddingService/Encode"},
      {":authority", "x"},
      {"content-type", "application/grpc"},
      {"te", "trailers"}};
  for (const auto& [name, value] : headers) {
    block += '\0';
    block += static_cast<char>(name.size()) + name + static_cast<char>(value.size()) + value;
  }
  return block;
}

TEST(ServerProcessTest, DrainThatRunsOutOfTimeExitsOne) {
  ServerProcess server({"--drain-timeout=100ms"});
  // A caller that never makes room for its answer of 1 MiB.
  const std::string request = testing::EncodeRequestOf(1 << 15).SerializeAsString();
  const std::string message = std::string(4, '\0') + static_cast<char>(request.size()) + request;
  const std::string bytes = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + Frame(4, 0, 0, "") +
                            Frame(1, 4, 1, CallHeaders()) + Frame(0, 1, 1, message);
  const FileDescriptor caller = ConnectTo(server.address());
  ASSERT_EQ(write(caller.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  char answer[1 << 14];
  for (int64_t received = 0; received < 60000;) {  // of the first window's 65535
    const ssize_t count = read(caller.get(), answer, sizeof(answer));
    ASSERT_GT(count, 0);
    received += count;
  }
  server.Signal(SIGTERM);
  EXPECT_EQ(json::parse(server.ReadLine())["event"], "draining");
  EXPECT_EQ(json::parse(server.ReadLine())["drained"], false);
  EXPECT_EQ(server.Wait(), 1);
}

// Peak resident memory of a process, in KiB.
int64_t PeakResidentKiB(pid_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string word; status >> word;) {
    int64_t kib = 0;
    if (word == "VmHWM:" && status >> kib) return kib;
  }
  return 0;
}

TEST(ServerProcessTest, CompressedMessageIsRefusedBeforeItIsInflated) {
  ServerProcess server;
  grpc::ChannelArguments arguments;
  arguments.SetCompressionAlgorithm(GRPC_COMPRESS_GZIP);
  const auto stub =
      PositionEmbeddingService::NewStub(testing::NewChannel(server.address(), arguments));
  grpc::ClientContext warm;
  v1::GetServerInfoResponse info;
  (void)stub->GetServerInfo(&warm, {}, &info);
  const int64_t before = PeakResidentKiB(server.pid());
  ASSERT_GT(before, 0);
  v1::ApplyRoPERequest request;
  request.add_raw(std::string(128 << 20, '\0'));  // 128 KiB compressed
  testing::TestContext context;
  v1::ApplyRoPEResponse response;
  EXPECT_EQ(stub->ApplyRoPE(&context, request, &response).error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_LT(PeakResidentKiB(server.pid()), before + (32 << 10));
}

TEST(ServerProcessTest, HelpAndVersionExitZero) {
  Subprocess help(testing::ServerCommandLine({"--help"}));
  EXPECT_THAT(help.ReadAll(), HasSubstr("--max-message-bytes"));
  EXPECT_EQ(help.Wait(), 0);
  Subprocess version(testing::ServerCommandLine({"--version"}));
  EXPECT_THAT(version.ReadAll(), HasSubstr("phasor-server "));
  EXPECT_EQ(version.Wait(), 0);
}

TEST(ServerProcessTest, WhatCannotBePrintedIsAnError) {
  for (const char* const arguments :
       {"--help >/dev/full", "--print-config >/dev/full", "--version >&-"}) {
    Subprocess server({"/bin/sh", "-c", "exec \"$0\" " + std::string(arguments),
                       testing::ServerCommandLine({}).front()});
    EXPECT_EQ(server.ReadLine(),
              "phasor-server: standard output: cannot be written; is it closed, or its disk full?");
    EXPECT_EQ(server.Wait(), 1) << arguments;
  }
}

TEST(ServerProcessTest, BadOptionsExitTwoWithOneLine) {
  Subprocess server(testing::ServerCommandLine({"--treads=4"}));
  EXPECT_EQ(server.ReadLine(), "phasor-server: treads: unknown option; did you mean threads?");
  EXPECT_EQ(server.ReadAll(), "");
  EXPECT_EQ(server.Wait(), 2);
}

TEST(ServerProcessTest, CheckConfigExitsZeroOrTwoAndServesNothing) {
  Subprocess good(testing::ServerCommandLine({"--check-config", "--threads=2"}));
  EXPECT_EQ(good.ReadAll(), "phasor-server: the configuration is valid\n");
  EXPECT_EQ(good.Wait(), 0);
  Subprocess bad(testing::ServerCommandLine({"--check-config", "--threads=-2"}));
  EXPECT_THAT(bad.ReadAll(), HasSubstr("phasor-server: threads: '-2' is not accepted"));
  EXPECT_EQ(bad.Wait(), 2);
  setenv("PHASOR_THREDS", "3", /*overwrite=*/1);
  Subprocess typo(testing::ServerCommandLine({"--check-config"}));
  unsetenv("PHASOR_THREDS");
  EXPECT_THAT(typo.ReadAll(), HasSubstr("PHASOR_THREDS: ignored; did you mean PHASOR_THREADS?"));
  EXPECT_EQ(typo.Wait(), 0);
}

TEST(ServerProcessTest, VariablesOfTracingAreCheckedToo) {
  setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1", /*overwrite=*/1);
  setenv("OTEL_TRACES_SAMPLER", "sometimes", /*overwrite=*/1);
  Subprocess check(testing::ServerCommandLine({"--check-config"}));
  Subprocess server(testing::ServerCommandLine({}));
  Subprocess version(testing::ServerCommandLine({"--version"}));
  unsetenv("OTEL_EXPORTER_OTLP_ENDPOINT");
  unsetenv("OTEL_TRACES_SAMPLER");
  for (Subprocess* const each : {&check, &server}) {
    EXPECT_THAT(each->ReadAll(), HasSubstr("OTEL_TRACES_SAMPLER: 'sometimes' is not accepted"));
    EXPECT_EQ(each->Wait(), 2);
  }
  EXPECT_EQ(version.Wait(), 0);
}

TEST(ServerProcessTest, FailureToStartExitsOneWithOneLine) {
  ServerProcess first;
  Subprocess second(testing::ServerCommandLine({"--listen=" + first.address()}));
  EXPECT_THAT(second.ReadLine(), HasSubstr("cannot listen on " + first.address()));
  EXPECT_EQ(second.ReadAll(), "");
  EXPECT_EQ(second.Wait(), 1);
}

TEST(ServerProcessTest, CudaWithoutADeviceDoesNotStartAndAutoTakesTheCpu) {
  if (MakeBackend({"cuda", 1}).ok()) GTEST_SKIP() << "this host has a device";
  Subprocess server(testing::ServerCommandLine({"--backend=cuda", "--listen=127.0.0.1:0"}));
  EXPECT_THAT(server.ReadLine(), HasSubstr("CUDA"));
  EXPECT_EQ(server.ReadAll(), "");
  EXPECT_EQ(server.Wait(), 1);
  EXPECT_EQ(ServerProcess({"--backend=auto"}).backend(), "cpu");
}

TEST(CommandLineTest, WritesProgressToTerminalsOnly) {
  const testing::TempDir dir;
  dir.Write("x.npy",
            FormatNpyHeader({Dtype::kFloat32, {64, 1, 64}, {}}) + std::string(64 * 64 * 4, '\0'));
  const ServerProcess server;
  Subprocess rope({PHASOR_BINARY, "rope", "--stream", "--server", server.address(), "--preset",
                   "rope-half-split", "--head-dim", "64", "--range", "0:64", "--input",
                   dir.path() + "/x.npy", "--output", dir.path() + "/y.npy"});
  const std::string written = rope.ReadAll();
  EXPECT_EQ(rope.Wait(), 0) << written;
  EXPECT_EQ(written.find('\r'), std::string::npos) << written;
  EXPECT_EQ(written.find('%'), std::string::npos) << written;
}

TEST(ServerProcessTest, ReflectionCanBeTurnedOff) {
  ServerProcess with;
  ServerProcess without({"--reflection=false"});
  EXPECT_TRUE(testing::ReflectionCall(testing::NewChannel(with.address())).Status().ok());
  EXPECT_EQ(testing::ReflectionCall(testing::NewChannel(without.address())).Status().error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
}

}  // namespace
}  // namespace phasor
