// SPDX-License-Identifier: Apache-2.0
// Attacks a server process: it must stay up, stay small and keep serving. hardening_test.cc covers
// exhausted descriptors and large metadata.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "inference/grpc_service.grpc.pb.h"
#include "phasor/v1/position_embedding_service.grpc.pb.h"
#include "proto/grpc_version.h"
#include "server/net/frame_filter.h"
#include "tests/support/eventually.h"
#include "tests/support/http2_frames.h"
#include "tests/support/process_memory.h"
#include "tests/support/requests.h"
#include "tests/support/running_server.h"
#include "tests/support/server_process.h"
#include "tests/support/socket_client.h"

namespace phasor {
namespace {

using testing::CallHeaders;
using testing::Eventually;
using testing::Frame;
using testing::FrameType;
using testing::IsClosed;
using testing::kEndHeaders;
using testing::kHello;
using testing::kMiB;
using testing::MemoryOf;
using testing::NewChannel;
using testing::Send;
using testing::ServerProcess;
using v1::PositionEmbeddingService;

// That a call over a new connection is answered. Prints how soon: the target is 5 s.
void ExpectServes(const ServerProcess& server, const char* when) {
  testing::TestContext context;
  const absl::Time begun = absl::Now();
  v1::EncodeResponse response;
  const grpc::Status status = PositionEmbeddingService::NewStub(NewChannel(server.address()))
                                  ->Encode(&context, testing::EncodeRequestOf(1), &response);
  EXPECT_TRUE(status.ok()) << when << ": " << status.error_message();
  std::printf("MEASURED served %s, in %.0f ms\n", when,
              absl::ToDoubleMilliseconds(absl::Now() - begun));
}

TEST(AbuseTest, ABombOfZerosIsNotUnpacked) {
  ServerProcess server({"--threads=1"});
  ExpectServes(server, "before");
  const int64_t before = MemoryOf(server.pid(), "VmHWM");
  v1::ApplyRoPERequest request;
  request.add_raw(std::string(256 * kMiB, '\0'));  // 256 KiB on the wire
  for (const auto algorithm : {GRPC_COMPRESS_GZIP, GRPC_COMPRESS_DEFLATE}) {
    const auto stub = PositionEmbeddingService::NewStub(NewChannel(server.address()));
    // Else the client compresses, for seconds, before it sends its settings, and the server's
    // handshake_timeout ends the connection.
    testing::TestContext first;
    v1::EncodeResponse encoded;
    ASSERT_TRUE(stub->Encode(&first, testing::EncodeRequestOf(1), &encoded).ok());
    testing::TestContext context;
    context.set_compression_algorithm(algorithm);
    v1::ApplyRoPEResponse response;
    const grpc::Status status = stub->ApplyRoPE(&context, request, &response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED) << status.error_message();
    ExpectServes(server, "after");
  }
  EXPECT_LT(MemoryOf(server.pid(), "VmHWM") - before, 32 * kMiB);
}

// The listener for health and channelz has the same limits.
TEST(AbuseTest, TheAdminListenerUnpacksNothingEither) {
  const std::string path = ::testing::TempDir() + "/phasor-abuse-admin.sock";
  ServerProcess server({"--threads=1", "--admin-listen=unix:" + path});
  const auto stub = grpc::health::v1::Health::NewStub(NewChannel("unix:" + path));
  grpc::health::v1::HealthCheckResponse response;
  grpc::ClientContext first;
  ASSERT_TRUE(stub->Check(&first, {}, &response).ok());
  const int64_t before = MemoryOf(server.pid(), "VmHWM");
  grpc::health::v1::HealthCheckRequest request;
  request.set_service(std::string(256 * kMiB, 'x'));  // 256 KiB on the wire
  for (const auto algorithm : {GRPC_COMPRESS_GZIP, GRPC_COMPRESS_DEFLATE}) {
    testing::TestContext context;
    context.set_compression_algorithm(algorithm);
    const grpc::Status status = stub->Check(&context, request, &response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED) << status.error_message();
  }
  EXPECT_LT(MemoryOf(server.pid(), "VmHWM") - before, 32 * kMiB);
}

TEST(AbuseTest, WatchesKeepNoNames) {
  ServerProcess server({"--threads=1"});
  ExpectServes(server, "before");
  const auto stub = grpc::health::v1::Health::NewStub(NewChannel(server.address()));
  grpc::health::v1::HealthCheckRequest request;
  request.set_service(std::string(8 * kMiB, 'x'));
  const int64_t before = MemoryOf(server.pid(), "VmRSS");
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<grpc::health::v1::HealthCheckResponse>>> watches;
  for (int i = 0; i < 40; ++i) {
    contexts.push_back(std::make_unique<testing::TestContext>());
    watches.push_back(stub->Watch(contexts.back().get(), request));
    grpc::health::v1::HealthCheckResponse response;
    EXPECT_FALSE(watches.back()->Read(&response));
  }
  EXPECT_LT(MemoryOf(server.pid(), "VmRSS") - before, 64 * kMiB);
  for (const auto& watch : watches) {
    EXPECT_EQ(watch->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  }
}

// What is read takes time in proportion to its bytes, or is refused: the square of as many keys or
// parameters would be seconds of the only worker for each call.
TEST(AbuseTest, ManyKeysAndManyParametersAreRefusedByName) {
  ServerProcess server({"--threads=1"});
  const auto channel = NewChannel(server.address());
  v1::EncodeRequest encode = testing::EncodeRequestOf(1);
  std::string config = R"({"model_type": "llama", "head_dim": 64)";
  for (int i = 0; i < 80000; ++i) config += ",\"k" + std::to_string(i) + "\":0";
  *encode.mutable_item()->mutable_spec() = v1::Spec();
  encode.mutable_item()->mutable_spec()->set_config_json(config + "}");
  v1::ResolveSpecRequest resolve;
  *resolve.mutable_spec() = encode.item().spec();
  inference::ModelInferRequest infer;
  infer.set_model_name("transformer");
  for (int i = 0; i < 60000; ++i) {
    (*infer.mutable_parameters())["p" + std::to_string(i)].set_bool_param(true);
  }
  const auto phasor = PositionEmbeddingService::NewStub(channel);
  const auto triton = inference::GRPCInferenceService::NewStub(channel);
  const auto expect_refused = [](const grpc::Status& status, const char* message) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(status.error_message(), ::testing::StartsWith(message));
  };
  for (int i = 0; i < 10; ++i) {
    testing::TestContext encodes, resolves, infers;
    v1::EncodeResponse encoded;
    expect_refused(phasor->Encode(&encodes, encode, &encoded),
                   "item.spec.config_json: more than 65536 values; must be at most as many");
    v1::ResolveSpecResponse resolved;
    expect_refused(phasor->ResolveSpec(&resolves, resolve, &resolved),
                   "spec.config_json: more than 65536 values; must be at most as many");
    inference::ModelInferResponse inferred;
    expect_refused(triton->ModelInfer(&infers, infer, &inferred),
                   "parameters: 60000 of them; must be at most 256");
  }
  ExpectServes(server, "after");
}

// The widest specs, each asked for once: the cache has room for some 30 of them.
TEST(AbuseTest, PlansOfManySpecsStayWithinTheirMemory) {
  ServerProcess server({"--threads=1"});
  ExpectServes(server, "before");
  const int64_t before = MemoryOf(server.pid(), "VmRSS");
  const auto stub = PositionEmbeddingService::NewStub(NewChannel(server.address()));
  for (int i = 0; i < 300; ++i) {
    v1::EncodeRequest request = testing::EncodeRequestOf(1);
    request.mutable_item()->mutable_spec()->set_dim(65536 - 2 * i);
    testing::TestContext context;
    v1::EncodeResponse response;
    const grpc::Status status = stub->Encode(&context, request, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
  }
  const int64_t grown = MemoryOf(server.pid(), "VmRSS") - before;
  std::printf("MEASURED 300 wide specs, %.0f MiB\n", static_cast<double>(grown) / kMiB);
  EXPECT_LT(grown, 128 * kMiB);  // --plan-cache-bytes, and what malloc keeps
}

// Else the tests below would show nothing.
TEST(AbuseTest, CallsByHandAreCalls) {
  ServerProcess server({"--threads=1"});
  const FileDescriptor peer = ConnectTo(server.address());
  ASSERT_TRUE(Send(peer, std::string(kHello) + CallHeaders(kEndHeaders) +
                             testing::MessageData("", testing::kEndStream)));
  std::string answer;
  EXPECT_TRUE(Eventually([&] {
    char part[4096];
    const ssize_t n = recv(peer.get(), part, sizeof(part), MSG_DONTWAIT);
    if (n > 0) answer.append(part, static_cast<size_t>(n));
    return answer.find("item") != std::string::npos;  // of the error's message
  })) << answer;
}

// Peers that send a byte now and then: of their hello, of headers that never end, and of a message
// of 1000 bytes; and streams that send nothing.
TEST(AbuseTest, SlowLorisesAreShownTheDoor) {
  ServerProcess server({"--threads=1", "--handshake-timeout=1s", "--stream-idle-timeout=1s",
                        "--max-connection-age=1s", "--max-connection-age-grace=1s"});
  struct Loris {
    FileDescriptor fd;
    std::string next;  // what it sends each time; of a hello, the letter that is due
  };
  std::vector<Loris> lorises;
  const std::string hello(kHello);
  const std::string message =
      CallHeaders(kEndHeaders) + Frame(FrameType::kData, 0, std::string("\0\0\0\3\xe8x", 6));
  for (int i = 0; i < 40; ++i) {
    for (const auto& [first, next] : std::vector<std::pair<std::string, std::string>>{
             {"P", "R"},
             {hello + CallHeaders(0), ""},
             {hello + message, Frame(FrameType::kData, 0, "x")}}) {
      lorises.push_back({ConnectTo(server.address()), next});
      ASSERT_TRUE(Send(lorises.back().fd, first));
    }
  }
  const auto stub = PositionEmbeddingService::NewStub(NewChannel(server.address()));
  testing::TestContext context;
  const auto stream = stub->StreamEncode(&context);

  ExpectServes(server, "meanwhile");
  size_t letter = 1;
  EXPECT_TRUE(Eventually([&] {
    letter = std::min(letter + 1, hello.size() - 2);
    return std::ranges::all_of(lorises, [&](const Loris& loris) {
      if (!loris.next.empty())
        Send(loris.fd, loris.next == "R" ? hello.substr(letter, 1) : loris.next);
      return IsClosed(loris.fd);
    });
  }));
  v1::StreamEncodeResponse response;
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  ExpectServes(server, "after");
}

// What messages that never end hold in memory, in what was sent of them: gRPC keeps a record of 32
// bytes for every frame. Frames that are smaller end the connection: see the next test.
TEST(AbuseTest, UnfinishedMessagesCostWhatTheySent) {
  constexpr int kCalls = 100;
  constexpr size_t kSent = 32 << 10;  // of a message, which is what a call may send unasked
  for (const auto& [frame_bytes, most] : {std::pair<size_t, double>{64, 3}, {250, 2}}) {
    ServerProcess server({"--threads=1"});
    std::vector<FileDescriptor> peers;
    for (int i = 0; i < kCalls; ++i) {
      peers.push_back(ConnectTo(server.address()));
      ASSERT_TRUE(Send(peers.back(), std::string(kHello) + CallHeaders(kEndHeaders) +
                                         Frame(FrameType::kData, 0, std::string("\0\0\1\0\0", 5))));
      ASSERT_TRUE(testing::WaitUntilRead(peers.back()));
    }
    const int64_t before = MemoryOf(server.pid(), "VmRSS");
    std::string frames;
    for (size_t sent = 0; sent < kSent; sent += frame_bytes) {
      frames += Frame(FrameType::kData, 0, std::string(frame_bytes, 'x'));
    }
    for (const FileDescriptor& peer : peers) {
      ASSERT_TRUE(Send(peer, frames));
      ASSERT_TRUE(testing::WaitUntilRead(peer));
    }
    const int64_t held = MemoryOf(server.pid(), "VmRSS") - before;
    const double times = static_cast<double>(held) / (kCalls * static_cast<double>(frames.size()));
    std::printf("MEASURED frames of %zu: %.1f times what was sent\n", frame_bytes, times);
    EXPECT_LE(times, most);
    ExpectServes(server, "meanwhile");
  }
}

// As many frames of one byte as a call may send unasked would hold a megabyte.
TEST(AbuseTest, MessagesInTinyFramesEndTheConnection) {
  constexpr int kCalls = 100;
  ServerProcess server({"--threads=1"});
  ExpectServes(server, "before");
  const int64_t before = MemoryOf(server.pid(), "VmRSS");
  std::string frames;
  for (int i = 0; i < 30'000; ++i) frames += Frame(FrameType::kData, 0, "x");
  std::vector<FileDescriptor> peers;
  for (int i = 0; i < kCalls; ++i) {
    peers.push_back(ConnectTo(server.address()));
    ASSERT_TRUE(Send(peers.back(), std::string(kHello) + CallHeaders(kEndHeaders) +
                                       Frame(FrameType::kData, 0, std::string("\0\0\1\0\0", 5))));
    Send(peers.back(), frames);
  }
  for (const FileDescriptor& peer : peers) EXPECT_TRUE(Eventually([&] { return IsClosed(peer); }));
  EXPECT_LT(MemoryOf(server.pid(), "VmRSS") - before, 32 * kMiB);
  ExpectServes(server, "after");
}

// Headers of CVE-2023-1428 and CVE-2023-32732, and others that no client sends: alone, and before
// so many others that the call is refused for its metadata, which is when gRPC 1.51 to 1.52
// aborted.
TEST(AbuseTest, OddHeadersCostNobodyElseAnything) {
  ServerProcess server({"--threads=1"});
  const auto header = [](const std::string& name, const std::string& value) {
    return std::string(1, '\0') + testing::HpackText(name) + testing::HpackText(value);
  };
  const std::string block = testing::CallBlock(testing::kEncodePath);
  for (const std::string& odd :
       {header("te", "x"), header("te", ""), header("te", std::string("trailers\0", 9)),
        header("x-bin", "***"), header("grpc-timeout", "x"), header("grpc-encoding", "x"),
        header("content-type", "x"), header(":path", ""), header(":te", "x"), header("", ""),
        header(":scheme", "x"), header("grpclb_client_stats", "x"), header("grpc-status", "x"),
        std::string("\xff\xff\xff\xff\xff\xff", 6), std::string("\x3f\xff\xff\xff\x7f", 5),
        std::string(1, '\x80')}) {
    const FileDescriptor peer = ConnectTo(server.address());
    uint32_t stream = 1;
    for (const size_t more : {0, 0, 9000, 15000, 0}) {
      const std::string others = more == 0 ? "" : header("x-more", std::string(more, 'y'));
      if (!Send(peer, (stream == 1 ? std::string(kHello) : "") +
                          Frame(FrameType::kHeaders, kEndHeaders, block + odd + others, stream) +
                          testing::MessageData("", testing::kEndStream, stream))) {
        break;
      }
      stream += 2;
    }
    ExpectServes(server, "after odd headers");
  }
}

// Sends `frame` until the server has had enough. Returns the bytes sent, at most `most`.
int64_t Flood(const FileDescriptor& peer, const std::string& frame, int64_t most) {
  int64_t sent = 0;
  while (sent < most && Send(peer, frame)) sent += static_cast<int64_t>(frame.size());
  return sent;
}

// Header blocks that never end (CVE-2024-27316 and its kin): gRPC 1.51 keeps twice their bytes.
TEST(AbuseTest, EndlessHeadersEndTheConnection) {
  constexpr int64_t kMost = 256 * kMiB;
  ServerProcess server({"--threads=1"});
  ExpectServes(server, "before");
  const int64_t before = MemoryOf(server.pid(), "VmHWM");
  for (const size_t frame_bytes : {size_t{0}, size_t{1}, size_t{16000}}) {
    std::vector<FileDescriptor> peers;
    for (int i = 0; i < 60; ++i) {
      peers.push_back(ConnectTo(server.address()));
      ASSERT_TRUE(Send(peers.back(), std::string(kHello) + CallHeaders(0)));
    }
    const std::string frame = Frame(FrameType::kContinuation, 0, std::string(frame_bytes, '\x83'));
    std::string frames;
    while (frames.size() < 16000) frames += frame;
    for (const FileDescriptor& peer : peers) EXPECT_LT(Flood(peer, frames, kMost), kMost);
    ExpectServes(server, "meanwhile");
  }
  EXPECT_LT(MemoryOf(server.pid(), "VmHWM") - before, 64 * kMiB);
}

// Calls that are taken back before they are answered, as fast as they can be sent, over one
// connection and over many, one after the other.
TEST(AbuseTest, ResetStreamsAreCheap) {
  constexpr uint32_t kStreams = 50000;
  ServerProcess server({"--threads=1"});
  ExpectServes(server, "before");
  const int64_t before = MemoryOf(server.pid(), "VmHWM");
  const std::string cancel("\0\0\0\x08", 4);
  FileDescriptor hostile;
  int connections = 0;
  [[maybe_unused]] const absl::Time begun = absl::Now();
  uint32_t stream = 1;
  for (uint32_t sent = 0; sent < kStreams; ++sent, stream += 2) {
    if (!hostile.valid() || !Send(hostile, CallHeaders(kEndHeaders, stream) +
                                               Frame(FrameType::kReset, 0, cancel, stream))) {
      hostile = ConnectTo(server.address());  // it has had enough of the last one
      if (!Send(hostile, kHello)) hostile.Close();
      ++connections;
      stream = 1;
    }
    if (sent == kStreams / 2) ExpectServes(server, "meanwhile");
  }
#if PHASOR_GRPC_BOUNDS_STREAMS
  EXPECT_EQ(connections, 1);  // gRPC copes: nobody is hung up on
#else
  // A machine on which this takes a minute sends no more than a peer may.
  const double may = kResetsAtOnce + kResetsPerSecond * absl::ToDoubleSeconds(absl::Now() - begun);
  if (kStreams > 2 * may) {
    EXPECT_GT(connections, 2);
  }
#endif
  const int64_t grown = MemoryOf(server.pid(), "VmHWM") - before;
  std::printf("MEASURED %d connections for %u resets, %.0f MiB\n", connections, kStreams,
              static_cast<double>(grown) / kMiB);
  EXPECT_LT(grown, 128 * kMiB);
  ExpectServes(server, "after");
}

// Calls that the server has to reset, for what follows their headers (CVE-2025-8671): the client
// sends no reset that could be counted.
TEST(AbuseTest, StreamsThatTheServerMustResetAreCheap) {
  constexpr uint32_t kStreams = 20000;
  const std::string stream_encode = "/phasor.v1.PositionEmbeddingService/StreamEncode";
  for (const std::string& wrong :
       {Frame(FrameType::kWindowUpdate, 0, std::string(4, '\0')),
        Frame(FrameType::kWindowUpdate, 0, "\x7f\xff\xff\xff"),
        Frame(FrameType::kData, 0, std::string("\7\0\0\0\0", 5)),
        Frame(FrameType::kData, 0, std::string("\0\xff\xff\xff\xff", 5))}) {
    ServerProcess server({"--threads=1"});
    ExpectServes(server, "before");
    const int64_t before = MemoryOf(server.pid(), "VmHWM");
    FileDescriptor hostile;
    uint32_t stream = 1;
    for (uint32_t sent = 0; sent < kStreams; ++sent, stream += 2) {
      std::string mine = wrong;
      for (int i = 0; i < 4; ++i) mine[5 + i] = static_cast<char>(stream >> (24 - 8 * i));
      if (!hostile.valid() ||
          !Send(hostile, CallHeaders(kEndHeaders, stream, stream_encode) + mine + mine)) {
        hostile = ConnectTo(server.address());  // it has had enough of the last one
        if (!Send(hostile, kHello)) hostile.Close();
        stream = 1;
      }
    }
    const int64_t grown = MemoryOf(server.pid(), "VmHWM") - before;
    std::printf("MEASURED %u streams, %.0f MiB\n", kStreams, static_cast<double>(grown) / kMiB);
    EXPECT_LT(grown, 192 * kMiB);
    ExpectServes(server, "after");
  }
}

// As many as descriptors allow: the server needs two for each.
TEST(AbuseTest, IdleConnectionsUpToTheLimitOfDescriptors) {
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit old = limit;
  limit.rlim_cur = limit.rlim_max;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  // 28,000 ports lead from one address to another.
  const int idle = static_cast<int>(std::min<rlim_t>((limit.rlim_max - 200) / 2, 25000));
  const std::string most = std::to_string(idle + 10);
  ServerProcess server(
      {"--threads=1", "--max-connections=" + most, "--max-connections-per-peer=" + most});
  ExpectServes(server, "before");
  const int64_t before = MemoryOf(server.pid(), "VmRSS");
  {
    std::vector<FileDescriptor> connections;
    for (int i = 0; i < idle; ++i) {
      connections.push_back(ConnectTo(server.address()));
      ASSERT_TRUE(Send(connections.back(), kHello)) << i;
    }
    ExpectServes(server, "meanwhile");
    const int64_t after = MemoryOf(server.pid(), "VmRSS");
    EXPECT_TRUE(std::ranges::none_of(connections, [](const auto& fd) { return IsClosed(fd); }));
    std::printf("MEASURED %d idle connections, %.1f KiB each\n", idle,
                static_cast<double>(after - before) / 1024 / idle);
  }
  ExpectServes(server, "after");
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &old), 0);
}

}  // namespace
}  // namespace phasor
