// SPDX-License-Identifier: Apache-2.0
// Tests that calls are limited and reported alike with and without an interceptor.
#include "server/grpc/call_interceptor.h"

#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "server/grpc/call_counter.h"
#include "server/grpc/finish_call.h"
#include "tests/support/empty_call.h"
#include "tests/support/eventually.h"

namespace phasor::rpc {
namespace {

using grpc::health::v1::Health;
using ::testing::ElementsAre;

// Ends every call with the bytes or the status.
class FinishingService final : public Health::WithRawCallbackMethod_Check<Health::CallbackService> {
 public:
  explicit FinishingService(const absl::Status* status) : status_(*status) {}

  grpc::ServerUnaryReactor* Check(grpc::CallbackServerContext* context, const grpc::ByteBuffer*,
                                  grpc::ByteBuffer* response) override {
    if (auto* const refused = RefusedReactor(context)) return refused;
    const grpc::Slice slice("answer");
    *response = grpc::ByteBuffer(&slice, 1);
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    FinishCall(context, reactor, status_, response->Length());
    return reactor;
  }

 private:
  const absl::Status& status_;
};

// Writes down the reports.
class Reports final : public CallObserver {
 public:
  void Started(std::string_view method) override { Add("started " + std::string(method)); }
  void Ended(const CallRecord& call) override {
    Add("ended " + std::string(call.method) + " " + CodeName(call.code) + " " +
        std::string(call.message) + " " + std::to_string(call.sent_bytes) + " " +
        call.traceparent());
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

class CallInterceptorTest : public ::testing::TestWithParam<bool> {
 protected:
  CallInterceptorTest() {
    std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> creators;
    std::vector<std::string> finished;
    if (GetParam()) finished = {"grpc.health.v1.Health/"};
    creators.push_back(MakeCallInterceptors(&calls_, {&reports_}, finished));
    grpc::ServerBuilder builder;
    builder.experimental().SetInterceptorCreators(std::move(creators));
    builder.SetContextAllocator(std::make_unique<CallCounter>());
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
  }

  grpc::Status Call(const std::string& trace) {
    grpc::GenericStub stub(server_->InProcessChannel({}));
    grpc::ClientContext context;
    context.AddMetadata("traceparent", trace);
    return testing::CallEmpty(stub, kMethod, &context);
  }

  absl::Status status_;
  Reports reports_;
  OpenCalls calls_{{.calls_per_connection = 2, .metadata_bytes = 1000}, nullptr};
  FinishingService service_{&status_};
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
  EXPECT_TRUE(Call("a").ok());
  EXPECT_EQ(reports_.lines().size(), 4u);
}

}  // namespace
}  // namespace phasor::rpc
