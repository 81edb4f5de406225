// SPDX-License-Identifier: Apache-2.0
// Tests that calls are limited and reported alike with and without an interceptor.
#include "server/grpc/call_interceptor.h"

#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "phasor/v1/position_embedding_service.grpc.pb.h"
#include "server/grpc/access.h"
#include "server/grpc/call_counter.h"
#include "server/grpc/finish_call.h"
#include "tests/support/empty_call.h"
#include "tests/support/eventually.h"

namespace phasor::rpc {
namespace {

using grpc::health::v1::Health;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Rpcs = v1::PositionEmbeddingService;

// Ends every call with the bytes or the status.
class FinishingService final : public Health::WithRawCallbackMethod_Check<Health::CallbackService> {
 public:
  explicit FinishingService(const absl::Status* status) : status_(*status) {}

  grpc::ServerUnaryReactor* Check(grpc::CallbackServerContext* context, const grpc::ByteBuffer*,
                                  grpc::ByteBuffer* response) override {
    if (auto* const refused = RefusedReactor(context)) return refused;
    if (waits_for_end) {
      EXPECT_TRUE(testing::Eventually([context] { return context->IsCancelled(); }));
    }
    const grpc::Slice slice("answer");
    *response = grpc::ByteBuffer(&slice, 1);
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    FinishCall(context, reactor, status_, response->Length());
    return reactor;
  }

  std::atomic<bool> waits_for_end = false;  // answers when the call has ended without it

 private:
  const absl::Status& status_;
};

// Answers each message of a stream with a message, and ends the stream with the status.
class FinishingStreams final : public Rpcs::WithRawCallbackMethod_StreamEncode<Rpcs::Service> {
 public:
  explicit FinishingStreams(const absl::Status* status) : status_(*status) {}

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* StreamEncode(
      grpc::CallbackServerContext* context) override {
    return new Reactor(context, Refusal(context), status_);
  }

 private:
  class Reactor final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
   public:
    Reactor(grpc::CallbackServerContext* context, const absl::Status& refusal,
            const absl::Status& status)
        : context_(context), status_(status) {
      const grpc::Slice slice(v1::StreamEncodeResponse().SerializeAsString() + kUnknownField);
      answer_ = grpc::ByteBuffer(&slice, 1);
      refusal.ok() ? StartRead(&message_) : FinishStream(context_, this, refusal);
    }
    void OnReadDone(bool ok) override {
      if (!ok) return FinishStream(context_, this, status_);
      CallCounter::NoteMessage(context_, static_cast<int64_t>(message_.Length()));
      CallCounter::NoteAnswer(context_, static_cast<int64_t>(answer_.Length()));
      StartWrite(&answer_);
    }
    void OnWriteDone(bool /*ok*/) override {
      CallCounter::NoteAnswerTaken(context_);
      StartRead(&message_);
    }
    void OnDone() override { delete this; }

   private:
    static constexpr char kUnknownField[] = "\xf8\x07\x01";  // so that the answer has three bytes
    grpc::CallbackServerContext* const context_;
    const absl::Status& status_;
    grpc::ByteBuffer message_, answer_;
  };

  const absl::Status& status_;
};

// Writes down the reports.
class Reports final : public CallObserver {
 public:
  void Started(std::string_view method) override { Add("started " + std::string(method)); }
  std::shared_ptr<StreamObserver> StreamBegins(std::string_view traceparent) override {
    Add("stream " + std::string(traceparent));
    return nullptr;
  }
  void Ended(const CallRecord& call) override {
    Add("ended " + std::string(call.method) + " " + CodeName(call.code) + " " +
        std::string(call.message) + " " + std::to_string(call.sent_bytes) + " " +
        call.traceparent());
    if (call.received_bytes.has_value()) Add("received " + std::to_string(*call.received_bytes));
  }
  std::vector<std::string> lines() {
    absl::MutexLock lock(&mu_);
    return lines_;
  }

 private:
  void Add(std::string line) {
    absl::MutexLock lock(&mu_);
    lines_.push_back(std::move(line));
  }

  absl::Mutex mu_;
  std::vector<std::string> lines_ ABSL_GUARDED_BY(mu_);
};

constexpr char kMethod[] = "grpc.health.v1.Health/Check";
constexpr char kStreamMethod[] = "phasor.v1.PositionEmbeddingService/StreamEncode";

class CallInterceptorTest : public ::testing::TestWithParam<bool> {
 protected:
  CallInterceptorTest() {
    std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> creators;
    std::vector<std::string> finished;
    if (GetParam()) finished = {"grpc.health.v1.Health/", "phasor.v1.PositionEmbeddingService/"};
    creators.push_back(MakeCallInterceptors(&calls_, {&reports_}, finished));
    grpc::ServerBuilder builder;
    builder.experimental().SetInterceptorCreators(std::move(creators));
    builder.SetContextAllocator(std::make_unique<CallCounter>());
    builder.RegisterService(&service_);
    builder.RegisterService(&streams_);
    server_ = builder.BuildAndStart();
  }

  grpc::Status Call(const std::string& trace, absl::Duration time = absl::Minutes(1)) {
    grpc::GenericStub stub(server_->InProcessChannel({}));
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + time));
    context.AddMetadata("traceparent", trace);
    return testing::CallEmpty(stub, kMethod, &context);
  }

  // Sends two messages of two bytes and reads their answers.
  grpc::Status Stream(const std::string& trace, bool cancel = false) {
    const auto stub = Rpcs::NewStub(server_->InProcessChannel({}));
    grpc::ClientContext context;
    context.AddMetadata("traceparent", trace);
    const auto stream = stub->StreamEncode(&context);
    v1::StreamEncodeRequest request;
    request.set_id(1);
    v1::StreamEncodeResponse answer;
    for (int i = 0; i < 2 && stream->Write(request); ++i) stream->Read(&answer);
    if (cancel) context.TryCancel();
    stream->WritesDone();
    return stream->Finish();
  }

  absl::Status status_;
  Reports reports_;
  OpenCalls calls_{{.calls_per_connection = 2, .metadata_bytes = 1000}, nullptr};
  FinishingService service_{&status_};
  FinishingStreams streams_{&status_};
  std::unique_ptr<grpc::Server> server_;
};

INSTANTIATE_TEST_SUITE_P(Finished, CallInterceptorTest, ::testing::Bool());

TEST_P(CallInterceptorTest, AnswersAreReported) {
  EXPECT_TRUE(Call("a").ok());
  EXPECT_THAT(reports_.lines(), ElementsAre(std::string("started ") + kMethod,
                                            std::string("ended ") + kMethod + " OK  6 a"));
}

TEST_P(CallInterceptorTest, ErrorsAreReportedWithoutBytes) {
  status_ = absl::NotFoundError("x: unknown");
  EXPECT_EQ(Call("a").error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(reports_.lines(),
              ElementsAre(std::string("started ") + kMethod,
                          std::string("ended ") + kMethod + " NOT_FOUND x: unknown 0 a"));
}

TEST_P(CallInterceptorTest, RefusedCallsAreReportedOnce) {
  EXPECT_EQ(Call(std::string(1000, 'x')).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(testing::Eventually([this] { return reports_.lines().size() == 2; }));
  EXPECT_THAT(reports_.lines()[1], HasSubstr(" RESOURCE_EXHAUSTED metadata: "));
  EXPECT_TRUE(Call("a").ok());
  EXPECT_EQ(reports_.lines().size(), 4u);
}

TEST_P(CallInterceptorTest, CallsWhoseDeadlinePassesAreReportedAsTheirCallersSeeThem) {
  service_.waits_for_end = true;
  const absl::Duration time = absl::Milliseconds(20);
  EXPECT_EQ(Call("a", time).error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  status_ = absl::DeadlineExceededError("deadline: passed");
  EXPECT_EQ(Call("a", time).error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_TRUE(testing::Eventually([this] { return reports_.lines().size() == 4; }));
  EXPECT_THAT(reports_.lines()[3], HasSubstr(" DEADLINE_EXCEEDED deadline: passed "));
}

TEST_P(CallInterceptorTest, StreamsAreReported) {
  EXPECT_TRUE(Stream("a").ok());
  EXPECT_THAT(reports_.lines(),
              ElementsAre(std::string("started ") + kStreamMethod, "stream a",
                          std::string("ended ") + kStreamMethod + " OK  6 a", "received 4"));
}

TEST_P(CallInterceptorTest, ErrorsOfStreamsAreReported) {
  status_ = absl::NotFoundError("x: unknown");
  EXPECT_EQ(Stream("a").error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(reports_.lines(),
              ElementsAre(std::string("started ") + kStreamMethod, "stream a",
                          std::string("ended ") + kStreamMethod + " NOT_FOUND x: unknown 6 a",
                          "received 4"));
}

TEST_P(CallInterceptorTest, CancelledStreamsAreReportedOnce) {
  EXPECT_EQ(Stream("a", /*cancel=*/true).error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(testing::Eventually([this] { return reports_.lines().size() == 4; }));
  EXPECT_THAT(reports_.lines()[2], HasSubstr(" CANCELLED "));
}

TEST_P(CallInterceptorTest, RefusedStreamsAreReportedOnce) {
  EXPECT_EQ(Stream(std::string(1000, 'x')).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(testing::Eventually([this] { return reports_.lines().size() == 3; }));
  EXPECT_THAT(reports_.lines()[2], HasSubstr(" RESOURCE_EXHAUSTED metadata: "));
  EXPECT_TRUE(Stream("a").ok());
  EXPECT_EQ(reports_.lines().size(), 7u);
}

}  // namespace
}  // namespace phasor::rpc
