// SPDX-License-Identifier: Apache-2.0
// A client of a stream for tests, and checks that the stream leaves nothing behind.
#ifndef PHASOR_TESTS_SERVER_API_ROPE_STREAM_H_
#define PHASOR_TESTS_SERVER_API_ROPE_STREAM_H_

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>

#include "absl/time/clock.h"
#include "tests/server/api/test_server.h"
#include "tests/support/requests.h"

namespace phasor::rpc {

// A StreamApplyRoPE of the generated client.
class RopeStream {
 public:
  explicit RopeStream(TestServer* server)
      : stub_(v1::PositionEmbeddingService::NewStub(server->channel())),
        stream_(stub_->StreamApplyRoPE(&context_)) {}
  RopeStream(TestServer* server, absl::Duration timeout)
      : stub_(v1::PositionEmbeddingService::NewStub(server->channel())) {
    context_.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
    stream_ = stub_->StreamApplyRoPE(&context_);
  }

  grpc::ClientContext& context() { return context_; }
  bool Write(const v1::StreamApplyRoPERequest& request) { return stream_->Write(request); }
  // An item of `tokens` tokens.
  bool WriteItem(int64_t id, int64_t tokens) {
    v1::ApplyRoPERequest unary = testing::RopeRequestOf(tokens);
    v1::StreamApplyRoPERequest request;
    request.set_id(id);
    request.mutable_item()->Swap(unary.mutable_item());
    request.mutable_raw()->Swap(unary.mutable_raw());
    return Write(request);
  }
  bool Open(int64_t id, int64_t tokens) {
    v1::StreamApplyRoPERequest request;
    request.set_id(id);
    *request.mutable_item() = testing::RopeOf(tokens);
    request.set_chunked(true);
    return Write(request);
  }
  bool WriteRun(int64_t id, int64_t first, int64_t tokens) {
    v1::StreamApplyRoPERequest request;
    request.set_id(id);
    request.mutable_chunk()->set_first_token(first);
    request.mutable_chunk()->set_tokens(tokens);
    request.add_raw(std::string(64 * tokens, 'q'));
    request.add_raw(std::string(32 * tokens, 'k'));
    return Write(request);
  }
  v1::StreamApplyRoPEResponse Read() {
    v1::StreamApplyRoPEResponse response;
    EXPECT_TRUE(stream_->Read(&response)) << "the stream has ended";
    return response;
  }
  void WritesDone() { stream_->WritesDone(); }
  // Reads what is left and returns the status.
  grpc::Status Finish() {
    v1::StreamApplyRoPEResponse response;
    while (stream_->Read(&response)) ++left_;
    return stream_->Finish();
  }
  int left() const { return left_; }  // answers that Finish read

 private:
  grpc::ClientContext context_;
  const std::unique_ptr<v1::PositionEmbeddingService::Stub> stub_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::StreamApplyRoPERequest, v1::StreamApplyRoPEResponse>>
      stream_;
  int left_ = 0;
};

template <typename Condition>
void WaitUntil(Condition condition) {
  while (!condition()) std::this_thread::yield();
}

// Everything that streams held is given back.
inline void ExpectNothingLeft(TestServer& server) {
  WaitUntil([&] { return server.service().streams() == 0; });
  WaitUntil([&] { return server.engine().stats().inflight_bytes == 0; });
  WaitUntil([&] { return server.engine().stats().waiting_readers == 0; });
  const engine::EngineStats stats = server.engine().stats();
  EXPECT_EQ(stats.queued_calls, 0);
  EXPECT_EQ(stats.waiting_calls, 0);
}

}  // namespace phasor::rpc

#endif  // PHASOR_TESTS_SERVER_API_ROPE_STREAM_H_
