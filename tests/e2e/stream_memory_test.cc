// SPDX-License-Identifier: Apache-2.0
// Measures the resident memory of a server process while streams pass through it. It must depend on
// what a stream may have in flight, not on its length or on how slowly it is read.
// PHASOR_STREAM_MIB sets the length.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "phasor/v1/position_embedding_service.grpc.pb.h"
#include "tests/support/large_rope.h"
#include "tests/support/process_memory.h"
#include "tests/support/running_server.h"
#include "tests/support/server_process.h"

namespace phasor {
namespace {

using testing::kMiB;
using testing::LargeRopeAt;
using testing::LargeRopePayload;
using testing::MemoryOf;
using testing::ServerProcess;
using v1::PositionEmbeddingService;

constexpr int64_t kTokenBytes = testing::kLargeTokenBytes;

// Small windows: what a caller's transport takes in for it is not the server's any more.
std::unique_ptr<PositionEmbeddingService::Stub> ConnectWithSmallWindows(
    const ServerProcess& server) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 64 << 10);
  return PositionEmbeddingService::NewStub(testing::NewChannel(server.address(), arguments));
}

TEST(StreamMemoryTest, AStreamOfAnyLengthHoldsFewOfItsChunks) {
  const char* mib = std::getenv("PHASOR_STREAM_MIB");
  const int64_t bytes = (mib == nullptr ? 512 : std::atoll(mib)) * kMiB;
  const int64_t run = 4 * kMiB / kTokenBytes;
  const int64_t tokens = bytes / kTokenBytes;
  const std::string payload = LargeRopePayload(run);
  const ServerProcess server({"--threads=2"});
  const auto stub = ConnectWithSmallWindows(server);
  grpc::ClientContext context;
  const auto stream = stub->StreamApplyRoPE(&context);
  std::thread writer([&] {
    v1::StreamApplyRoPERequest request;
    *request.mutable_item() = LargeRopeAt(0, tokens);
    request.set_chunked(true);
    EXPECT_TRUE(stream->Write(request));
    request.Clear();
    request.add_raw(payload);
    request.mutable_chunk()->set_tokens(run);
    for (int64_t first = 0; first < tokens; first += run) {
      request.mutable_chunk()->set_first_token(first);
      if (!stream->Write(request)) break;
    }
    stream->WritesDone();
  });
  v1::StreamApplyRoPEResponse response;
  int64_t received = 0;
  while (stream->Read(&response)) {
    EXPECT_EQ(response.result().status().code(), 0) << response.result().status().message();
    if (!response.has_chunk()) continue;
    received += response.chunk().tokens();
    const int64_t first = response.chunk().first_token();
    if (first != 0 && first != tokens - run) continue;
    grpc::ClientContext unary_context;
    v1::ApplyRoPERequest unary;
    *unary.mutable_item() = LargeRopeAt(first, run);
    unary.add_raw(payload);
    v1::ApplyRoPEResponse want;
    ASSERT_TRUE(stub->ApplyRoPE(&unary_context, unary, &want).ok());
    EXPECT_TRUE(want.raw(0) == response.raw(0)) << "run at token " << first;
  }
  writer.join();
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_EQ(received, tokens);
  const int64_t peak = MemoryOf(server.pid(), "VmHWM");
  RecordProperty("peak_mib", std::to_string(peak / kMiB));
  std::printf("%ld MiB streamed, at most %ld MiB resident\n", static_cast<long>(bytes / kMiB),
              static_cast<long>(peak / kMiB));
  EXPECT_LE(peak, 256 * kMiB);
}

// One of many that write and do not read until they are told to.
struct SlowReader {
  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReaderWriter<v1::StreamApplyRoPERequest, v1::StreamApplyRoPEResponse>>
      stream;
  std::thread writer;
  std::thread reader;
};

TEST(StreamMemoryTest, ReadersThatDoNotReadHoldLittleMoreThanTheByteBudget) {
  constexpr int kReaders = 64;
  static constexpr int kItems = 40;
  constexpr int64_t kByteBudget = 256 * kMiB;
  constexpr int64_t kTokens = 16;  // 256 KiB
  const ServerProcess server(
      {"--threads=2", "--max-inflight-bytes=256MiB", "--stream-window-bytes=64KiB"});
  const auto stub = ConnectWithSmallWindows(server);
  const auto probing = ConnectWithSmallWindows(server);  // a connection of its own
  v1::ApplyRoPERequest probe;
  *probe.mutable_item() = LargeRopeAt(0, 64);
  probe.add_raw(LargeRopePayload(64));
  const auto call_probe = [&] {
    grpc::ClientContext context;
    v1::ApplyRoPEResponse response;
    return probing->ApplyRoPE(&context, probe, &response).error_code();
  };
  ASSERT_EQ(call_probe(), grpc::StatusCode::OK);
  const int64_t base = MemoryOf(server.pid(), "VmRSS");

  v1::StreamApplyRoPERequest request;
  *request.mutable_item() = LargeRopeAt(7, kTokens);
  request.add_raw(LargeRopePayload(kTokens));
  std::atomic<int> written = 0;
  std::vector<SlowReader> readers(kReaders);
  for (SlowReader& reader : readers) {
    reader.stream = stub->StreamApplyRoPE(&reader.context);
    reader.writer = std::thread([&] {
      for (int i = 0; i < kItems; ++i) EXPECT_TRUE(reader.stream->Write(request));
      reader.stream->WritesDone();
      ++written;
    });
  }
  while (call_probe() != grpc::StatusCode::UNAVAILABLE) {
    ASSERT_LT(written, kReaders) << "the budget was never spent";
  }
  const int64_t full = MemoryOf(server.pid(), "VmRSS");
  // All at once: those that read nothing hold the budget that the others wait for.
  for (SlowReader& reader : readers) {
    reader.reader = std::thread([&reader] {
      v1::StreamApplyRoPEResponse response;
      int answers = 0;
      for (; reader.stream->Read(&response); ++answers)
        EXPECT_EQ(response.result().status().code(), 0);
      EXPECT_EQ(answers, kItems);
    });
  }
  for (SlowReader& reader : readers) {
    reader.reader.join();
    reader.writer.join();
    EXPECT_TRUE(reader.stream->Finish().ok());
  }
  const int64_t peak = MemoryOf(server.pid(), "VmHWM");
  std::printf("base %ld, full %ld, peak %ld MiB\n", static_cast<long>(base / kMiB),
              static_cast<long>(full / kMiB), static_cast<long>(peak / kMiB));
  // What gRPC has received of the next messages, and the blocks of memory that it shares between
  // messages, come beside the budget.
  EXPECT_LE(peak, (base + kByteBudget) * 11 / 10);
}

}  // namespace
}  // namespace phasor
